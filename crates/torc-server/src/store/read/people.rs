//! Tokens of people, and the audit log.

use super::page;
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::{Row, params};
use torc_model::api::{AuditView, Role, TokenView};
use torc_model::ids::WorkflowId;

/// A row of `token`.
pub fn token_view(row: &Row<'_>) -> rusqlite::Result<TokenView> {
    Ok(TokenView {
        id: row.get("id")?,
        user: row.get("user")?,
        role: page::word(row, "role", Role::parse)?,
        name: row.get("name")?,
        created_ms: row.get("created_ms")?,
        expires_ms: row.get("expires_ms")?,
        last_used_ms: row.get("last_used_ms")?,
        workflow_id: row.get::<_, Option<i64>>("workflow_id")?.map(WorkflowId),
        access_group_id: row.get("access_group_id")?,
    })
}

impl Reader {
    /// Every token with its hash.
    pub async fn tokens(&self) -> Result<Vec<(String, TokenView)>, ReadError> {
        self.read(|connection| {
            Ok(connection
                .prepare_cached("SELECT * FROM token ORDER BY id")?
                .all([], |row| Ok((row.get("hash")?, token_view(row)?)))?)
        })
        .await
    }

    /// Entries of the audit log, the newest first.
    pub async fn audit(
        &self,
        user: Option<String>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<AuditView>, ReadError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, at_ms, user, token_id, method, path, request_id FROM audit
                 WHERE (?1 IS NULL OR user = ?1) AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3",
            )?;
            Ok(statement.all(params![user, before, limit], |row| {
                Ok(AuditView {
                    id: row.get(0)?,
                    at_ms: row.get(1)?,
                    user: row.get(2)?,
                    token_id: row.get(3)?,
                    method: row.get(4)?,
                    path: row.get(5)?,
                    request_id: row.get(6)?,
                })
            })?)
        })
        .await
    }
}

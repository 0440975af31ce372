//! Tokens of people: only their hashes are kept.

use super::Store;
use super::names;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use crate::secret::{Hash, hex};
use rusqlite::{OptionalExtension as _, params};
use torc_model::api::{CreateToken, Role, TokenView};

/// A name or a user of more characters is a mistake.
const LONGEST: usize = 200;

impl Store {
    /// Keeps a new token.
    pub async fn create_token(&self, new: CreateToken, hash: Hash) -> Result<TokenView, Refusal> {
        self.writer.call(move |tx| create(tx, &new, &hash)).await
    }

    /// Gives a token another secret; the old one ends at once.
    pub async fn rotate_token(&self, id: i64, hash: Hash) -> Result<TokenView, Refusal> {
        self.writer
            .call(move |tx| {
                let changed = tx
                    .db
                    .prepare_cached(
                        "UPDATE token SET hash = ?2, last_used_ms = NULL WHERE id = ?1",
                    )?
                    .execute(params![id, hex(&hash)])?;
                if changed == 0 {
                    return Err(Refusal::not_found("token", id).into());
                }
                // The old secret made their links.
                tx.db
                    .prepare_cached("DELETE FROM ui_session WHERE token_id = ?1")?
                    .execute([id])?;
                get(tx, id)
            })
            .await
    }

    /// Ends a token.
    pub async fn revoke_token(&self, id: i64) -> Result<TokenView, Refusal> {
        self.writer
            .call(move |tx| {
                let view = get(tx, id)?;
                tx.db.prepare_cached("DELETE FROM token WHERE id = ?1")?.execute([id])?;
                Ok(view)
            })
            .await
    }

    /// Notes when tokens were last used.
    pub async fn note_token_uses(&self, uses: Vec<(i64, i64)>) -> Result<(), Refusal> {
        self.writer
            .call(move |tx| {
                let mut statement = tx.db.prepare_cached(
                    "UPDATE token SET last_used_ms = max(coalesce(last_used_ms, 0), ?2) WHERE id = ?1",
                )?;
                for (id, at) in uses {
                    statement.execute([id, at])?;
                }
                Ok(())
            })
            .await
    }
}

fn create(tx: &Tx<'_>, new: &CreateToken, hash: &Hash) -> Result<TokenView, Failed> {
    for (field, text) in [("user", Some(&new.user)), ("name", new.name.as_ref())] {
        let Some(text) = text else { continue };
        names::check_line(field, text)?;
        if text.trim().is_empty() || text.chars().count() > LONGEST {
            let message = format!("`{field}` has 1 to {LONGEST} characters");
            return Err(Refusal::invalid(field, message).into());
        }
    }
    if let Some(seconds) = new.expires_seconds.filter(|seconds| *seconds < 1) {
        let message = format!("`expires_seconds` is {seconds}; it begins with 1");
        return Err(Refusal::invalid("expires_seconds", message).into());
    }
    check_scope(tx, new)?;
    let expires = new.expires_seconds.map(|s| tx.now.saturating_add(s.saturating_mul(1000)));
    let id = tx
        .db
        .prepare_cached(
            "INSERT INTO token (user, role, name, hash, created_ms, expires_ms, workflow_id, access_group_id)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .insert(params![
            new.user,
            new.role.as_str(),
            new.name,
            hex(hash),
            tx.now,
            expires,
            new.workflow_id.map(|id| id.0),
            new.access_group_id
        ])?;
    get(tx, id)
}

/// What a token is limited to is there, and admins have no limits.
fn check_scope(tx: &Tx<'_>, new: &CreateToken) -> Result<(), Failed> {
    let CreateToken { workflow_id, access_group_id, role, .. } = new;
    let (field, what, id, sql) = match (workflow_id, access_group_id) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            let message = "a token is good for one workflow or for one group, not for both";
            return Err(Refusal::invalid("access_group_id", message).into());
        }
        (Some(id), None) => (
            "workflow_id",
            "workflow",
            id.0,
            "SELECT EXISTS (SELECT 1 FROM workflow WHERE id = ?1)",
        ),
        (None, Some(id)) => (
            "access_group_id",
            "access group",
            *id,
            "SELECT EXISTS (SELECT 1 FROM access_group WHERE id = ?1)",
        ),
    };
    if *role == Role::Admin {
        let message =
            format!("an admin's token is good for everything, so `{field}` cannot be set");
        return Err(Refusal::invalid(field, message).into());
    }
    match tx.db.prepare_cached(sql)?.query_row([id], |row| row.get(0))? {
        true => Ok(()),
        false => Err(Refusal::not_found(what, id).into()),
    }
}

fn get(tx: &Tx<'_>, id: i64) -> Result<TokenView, Failed> {
    let row = tx
        .db
        .prepare_cached("SELECT * FROM token WHERE id = ?1")?
        .query_row([id], super::read::token_view)
        .optional()?;
    row.ok_or_else(|| Refusal::not_found("token", id).into())
}

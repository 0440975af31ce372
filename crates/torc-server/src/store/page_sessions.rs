//! Sessions of the page: written here, checked in memory by the API.

use super::Store;
use super::refusal::Refusal;
use crate::secret::{Hash, hex};
use rusqlite::params;
use torc_model::api::{PageScope, UiSessionView};

impl Store {
    /// A new session; ones that are over leave with it.
    pub async fn create_page_session(
        &self,
        hash: Hash,
        scope: PageScope,
        label: Option<String>,
        seconds: i64,
        made_with: Option<i64>,
    ) -> Result<UiSessionView, Refusal> {
        self.writer
            .call(move |tx| {
                let (created_ms, expires_ms) = (tx.now, tx.now + seconds * 1000);
                tx.db
                    .prepare_cached("DELETE FROM ui_session WHERE expires_ms <= ?1")?
                    .execute([tx.now])?;
                let id = tx
                    .db
                    .prepare_cached(
                        "INSERT INTO ui_session (hash, scope, label, created_ms, expires_ms, token_id)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .insert(params![hex(&hash), scope.as_str(), label, created_ms, expires_ms, made_with])?;
                Ok(UiSessionView { id, scope, label, created_ms, expires_ms })
            })
            .await
    }

    /// Ends a session.
    pub async fn delete_page_session(&self, id: i64) -> Result<(), Refusal> {
        self.writer
            .call(move |tx| {
                let gone =
                    tx.db.prepare_cached("DELETE FROM ui_session WHERE id = ?1")?.execute([id])?;
                match gone {
                    0 => Err(Refusal::not_found("session", id).into()),
                    _ => Ok(()),
                }
            })
            .await
    }
}

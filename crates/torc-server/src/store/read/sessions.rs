//! Sessions of the page.

use super::page;
use super::{ReadError, Reader};
use torc_model::api::{PageScope, UiSessionView};

impl Reader {
    /// Every session that is not over, with the hash of its token and the person's token it was made
    /// with.
    pub async fn page_sessions(
        &self,
        now_ms: i64,
    ) -> Result<Vec<(String, (UiSessionView, Option<i64>))>, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT * FROM ui_session WHERE expires_ms > ? ORDER BY id";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([now_ms], |row| {
                let session = UiSessionView {
                    id: row.get("id")?,
                    scope: page::word(row, "scope", PageScope::parse)?,
                    label: row.get("label")?,
                    created_ms: row.get("created_ms")?,
                    expires_ms: row.get("expires_ms")?,
                };
                Ok((row.get("hash")?, (session, row.get("token_id")?)))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}

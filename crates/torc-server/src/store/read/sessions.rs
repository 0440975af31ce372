//! Sessions of the page.

use super::page;
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
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
            Ok(connection.prepare_cached(sql)?.all([now_ms], |row| {
                let session = UiSessionView {
                    id: row.get("id")?,
                    scope: page::word(row, "scope", PageScope::parse)?,
                    label: row.get("label")?,
                    created_ms: row.get("created_ms")?,
                    expires_ms: row.get("expires_ms")?,
                };
                Ok((row.get("hash")?, (session, row.get("token_id")?)))
            })?)
        })
        .await
    }
}

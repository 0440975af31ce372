//! Sessions of the page: written here, checked in memory by the API.

use super::Store;
use super::journal::access::{self, EndingSessions};
use super::refusal::Refusal;
use crate::secret::Hash;
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
                access::delete_sessions(tx.db, EndingSessions::Over(tx.now))?;
                let mut session = UiSessionView { id: 0, scope, label, created_ms, expires_ms };
                access::insert_session(tx.db, &hash, made_with, &mut session)?;
                Ok(session)
            })
            .await
    }

    /// Ends a session.
    pub async fn delete_page_session(&self, id: i64) -> Result<(), Refusal> {
        self.writer
            .call(move |tx| match access::delete_sessions(tx.db, EndingSessions::One(id))? {
                0 => Err(Refusal::not_found("session", id).into()),
                _ => Ok(()),
            })
            .await
    }
}

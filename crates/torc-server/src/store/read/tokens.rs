//! What a token is good for.

use super::{ReadError, Reader};
use crate::secret::{Hash, hex};
use rusqlite::OptionalExtension as _;
use torc_model::ids::WorkflowId;

/// What a token is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenScope {
    /// Everything.
    All,
    /// The calls of one workflow's runners and jobs.
    Workflow(WorkflowId),
}

impl Reader {
    /// The scope of the token with this hash; None when there is none.
    pub async fn find_token(&self, hash: Hash) -> Result<Option<TokenScope>, ReadError> {
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT scope, workflow_id FROM token WHERE hash = ?")?;
            let row = statement.query_row([hex(&hash)], |row| Ok((row.get(0)?, row.get(1)?)));
            let row: Option<(String, Option<i64>)> = row.optional()?;
            Ok(row.and_then(|(scope, workflow)| match (scope.as_str(), workflow) {
                ("all", None) => Some(TokenScope::All),
                ("workflow", Some(id)) => Some(TokenScope::Workflow(WorkflowId(id))),
                // A row that says neither is good for nothing.
                _ => None,
            }))
        })
        .await
    }
}

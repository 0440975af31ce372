//! Tokens of people: only their hashes are kept.

use super::journal::access::{self, EndingSessions};
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{Store, access_groups, names};
use crate::secret::Hash;
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
                if !access::rotate_token(tx.db, id, &hash)? {
                    return Err(Refusal::not_found("token", id).into());
                }
                // The old secret made their links.
                access::delete_sessions(tx.db, EndingSessions::OfToken(id))?;
                get(tx, id)
            })
            .await
    }

    /// Ends a token.
    pub async fn revoke_token(&self, id: i64) -> Result<TokenView, Refusal> {
        self.writer
            .call(move |tx| {
                let view = get(tx, id)?;
                access::delete_token(tx.db, id)?;
                Ok(view)
            })
            .await
    }

    /// Notes when tokens were last used.
    pub async fn note_token_uses(&self, uses: Vec<(i64, i64)>) -> Result<(), Refusal> {
        self.writer
            .call(move |tx| {
                for (id, at) in uses {
                    access::token_used(tx.db, id, at)?;
                }
                Ok(())
            })
            .await
    }
}

fn create(tx: &mut Tx<'_>, new: &CreateToken, hash: &Hash) -> Result<TokenView, Failed> {
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
    let id = access::insert_token(tx.db, new, hash, tx.now, expires)?;
    get(tx, id)
}

/// What a token is limited to is there, and admins have no limits.
fn check_scope(tx: &mut Tx<'_>, new: &CreateToken) -> Result<(), Failed> {
    let field = match (new.workflow_id, new.access_group_id) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            let message = "a token is good for one workflow or for one group, not for both";
            return Err(Refusal::invalid("access_group_id", message).into());
        }
        (Some(_), None) => "workflow_id",
        (None, Some(_)) => "access_group_id",
    };
    if new.role == Role::Admin {
        let message =
            format!("an admin's token is good for everything, so `{field}` cannot be set");
        return Err(Refusal::invalid(field, message).into());
    }
    if let Some(id) = new.workflow_id {
        tx.workflow(id)?;
    }
    if let Some(id) = new.access_group_id {
        access_groups::get(tx, id)?;
    }
    Ok(())
}

fn get(tx: &Tx<'_>, id: i64) -> Result<TokenView, Failed> {
    access::token(tx.db, id)?.ok_or_else(|| Refusal::not_found("token", id).into())
}

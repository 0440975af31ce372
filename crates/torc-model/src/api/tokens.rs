//! Tokens of people, and what was done with them.

use crate::ids::WorkflowId;
use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

words! {
    /// What a person's token is good for. Each role may do what those before it may.
    Role {
        /// To look at one's own workflows and those of one's groups, but not at secrets.
        Read = "read",
        /// To create workflows, and to run and change one's own and those of one's groups.
        Operate = "operate",
        /// Everything, of all users, among it tokens, webhooks, limits and the database.
        Admin = "admin",
    }
}

/// Asks for a new token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Who it is for; workflows that are created with it belong to them.
    pub user: String,
    /// What it is good for.
    pub role: Role,
    /// What it is for, to tell tokens of one user apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long it is good; without it until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<i64>,
    /// Good for this workflow only, of any owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Good for the workflows of this group only, of any owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_group_id: Option<i64>,
}

/// A token, without the secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Id of the token.
    pub id: i64,
    /// Who it is for.
    pub user: String,
    /// What it is good for.
    pub role: Role,
    /// What it is for.
    pub name: Option<String>,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// Good until; absent: until it is revoked.
    pub expires_ms: Option<i64>,
    /// When it was last used, to a minute.
    pub last_used_ms: Option<i64>,
    /// Good for this workflow only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Good for the workflows of this group only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_group_id: Option<i64>,
}

/// A new token. The secret is shown this once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    /// The secret.
    pub token: String,
    /// The rest.
    #[serde(flatten)]
    pub view: TokenView,
}

/// A change that was made by a person, or in their name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// Grows with every entry.
    pub id: i64,
    /// When, ms since 1970.
    pub at_ms: i64,
    /// Whose token it was; `owner` and `page` for those of the server's owner and of a page.
    pub user: String,
    /// The token, if it has an id.
    pub token_id: Option<i64>,
    /// Method of the request.
    pub method: String,
    /// Path of the request.
    pub path: String,
    /// The request, as the log names it.
    pub request_id: String,
}

//! Groups of users who share workflows.

use crate::ids::WorkflowId;
use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

words! {
    /// What a user is in a group.
    GroupRole {
        /// Sees the group's workflows, and changes them if their token may.
        Member = "member",
        /// Also says who is in the group.
        Admin = "admin",
    }
}

/// Asks for a new group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAccessGroup {
    /// What specs and commands call it.
    pub name: String,
    /// Free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// A group of users.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AccessGroupView {
    /// Id of the group.
    pub id: i64,
    /// What specs and commands call it.
    pub name: String,
    /// Free text.
    pub description: Option<String>,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// How many users are in it.
    pub member_count: i64,
    /// How many workflows they share.
    pub workflow_count: i64,
}

/// Puts a user into a group, or gives them another role in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    /// The user, as their tokens name them.
    pub user_name: String,
    /// What they are in it; `member` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<GroupRole>,
}

/// A user in a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    /// The group.
    pub group_id: i64,
    /// The user.
    pub user_name: String,
    /// What they are in it.
    pub role: GroupRole,
}

/// A workflow that a group shares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SharedWorkflow {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// The group.
    pub group_id: i64,
}

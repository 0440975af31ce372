//! Groups of users.

use super::page;
use super::{ReadError, Reader};
use crate::store::rows::Rows as _;
use rusqlite::{Row, params};
use torc_model::api::{AccessGroupView, GroupRole, MemberView};
use torc_model::ids::WorkflowId;

/// Groups; a condition follows.
pub const ACCESS_GROUPS: &str = "SELECT g.id, g.name, g.description, g.created_ms, \
    (SELECT count(*) FROM access_group_member m WHERE m.group_id = g.id) AS member_count, \
    (SELECT count(*) FROM workflow_access_group w WHERE w.group_id = g.id) AS workflow_count \
    FROM access_group g";
/// A row of a group.
pub fn access_group_view(row: &Row<'_>) -> rusqlite::Result<AccessGroupView> {
    Ok(AccessGroupView {
        id: row.get("id")?,
        name: row.get("name")?,
        description: row.get("description")?,
        created_ms: row.get("created_ms")?,
        member_count: row.get("member_count")?,
        workflow_count: row.get("workflow_count")?,
    })
}

impl Reader {
    /// The groups that a user is in; None: all of them.
    pub async fn access_groups(
        &self,
        user: Option<String>,
    ) -> Result<Vec<AccessGroupView>, ReadError> {
        self.read(move |connection| {
            let sql = format!(
                "{ACCESS_GROUPS} WHERE ?1 IS NULL OR EXISTS (SELECT 1 FROM access_group_member m \
                 WHERE m.group_id = g.id AND m.user = ?1) ORDER BY g.name"
            );
            Ok(connection.prepare_cached(&sql)?.all([user], access_group_view)?)
        })
        .await
    }

    /// One group, if this user is in it; None: for every one.
    pub async fn access_group(
        &self,
        id: i64,
        seen_by: Option<String>,
    ) -> Result<AccessGroupView, ReadError> {
        self.read(move |connection| {
            let sql = format!(
                "{ACCESS_GROUPS} WHERE g.id = ?1 AND (?2 IS NULL OR EXISTS (SELECT 1 FROM access_group_member m \
                 WHERE m.group_id = g.id AND m.user = ?2))"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let found = statement.find(params![id, seen_by], access_group_view)?;
            found.ok_or(ReadError::NotFound { what: "access group", id })
        })
        .await
    }

    /// Who is in a group.
    pub async fn access_group_members(&self, id: i64) -> Result<Vec<MemberView>, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT group_id, user, role FROM access_group_member WHERE group_id = ?1 \
                       ORDER BY user";
            Ok(connection.prepare_cached(sql)?.all([id], |row| {
                Ok(MemberView {
                    group_id: row.get("group_id")?,
                    user_name: row.get("user")?,
                    role: page::word(row, "role", GroupRole::parse)?,
                })
            })?)
        })
        .await
    }

    /// The groups that a workflow is shared with.
    pub async fn groups_of_workflow(
        &self,
        id: WorkflowId,
    ) -> Result<Vec<AccessGroupView>, ReadError> {
        self.read(move |connection| {
            let sql = format!(
                "{ACCESS_GROUPS} JOIN workflow_access_group s ON s.group_id = g.id \
                 WHERE s.workflow_id = ?1 ORDER BY g.name"
            );
            Ok(connection.prepare_cached(&sql)?.all([id.0], access_group_view)?)
        })
        .await
    }
}

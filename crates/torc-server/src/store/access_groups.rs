//! Groups of users, who is in them, and which workflows they share.

use super::names;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{Maker, Store};
use rusqlite::{OptionalExtension as _, params};
use torc_model::api::{
    AccessGroupView, AddMember, CreateAccessGroup, ErrorCode, GroupRole, MemberView, SharedWorkflow,
};
use torc_model::ids::WorkflowId;

/// A name of more characters is a mistake.
const LONGEST: usize = 200;

impl Store {
    /// A new group, without members.
    pub async fn create_access_group(
        &self,
        new: CreateAccessGroup,
    ) -> Result<AccessGroupView, Refusal> {
        self.writer.call(move |tx| create(tx, &new)).await
    }

    /// Ends a group, and with it the tokens that were good for it only. Workflows stay.
    pub async fn delete_access_group(&self, id: i64) -> Result<AccessGroupView, Refusal> {
        self.writer
            .call(move |tx| {
                let view = get(tx, id)?;
                tx.db.prepare_cached("DELETE FROM access_group WHERE id = ?1")?.execute([id])?;
                Ok(view)
            })
            .await
    }

    /// Puts a user into a group, or gives them another role in it. `by` must administer the group;
    /// None: may change every group.
    pub async fn add_member(
        &self,
        group: i64,
        new: AddMember,
        by: Option<String>,
    ) -> Result<MemberView, Refusal> {
        self.writer.call(move |tx| add_member(tx, group, &new, by.as_deref())).await
    }

    /// Takes a user out of a group. Everyone may leave.
    pub async fn remove_member(
        &self,
        group: i64,
        user: String,
        by: Option<String>,
    ) -> Result<MemberView, Refusal> {
        self.writer
            .call(move |tx| {
                if by.as_ref() != Some(&user) {
                    check_admin(tx, group, by.as_deref())?;
                }
                let Some(role) = role_in(tx, group, &user)? else {
                    let message = format!("{user} is not in access group {group}");
                    return Err(Refusal::unknown(message).into());
                };
                tx.db
                    .prepare_cached(
                        "DELETE FROM access_group_member WHERE group_id = ?1 AND user = ?2",
                    )?
                    .execute(params![group, user])?;
                Ok(MemberView { group_id: group, user_name: user, role })
            })
            .await
    }

    /// Shares a workflow with a group. `by` must be in it; None: any group. Safe to repeat.
    pub async fn share(
        &self,
        workflow: WorkflowId,
        group: i64,
        by: Option<String>,
    ) -> Result<SharedWorkflow, Refusal> {
        self.writer
            .call(move |tx| {
                get(tx, group)?;
                if let Some(user) = &by
                    && role_in(tx, group, user)?.is_none()
                {
                    return Err(Refusal::not_found("access group", group).into());
                }
                // Says so if it is not there.
                tx.workflow(workflow)?;
                insert(tx, workflow, group)?;
                Ok(SharedWorkflow { workflow_id: workflow, group_id: group })
            })
            .await
    }

    /// Shares a workflow no longer with a group.
    pub async fn unshare(
        &self,
        workflow: WorkflowId,
        group: i64,
    ) -> Result<SharedWorkflow, Refusal> {
        self.writer
            .call(move |tx| {
                let gone = tx
                    .db
                    .prepare_cached(
                        "DELETE FROM workflow_access_group WHERE workflow_id = ?1 AND group_id = ?2",
                    )?
                    .execute([workflow.0, group])?;
                if gone == 0 {
                    let message = format!("workflow {workflow} is not in access group {group}");
                    return Err(Refusal::unknown(message).into());
                }
                Ok(SharedWorkflow { workflow_id: workflow, group_id: group })
            })
            .await
    }
}

fn create(tx: &Tx<'_>, new: &CreateAccessGroup) -> Result<AccessGroupView, Failed> {
    names::check_name("name", &new.name)?;
    if new.name.chars().count() > LONGEST {
        let message = format!("`name` has 1 to {LONGEST} characters");
        return Err(Refusal::invalid("name", message).into());
    }
    if new.name.bytes().all(|b| b.is_ascii_digit()) {
        let message = "the name of a group is not a number, so that it is not taken for an id";
        return Err(Refusal::invalid("name", message).into());
    }
    if find(tx, &new.name)?.is_some() {
        let message = format!("there is an access group `{}` already", new.name);
        return Err(Refusal::conflict(ErrorCode::NameTaken, message).into());
    }
    let id = tx
        .db
        .prepare_cached(
            "INSERT INTO access_group (name, description, created_ms) VALUES (?1, ?2, ?3)",
        )?
        .insert(params![new.name, new.description, tx.now])?;
    get(tx, id)
}

fn get(tx: &Tx<'_>, id: i64) -> Result<AccessGroupView, Failed> {
    let row = tx
        .db
        .prepare_cached(super::read::ACCESS_GROUP)?
        .query_row([id], super::read::access_group_view)
        .optional()?;
    row.ok_or_else(|| Refusal::not_found("access group", id).into())
}

fn find(tx: &Tx<'_>, name: &str) -> rusqlite::Result<Option<i64>> {
    tx.db
        .prepare_cached("SELECT id FROM access_group WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

fn role_in(tx: &Tx<'_>, group: i64, user: &str) -> rusqlite::Result<Option<GroupRole>> {
    let role: Option<String> = tx
        .db
        .prepare_cached("SELECT role FROM access_group_member WHERE group_id = ?1 AND user = ?2")?
        .query_row(params![group, user], |row| row.get(0))
        .optional()?;
    Ok(role.as_deref().and_then(GroupRole::parse))
}

fn check_admin(tx: &Tx<'_>, group: i64, by: Option<&str>) -> Result<(), Failed> {
    get(tx, group)?;
    let Some(user) = by else { return Ok(()) };
    match role_in(tx, group, user)? {
        Some(GroupRole::Admin) => Ok(()),
        Some(GroupRole::Member) => {
            let message = "only admins of the group say who is in it";
            Err(Refusal::forbidden(message).into())
        }
        // To those who are not in it, it is not there.
        None => Err(Refusal::not_found("access group", group).into()),
    }
}

fn add_member(
    tx: &Tx<'_>,
    group: i64,
    new: &AddMember,
    by: Option<&str>,
) -> Result<MemberView, Failed> {
    check_admin(tx, group, by)?;
    names::check_line("user_name", &new.user_name)?;
    if new.user_name.trim().is_empty() || new.user_name.chars().count() > LONGEST {
        let message = format!("`user_name` has 1 to {LONGEST} characters");
        return Err(Refusal::invalid("user_name", message).into());
    }
    let role = new.role.unwrap_or(GroupRole::Member);
    tx.db
        .prepare_cached(
            "INSERT INTO access_group_member (group_id, user, role) VALUES (?1, ?2, ?3)
             ON CONFLICT (group_id, user) DO UPDATE SET role = excluded.role",
        )?
        .execute(params![group, new.user_name, role.as_str()])?;
    Ok(MemberView { group_id: group, user_name: new.user_name.clone(), role })
}

fn insert(tx: &Tx<'_>, workflow: WorkflowId, group: i64) -> rusqlite::Result<()> {
    tx.db
        .prepare_cached(
            "INSERT OR IGNORE INTO workflow_access_group (workflow_id, group_id) VALUES (?1, ?2)",
        )?
        .execute([workflow.0, group])?;
    Ok(())
}

/// Shares a new workflow with the groups that its spec names, and with that of the token it is made
/// with. Gives back warnings.
pub fn share_new(
    tx: &Tx<'_>,
    workflow: WorkflowId,
    names: &[String],
    maker: Option<&Maker>,
) -> Result<Vec<String>, Failed> {
    if let Some(group) = maker.and_then(|maker| maker.group) {
        insert(tx, workflow, group)?;
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if maker.is_none() && is_single_user(tx)? {
        let text = "`access_groups` has no effect: this server has one user";
        return Ok(vec![text.to_owned()]);
    }
    let known = known_to(tx, maker)?;
    for name in names {
        match known.iter().find(|(_, known)| known == name) {
            Some((group, _)) => insert(tx, workflow, *group)?,
            None => {
                let names = known.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>();
                let hint = match torc_spec::nearest(name, names) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "`torc access-groups list` shows those you are in".to_owned(),
                };
                let message = format!("there is no access group `{name}`");
                return Err(Refusal::invalid("access_groups", message).hint(hint).into());
            }
        }
    }
    Ok(Vec::new())
}

/// Shares a workflow as its new spec says: groups that it names no longer lose it, new ones get it. What
/// was shared by command and stands in no spec stays. Gives back warnings.
pub fn share_again(
    tx: &Tx<'_>,
    workflow: WorkflowId,
    names: &[String],
    by: Option<&Maker>,
) -> Result<Vec<String>, Failed> {
    #[derive(serde::Deserialize)]
    struct Shared {
        #[serde(default)]
        access_groups: Vec<String>,
    }
    let (spec, owner): (String, String) = tx
        .db
        .prepare_cached("SELECT spec, user FROM workflow WHERE id = ?1")?
        .query_row([workflow.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| Refusal::not_found("workflow", workflow.0))?;
    let before: Shared = super::load::parse(&spec)?;
    let is_new = |name: &&String| !before.access_groups.contains(name);
    let added: Vec<String> = names.iter().filter(is_new).cloned().collect();
    let removed: Vec<&String> =
        before.access_groups.iter().filter(|name| !names.contains(name)).collect();
    if added.is_empty() && removed.is_empty() {
        return Ok(Vec::new());
    }
    if by.is_some_and(|by| !by.is_admin && by.user != owner) {
        let message =
            format!("`access_groups` has changed, and workflow {workflow} belongs to {owner}");
        let hint = "only its owner and admins share it; leave `access_groups` as it was";
        return Err(Refusal::forbidden(message).hint(hint).into());
    }
    for name in removed {
        tx.db
            .prepare_cached(
                "DELETE FROM workflow_access_group WHERE workflow_id = ?1
                 AND group_id = (SELECT id FROM access_group WHERE name = ?2)",
            )?
            .execute(params![workflow.0, name])?;
    }
    share_new(tx, workflow, &added, by)
}

/// There are neither people with tokens nor groups.
fn is_single_user(tx: &Tx<'_>) -> rusqlite::Result<bool> {
    tx.db
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM token) AND NOT EXISTS (SELECT 1 FROM access_group)",
        )?
        .query_row([], |row| row.get(0))
}

/// The groups that the maker of a workflow may share it with.
fn known_to(tx: &Tx<'_>, maker: Option<&Maker>) -> rusqlite::Result<Vec<(i64, String)>> {
    let user = maker.filter(|maker| !maker.is_admin).map(|maker| &maker.user);
    tx.db
        .prepare_cached(
            "SELECT g.id, g.name FROM access_group g WHERE ?1 IS NULL OR EXISTS
             (SELECT 1 FROM access_group_member m WHERE m.group_id = g.id AND m.user = ?1) ORDER BY g.name",
        )?
        .query_map([user], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

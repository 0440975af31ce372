//! Groups of users, who is in them, and which workflows they share.

use super::difference::Head;
use super::journal::access;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use super::{Maker, Store, load, lookups, names};
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
                access::delete_group(tx.db, id)?;
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
                let Some(role) = access::role_in(tx.db, group, &user)? else {
                    let message = format!("{user} is not in access group {group}");
                    return Err(Refusal::unknown(message).into());
                };
                access::delete_member(tx.db, group, &user)?;
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
                    && access::role_in(tx.db, group, user)?.is_none()
                {
                    return Err(Refusal::not_found("access group", group).into());
                }
                // Says so if it is not there.
                tx.workflow(workflow)?;
                access::share(tx.db, workflow, group)?;
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
                if !access::unshare(tx.db, workflow, group)? {
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
    let id = access::insert_group(tx.db, new, tx.now)?;
    get(tx, id)
}

/// One group.
pub fn get(tx: &Tx<'_>, id: i64) -> Result<AccessGroupView, Failed> {
    access::group(tx.db, id)?.ok_or_else(|| Refusal::not_found("access group", id).into())
}

fn find(tx: &Tx<'_>, name: &str) -> rusqlite::Result<Option<i64>> {
    let groups = access::groups_of(tx.db, None)?;
    Ok(groups.into_iter().find(|(_, known)| known == name).map(|(id, _)| id))
}

fn check_admin(tx: &Tx<'_>, group: i64, by: Option<&str>) -> Result<(), Failed> {
    get(tx, group)?;
    let Some(user) = by else { return Ok(()) };
    match access::role_in(tx.db, group, user)? {
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
    access::put_member(tx.db, group, &new.user_name, role)?;
    Ok(MemberView { group_id: group, user_name: new.user_name.clone(), role })
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
        access::share(tx.db, workflow, group)?;
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if maker.is_none() && access::is_single_user(tx.db)? {
        let text = "`access_groups` has no effect: this server has one user";
        return Ok(vec![text.to_owned()]);
    }
    // Those that the maker may share it with.
    let user = maker.filter(|maker| !maker.is_admin).map(|maker| maker.user.as_str());
    let known = access::groups_of(tx.db, user)?;
    for name in names {
        match known.iter().find(|(_, known)| known == name) {
            Some((group, _)) => access::share(tx.db, workflow, *group)?,
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
    let before: Shared = load::parse(&Head::read(tx.db, workflow)?.spec)?;
    let owner = lookups::name_and_user(tx.db, workflow)?.map(|(_, user)| user).unwrap_or_default();
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
        if let Some(group) = find(tx, name)? {
            access::unshare(tx.db, workflow, group)?;
        }
    }
    share_new(tx, workflow, &added, by)
}

//! `torc access-groups`: users who share workflows.

use super::Context;
use super::references;
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape};
use clap::Subcommand;
use torc_client::Client;
use torc_model::api::{
    AccessGroupView, AddMember, CreateAccessGroup, GroupRole, MemberView, Page, SharedWorkflow,
};
use torc_spec::nearest;

/// Make groups of users, and share workflows with them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc access-groups create climate
  torc access-groups add-user climate alice
  torc access-groups add-user climate bob --role admin    bob may add others
  torc access-groups add-workflow latest climate
  torc access-groups list-members climate

A workflow is seen by its owner, by the members of its groups, and by admins. Members change it if their token's role
allows that; only its owner deletes or shares it. `access_groups: [climate]` in a spec shares it from the start.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make a group (admins)
    Create {
        /// What specs and commands call it
        name: String,
        /// Free text
        #[arg(short, long)]
        description: Option<String>,
    },
    /// Show a group
    Get(Group),
    /// List the groups that you are in; admins see all
    List,
    /// End a group, with the tokens that are good for it only; its workflows stay (admins)
    Delete(Group),
    /// Put a user into a group, or give them another role in it
    AddUser {
        #[command(flatten)]
        group: Group,
        /// The user, as their tokens name them
        user: String,
        /// `member`, or `admin` to let them say who is in the group
        #[arg(long, default_value = "member", value_parser = role)]
        role: GroupRole,
    },
    /// Take a user out of a group
    RemoveUser {
        #[command(flatten)]
        group: Group,
        /// The user
        user: String,
    },
    /// List who is in a group
    ListMembers(Group),
    /// List the groups that a user is in
    ListUserGroups {
        /// The user
        user: String,
    },
    /// Share a workflow with a group
    AddWorkflow(Shared),
    /// Share a workflow no longer with a group
    RemoveWorkflow(Shared),
    /// List the groups that a workflow is shared with
    ListWorkflowGroups {
        /// Workflow: its id, its name, or `latest`
        #[arg(default_value = references::LATEST)]
        workflow: String,
    },
}

#[derive(clap::Args, Debug)]
struct Group {
    /// Group: its id or its name
    group: String,
}

#[derive(clap::Args, Debug)]
struct Shared {
    /// Workflow: its id, its name, or `latest`
    workflow: String,
    #[command(flatten)]
    group: Group,
}

fn role(text: &str) -> std::result::Result<GroupRole, String> {
    GroupRole::parse(text).ok_or_else(|| "the roles are member and admin".into())
}

impl Group {
    /// The group as a part of a path.
    async fn path(&self, client: &Client) -> Result<String> {
        Ok(format!("/access_groups/{}", find(client, &self.group).await?))
    }
}

/// The id of the group with this id or name.
pub async fn find(client: &Client, text: &str) -> Result<i64> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let groups: Page<AccessGroupView> = client.get("/access_groups").await?;
    if let Some(found) = groups.items.iter().find(|group| group.name == text) {
        return Ok(found.id);
    }
    let message = format!("there is no access group `{}`", escape::line(text));
    let known = groups.items.iter().map(|group| group.name.as_str()).collect::<Vec<_>>();
    let hint = match nearest(text, known) {
        Some(meant) => format!("did you mean `{}`?", escape::line(meant)),
        None => "`torc access-groups list` shows those you are in".to_owned(),
    };
    Err(Error::usage_hint(message, hint))
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context
            .with_server(Access::Create, async |client| self.command.run(context, client).await)?;
        Ok(Exit::Success)
    }
}

impl Command {
    async fn run(self, context: &Context, client: &Client) -> Result<()> {
        match self {
            Self::Create { name, description } => {
                let new = CreateAccessGroup { name, description };
                let made: AccessGroupView = client.post("/access_groups", &new).await?;
                context.output.value(&made, |made| {
                    format!("made access group {} `{}`\n", made.id, escape::line(&made.name))
                })
            }
            Self::Get(group) => {
                let view: AccessGroupView = client.get(&group.path(client).await?).await?;
                context
                    .output
                    .value(&view, |view| groups_table(std::slice::from_ref(view)).render())
            }
            Self::List => list_groups(context, client.get("/access_groups").await?),
            Self::Delete(group) => {
                let gone: AccessGroupView = client.delete(&group.path(client).await?).await?;
                context.output.value(&gone, |gone| {
                    format!("deleted access group {} `{}`\n", gone.id, escape::line(&gone.name))
                })
            }
            Self::AddUser { group, user, role } => {
                let path = format!("{}/members", group.path(client).await?);
                let new = AddMember { user_name: user, role: Some(role) };
                let member: MemberView = client.post(&path, &new).await?;
                context.output.value(&member, |member| {
                    let (user, role) = (escape::line(&member.user_name), member.role);
                    format!("{user} is in access group {} as {role}\n", member.group_id)
                })
            }
            Self::RemoveUser { group, user } => {
                let user = torc_client::segment(&user);
                let path = format!("{}/members/{user}", group.path(client).await?);
                let gone: MemberView = client.delete(&path).await?;
                context.output.value(&gone, |gone| {
                    let user = escape::line(&gone.user_name);
                    format!("{user} is no longer in access group {}\n", gone.group_id)
                })
            }
            Self::ListMembers(group) => {
                let path = format!("{}/members", group.path(client).await?);
                let page: Page<MemberView> = client.get(&path).await?;
                context.output.list("members", &page.items, page.total_count, || {
                    let mut table = Table::new(["user", "role"]);
                    for member in &page.items {
                        let role = Field::text(member.role.as_str());
                        table.row([Field::text(&member.user_name), role]);
                    }
                    table
                })
            }
            Self::ListUserGroups { user } => {
                let path = format!("/users/{}/access_groups", torc_client::segment(&user));
                list_groups(context, client.get(&path).await?)
            }
            Self::AddWorkflow(shared) => {
                let done: SharedWorkflow =
                    client.put(&shared.path(client).await?, &serde_json::json!({})).await?;
                context.output.value(&done, |done| {
                    let SharedWorkflow { workflow_id, group_id } = done;
                    format!("workflow {workflow_id} is shared with access group {group_id}\n")
                })
            }
            Self::RemoveWorkflow(shared) => {
                let done: SharedWorkflow = client.delete(&shared.path(client).await?).await?;
                context.output.value(&done, |done| {
                    let SharedWorkflow { workflow_id, group_id } = done;
                    format!(
                        "workflow {workflow_id} is no longer shared with access group {group_id}\n"
                    )
                })
            }
            Self::ListWorkflowGroups { workflow } => {
                let id = references::workflow(client, &workflow).await?.id;
                list_groups(context, client.get(&format!("/workflows/{id}/access_groups")).await?)
            }
        }
    }
}

impl Shared {
    async fn path(&self, client: &Client) -> Result<String> {
        let workflow = references::workflow(client, &self.workflow).await?.id;
        let group = find(client, &self.group.group).await?;
        Ok(format!("/workflows/{workflow}/access_groups/{group}"))
    }
}

fn groups_table(groups: &[AccessGroupView]) -> Table {
    let mut table = Table::new(["id", "name", "members", "workflows", "description"]);
    for group in groups {
        table.row([
            Field::number(group.id),
            Field::text(&group.name),
            Field::number(group.member_count),
            Field::number(group.workflow_count),
            Field::text(group.description.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn list_groups(context: &Context, page: Page<AccessGroupView>) -> Result<()> {
    context
        .output
        .list("access_groups", &page.items, page.total_count, || groups_table(&page.items))
}

//! `torc tokens`: tokens of people, with a role and an end.

use super::Context;
use super::session::Access;
use super::{access_groups, references};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, escape, human};
use clap::Subcommand;
use torc_client::Client;
use torc_model::api::{CreateToken, Page, Role, TokenCreated, TokenView};

/// Give people tokens of their own, and take them back
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc tokens create --user alice --role read --expires 30d > alice.token
  torc tokens list                    whose they are, and when they were last used
  torc tokens rotate 3                another secret; the old one ends at once
  torc tokens revoke 3

A secret is shown once; the server keeps its hash only. Roles: `read` looks, `operate` also creates, runs and changes
workflows, both at the user's own and at those of their groups (`torc access-groups`); `admin` may do everything.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Make a token; its secret goes to standard output
    Create(CreateTokenArgs),
    /// List the tokens, without their secrets
    List,
    /// Give a token another secret
    Rotate(OneTokenArgs),
    /// End a token
    Revoke(OneTokenArgs),
}

#[derive(clap::Args, Debug)]
struct CreateTokenArgs {
    /// Who it is for; workflows that are created with it belong to them
    #[arg(long)]
    user: String,

    /// What it is good for: `read`, `operate` or `admin`
    #[arg(long, value_parser = role)]
    role: Role,

    /// What it is for, to tell tokens of one user apart
    #[arg(long)]
    name: Option<String>,

    /// How long it is good, such as `30d` [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<i64>,

    /// Good for this workflow only, of any owner: its id, its name, or `latest`
    #[arg(long, value_name = "WORKFLOW", conflicts_with = "group")]
    workflow: Option<String>,

    /// Good for the workflows of this group only, of any owner: its id or its name
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

#[derive(clap::Args, Debug)]
struct OneTokenArgs {
    /// The token's id, as `torc tokens list` shows it
    id: i64,
}

fn role(text: &str) -> std::result::Result<Role, String> {
    Role::parse(text).ok_or_else(|| "the roles are read, operate and admin".into())
}

fn time(text: &str) -> std::result::Result<i64, String> {
    let parsed = torc_model::units::Runtime::parse(text);
    let time = parsed.map_err(|error| format!("{error}; a time is written as 30d or 12h"))?;
    i64::try_from(time.0).map_err(|_| "that is longer than a clock can tell".into())
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Create, async |client| match self.command {
            Command::Create(args) => args.execute(context, client).await,
            Command::List => list(context, client).await,
            Command::Rotate(one) => {
                let path = format!("/tokens/{}/rotate", one.id);
                let made: TokenCreated = client.post(&path, &serde_json::json!({})).await?;
                show(context, &made)
            }
            Command::Revoke(one) => {
                let gone: TokenView = client.delete(&format!("/tokens/{}", one.id)).await?;
                context.output.value(&gone, |gone| {
                    format!("revoked token {} of {}\n", gone.id, escape::line(&gone.user))
                })
            }
        })?;
        Ok(Exit::Success)
    }
}

impl CreateTokenArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow_id = match &self.workflow {
            Some(text) => Some(references::workflow(client, text).await?.id),
            None => None,
        };
        let access_group_id = match &self.group {
            Some(text) => Some(access_groups::find(client, text).await?),
            None => None,
        };
        let new = CreateToken {
            user: self.user,
            role: self.role,
            name: self.name,
            expires_seconds: self.expires,
            workflow_id,
            access_group_id,
        };
        show(context, &client.post("/tokens", &new).await?)
    }
}

/// The secret as data, the rest as talk, so that the output can become the file of a token.
fn show(context: &Context, made: &TokenCreated) -> Result<()> {
    context.output.value(made, |made| format!("{}\n", made.token))?;
    if !context.output.is_json() {
        let view = &made.view;
        let until = view.expires_ms.map_or_else(
            || "until it is revoked".to_owned(),
            |end| format!("until {}", human::local_time(end)),
        );
        context.output.talk(format_args!(
            "token {} of {} ({}), good {until}; it is not shown again",
            view.id,
            escape::line(&view.user),
            view.role
        ));
    }
    Ok(())
}

/// What a token is limited to.
fn limit(token: &TokenView) -> String {
    match (token.workflow_id, token.access_group_id) {
        (Some(id), _) => format!("workflow {id}"),
        (None, Some(id)) => format!("group {id}"),
        (None, None) => String::new(),
    }
}

async fn list(context: &Context, client: &Client) -> Result<()> {
    let page: Page<TokenView> = client.get("/tokens").await?;
    context.output.list("tokens", &page.items, page.total_count, || {
        let mut table =
            Table::new(["id", "user", "role", "for", "name", "created", "expires", "last used"]);
        let when = |ms: Option<i64>| ms.map(human::local_time).unwrap_or_default();
        for token in &page.items {
            table.row([
                Field::number(token.id),
                Field::text(&token.user),
                Field::text(token.role.as_str()),
                Field::text(limit(token)),
                Field::text(token.name.as_deref().unwrap_or_default()),
                Field::text(human::local_time(token.created_ms)),
                Field::text(when(token.expires_ms)),
                Field::text(when(token.last_used_ms)),
            ]);
        }
        table
    })
}

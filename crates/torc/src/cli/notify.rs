//! `torc notify`: messages to people when a workflow ends, fails or waits for them.

use super::Context;
use super::references;
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape};
use clap::Subcommand;
use torc_client::Client;
use torc_model::api::{CreateNotification, NotificationView, NotifyEvent, NotifyKind, Page};
use torc_model::ids::WorkflowId;

/// Tell people when a workflow ends, fails or waits for them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc notify add slack https://hooks.slack.com/services/T0/B0/x
  torc notify add ntfy https://ntfy.sh/my-topic --on failure --on end --workflow latest
  torc notify add mail me@example.org --smtp relay.example.org
  torc notify add command /usr/local/bin/tell --allow-private
  torc notify test 1
  torc run sweep.yaml --notify ntfy:https://ntfy.sh/my-topic

A person gets one message per group of events, not one per job: the end of a workflow (`end`), the first failure of a
run (`failure`), and failures that wait for a verdict (`verdict`). Messages wait in the server's outbox until they are delivered.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Ask for messages
    Add(Box<Add>),
    /// List who is told of what
    List,
    /// Send a message now, to see that it arrives
    Test(OneNotificationArgs),
    /// End messages
    #[command(visible_alias = "delete")]
    Remove(OneNotificationArgs),
}

#[derive(clap::Args, Debug)]
struct Add {
    /// How: `slack`, `teams`, `ntfy`, `mail` or `command`
    #[arg(value_parser = kind)]
    kind: NotifyKind,

    /// Where: the URL of the channel or topic, an address, or a program
    #[arg(value_name = "URL|ADDRESS|PROGRAM")]
    target: String,

    /// Arguments of the program
    #[arg(last = true)]
    arguments: Vec<String>,

    /// Of what: `end`, `failure` or `verdict`; may be repeated [default: all]
    #[arg(long = "on", value_name = "EVENT", value_parser = event)]
    events: Vec<NotifyEvent>,

    /// Only of this workflow: its id, its name, or `latest`
    #[arg(short, long)]
    workflow: Option<String>,

    /// The relay that takes mail, without a password; `smtps://` or `starttls://` encrypt [default: localhost:25]
    #[arg(long, value_name = "[SCHEME://]HOST[:PORT]")]
    smtp: Option<String>,

    /// The sender of mail
    // Given apart: rustdoc takes `[default: torc@...]` for a link.
    #[arg(long, value_name = "ADDRESS", help = "The sender of mail [default: torc@localhost]")]
    from: Option<String>,

    /// Loopback and private addresses, and plain http, are allowed
    #[arg(long)]
    allow_private: bool,
}

#[derive(clap::Args, Debug)]
struct OneNotificationArgs {
    /// Its id, as `torc notify list` shows it
    id: i64,
}

fn kind(text: &str) -> std::result::Result<NotifyKind, String> {
    NotifyKind::parse(text).ok_or_else(|| "slack, teams, ntfy, mail or command".into())
}

fn event(text: &str) -> std::result::Result<NotifyEvent, String> {
    NotifyEvent::parse(text).ok_or_else(|| "end, failure or verdict".into())
}

/// A target as `KIND:TARGET`, for `--notify`.
#[derive(Clone, Debug)]
pub struct Wanted {
    kind: NotifyKind,
    target: String,
}

/// Reads `KIND:TARGET`.
pub fn wanted(text: &str) -> std::result::Result<Wanted, String> {
    let read = text.split_once(':').and_then(|(word, rest)| Some((NotifyKind::parse(word)?, rest)));
    match read {
        Some((kind, rest)) if !rest.is_empty() => {
            Ok(Wanted { kind, target: target(kind, rest, &[], None, None) })
        }
        _ => Err("it is KIND:TARGET, such as ntfy:https://ntfy.sh/my-topic or mail:me@example.org"
            .into()),
    }
}

impl Wanted {
    /// Asks the server for messages of this workflow.
    pub async fn ask(&self, client: &Client, workflow: WorkflowId, is_local: bool) -> Result<()> {
        let new = CreateNotification {
            kind: self.kind,
            target: self.target.clone(),
            events: Vec::new(),
            workflow_id: Some(workflow),
            // The user's own server may reach what the user can reach.
            allow_private: is_local,
        };
        let _: NotificationView = client.post("/notifications", &new).await?;
        Ok(())
    }
}

/// The target as the server takes it.
fn target(
    kind: NotifyKind,
    text: &str,
    arguments: &[String],
    smtp: Option<&str>,
    from: Option<&str>,
) -> String {
    match kind {
        NotifyKind::Slack | NotifyKind::Teams | NotifyKind::Ntfy => text.to_owned(),
        NotifyKind::Mail => {
            let to = text.strip_prefix("mailto:").unwrap_or(text);
            let smtp = smtp.map(|smtp| format!("smtp={smtp}"));
            let from = from.map(|from| format!("from={from}"));
            let query: Vec<String> = smtp.into_iter().chain(from).collect();
            match query.is_empty() {
                true => format!("mailto:{to}"),
                false => format!("mailto:{to}?{}", query.join("&")),
            }
        }
        NotifyKind::Command => {
            let path = std::path::absolute(text)
                .map_or_else(|_| text.to_owned(), |path| path.display().to_string());
            let argv: Vec<&str> = std::iter::once(path.as_str())
                .chain(arguments.iter().map(String::as_str))
                .collect();
            // Texts always become JSON.
            serde_json::to_string(&argv).unwrap_or_default()
        }
    }
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Create, async |client| match self.command {
            Command::Add(args) => args.execute(context, client).await,
            Command::List => list(context, client).await,
            Command::Test(one) => {
                let path = format!("/notifications/{}/test", one.id);
                let view: NotificationView = client.post(&path, &serde_json::json!({})).await?;
                context.output.value(&view, |view| {
                    format!("a message is on its way to {}\n", escape::line(&view.target))
                })
            }
            Command::Remove(one) => {
                let gone: NotificationView =
                    client.delete(&format!("/notifications/{}", one.id)).await?;
                context.output.value(&gone, |gone| format!("removed notification {}\n", gone.id))
            }
        })?;
        Ok(Exit::Success)
    }
}

impl Add {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let is_mail = self.kind == NotifyKind::Mail;
        if !is_mail && (self.smtp.is_some() || self.from.is_some()) {
            return Err(Error::usage("`--smtp` and `--from` go with `mail`"));
        }
        if self.kind != NotifyKind::Command && !self.arguments.is_empty() {
            return Err(Error::usage("only a command has arguments"));
        }
        let workflow_id = match &self.workflow {
            Some(text) => Some(references::workflow(client, text).await?.id),
            None => None,
        };
        let (smtp, from) = (self.smtp.as_deref(), self.from.as_deref());
        let new = CreateNotification {
            kind: self.kind,
            target: target(self.kind, &self.target, &self.arguments, smtp, from),
            events: self.events,
            workflow_id,
            allow_private: self.allow_private,
        };
        let made: NotificationView = client.post("/notifications", &new).await?;
        context.output.value(&made, |made| {
            format!(
                "notification {} tells {}; `torc notify test {}` tries it\n",
                made.id,
                escape::line(&made.target),
                made.id
            )
        })
    }
}

async fn list(context: &Context, client: &Client) -> Result<()> {
    let page: Page<NotificationView> = client.get("/notifications").await?;
    context.output.list("notifications", &page.items, page.total_count, || {
        let mut table =
            Table::new(["id", "kind", "target", "on", "workflow", "pending", "dead", "last error"]);
        for one in &page.items {
            let events: Vec<&str> = one.events.iter().map(|event| event.as_str()).collect();
            let events = if events.is_empty() { "all".to_owned() } else { events.join(" ") };
            table.row([
                Field::number(one.id),
                Field::text(one.kind.as_str()),
                Field::text(&one.target),
                Field::text(events),
                Field::optional(one.workflow_id.map(|id| id.to_string())),
                Field::number(one.pending),
                Field::number(one.dead),
                Field::text(one.last_error.as_deref().unwrap_or_default()),
            ]);
        }
        table
    })
}

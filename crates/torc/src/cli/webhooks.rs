//! `torc webhooks`: who is told when something ends.

use super::Context;
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use torc_client::Query;
use torc_model::api::{CreateWebhook, DeliveryView, Page, WebhookView};
use torc_model::ids::WorkflowId;

/// Tell other programs when jobs and workflows end
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc webhooks create https://chat.example/hook --event workflow.completed
  torc webhooks create http://127.0.0.1:9000/ --allow-private
  torc webhooks deliveries 1 --state dead")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the endpoints
    List,
    /// Add an endpoint; its secret is printed once
    Create {
        /// Where to post to
        #[arg(value_name = "URL")]
        endpoint: String,
        /// Only these events, such as `job.run.failed` or `workflow.completed` (docs/webhooks.md has
        /// them all); may be repeated
        #[arg(long = "event")]
        events: Vec<String>,
        /// Only of this workflow, by id
        #[arg(long)]
        workflow: Option<i64>,
        /// Signs each delivery; generated unless given
        #[arg(long, env = "TORC_WEBHOOK_SECRET", hide_env_values = true)]
        secret: Option<String>,
        /// Loopback and private addresses, and plain http, are allowed
        #[arg(long)]
        allow_private: bool,
    },
    /// Remove an endpoint with its deliveries
    Delete {
        /// Its id
        id: i64,
    },
    /// List an endpoint's newest deliveries
    Deliveries {
        /// Its id
        id: i64,
        /// Only `pending`, `delivered` or `dead` ones
        #[arg(long)]
        state: Option<String>,
    },
    /// Try a delivery again, from the beginning
    Redeliver {
        /// The delivery's id
        id: i64,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Create, async |client| {
            match self.command {
                Command::List => {
                    let page: Page<WebhookView> = client.get("/webhooks").await?;
                    context.output.list("webhooks", &page.items, page.total_count, || {
                        endpoints(&page.items)
                    })?;
                }
                Command::Create { endpoint, events, workflow, secret, allow_private } => {
                    let workflow_id = workflow.map(WorkflowId);
                    let new =
                        CreateWebhook { url: endpoint, secret, events, workflow_id, allow_private };
                    let made: WebhookView = client.post("/webhooks", &new).await?;
                    context.output.value(&made, |w| {
                        let secret = w.secret.as_deref().unwrap_or_default();
                        format!("webhook {} posts to {}\nsecret {secret}\n", w.id, w.url)
                    })?;
                }
                Command::Delete { id } => {
                    client.delete::<serde_json::Value>(&format!("/webhooks/{id}")).await?;
                    let gone = serde_json::json!({ "deleted": id });
                    context.output.value(&gone, |_| format!("deleted webhook {id}\n"))?;
                }
                Command::Deliveries { id, state } => {
                    let query = Query::new().maybe("state", state);
                    let page: Page<DeliveryView> =
                        client.get(&format!("/webhooks/{id}/deliveries{query}")).await?;
                    context.output.list("deliveries", &page.items, page.total_count, || {
                        deliveries(&page.items)
                    })?;
                }
                Command::Redeliver { id } => {
                    let body = serde_json::json!({});
                    let again: DeliveryView =
                        client.post(&format!("/deliveries/{id}/redeliver"), &body).await?;
                    context
                        .output
                        .value(&again, |d| format!("delivery {} is {}\n", d.id, d.state))?;
                }
            }
            Ok(Exit::Success)
        })
    }
}

fn endpoints(webhooks: &[WebhookView]) -> Table {
    let mut table = Table::new(["id", "url", "events", "pending", "dead"]);
    for w in webhooks {
        let events = if w.events.is_empty() { "all".to_owned() } else { w.events.join(" ") };
        table.row([
            Field::number(w.id),
            Field::text(&w.url),
            Field::text(&events),
            Field::number(w.pending),
            Field::number(w.dead),
        ]);
    }
    table
}

fn deliveries(list: &[DeliveryView]) -> Table {
    let mut table = Table::new(["id", "event", "state", "tries", "when", "next try", "error"]);
    for d in list {
        table.row([
            Field::number(d.id),
            Field::text(&d.event),
            Field::text(d.state.as_str()),
            Field::number(d.tries),
            Field::text(human::local_time(d.delivered_ms.unwrap_or(d.created_ms))),
            Field::optional(d.next_try_ms.map(human::local_time)),
            Field::text(d.last_error.as_deref().unwrap_or("")),
        ]);
    }
    table
}

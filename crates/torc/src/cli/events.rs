//! `torc events`: what happened, and what happens.

use super::Context;
use super::interrupt::Interrupts;
use super::paging::PagingArgs;
use super::references::{self, LATEST};
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Format, Table, escape, human};
use serde_json::Value;
use std::collections::HashMap;
use torc_client::{Client, Query};
use torc_model::api::{EventView, Page, WorkflowView};
use torc_model::event::EventKind;
use torc_model::ids::JobId;
use torc_spec::nearest;

/// Show what happened in a workflow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc events                       everything in the latest workflow
  torc events --tail 20             the newest twenty
  torc events sweep -f              and go on as it happens, until the workflow is complete
  torc events --kind job_failed
  torc -f json events --follow      one JSON object per line")]
pub struct Args {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Go on as things happen, until the workflow is complete
    #[arg(short = 'f', long)]
    follow: bool,

    /// Only the newest N events
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "follow", value_parser = clap::value_parser!(i64).range(1..))]
    tail: Option<i64>,

    /// Only events of this kind, such as `job_failed`
    #[arg(short, long)]
    kind: Option<String>,

    /// Only events after the one with this id
    #[arg(long, value_name = "ID", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
    after: Option<i64>,

    #[command(flatten)]
    paging: PagingArgs,

    #[command(flatten)]
    letter: super::FormatLetter,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &self.workflow).await?;
            let known: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
            if let Some(kind) = self.kind.as_deref().filter(|kind| !known.contains(kind)) {
                let message = format!("no event is of the kind `{}`", escape::line(kind));
                return Err(match nearest(kind, known.iter().copied()) {
                    Some(near) => Error::usage_hint(message, format!("did you mean `{near}`?")),
                    None => {
                        Error::usage_hint(message, format!("known kinds: {}", known.join(", ")))
                    }
                });
            }
            if self.follow {
                let mut interrupts = Interrupts::listen()?;
                let followed = self.follow(context, client, &workflow);
                tokio::select! {
                    result = followed => result?,
                    () = interrupts.next() => return Ok(interrupts.exit(Exit::Success)),
                }
            } else {
                self.list(context, client, &workflow).await?;
            }
            Ok(Exit::Success)
        })
    }

    async fn list(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
    ) -> Result<()> {
        let query = Query::new().maybe("kind", self.kind.as_ref()).maybe("after", self.after);
        let path = format!("/workflows/{}/events", workflow.id);
        let page: Page<EventView> = match self.tail {
            Some(count) => {
                let query = query.add("reverse_sort", true).add("limit", count);
                let mut page: Page<EventView> = client.get(&format!("{path}{query}")).await?;
                page.items.reverse();
                page
            }
            None => self.paging.fetch(client, &path, query).await?,
        };
        if matches!(context.output.format, Format::Json | Format::Csv) {
            let table = || Table::new([""]);
            return context.output.list("events", &page.items, page.total_count, table);
        }
        let lines: String = page.items.iter().map(line).collect();
        context.output.long(&lines)
    }

    /// Prints events from the beginning (or `--after`) until the workflow is complete.
    async fn follow(
        &self,
        context: &Context,
        client: &Client,
        workflow: &WorkflowView,
    ) -> Result<()> {
        let mut stream = client.stream_events(workflow.id, Some(self.after.unwrap_or(0)));
        let mut names: HashMap<JobId, String> = HashMap::new();
        loop {
            let mut event = stream.next().await?;
            if let (Some(job), None) = (event.job_id, &event.job_name) {
                event.job_name = match names.get(&job) {
                    Some(name) => Some(name.clone()),
                    // A job that is gone has no name any more.
                    None => client.get_job(job).await.ok().map(|job| job.name),
                };
            }
            if let (Some(job), Some(name)) = (event.job_id, &event.job_name) {
                names.entry(job).or_insert_with(|| name.clone());
            }
            if self.kind.as_ref().is_none_or(|kind| kind == event.kind.as_str()) {
                let text = if context.output.is_json() {
                    serde_json::to_string(&event).unwrap_or_default() + "\n"
                } else {
                    line(&event)
                };
                context.output.data(&text)?;
            }
            if event.kind == EventKind::WorkflowCompleted
                && client.workflow_status(workflow.id).await?.is_complete
            {
                return Ok(());
            }
        }
    }
}

/// `2026-03-01 14:05:09  job_failed  job 7 train_3  return_code=1`.
fn line(event: &EventView) -> String {
    let mut text = format!("{}  {:<20}", human::local_time(event.timestamp_ms), event.kind);
    if let Some(job) = event.job_id {
        text += &format!("  job {job}");
        text.extend(event.job_name.iter().map(|name| format!(" {name}")));
    }
    if let Value::Object(fields) = &event.data {
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            text += &format!("  {name}={value}");
        }
    }
    let mut text = escape::line(&text).into_owned();
    text.push('\n');
    text
}

//! `torc jobs act`: one action on all jobs that a filter finds.

use super::Context;
use super::references::{self, LATEST};
use crate::error::Result;
use crate::output::escape;
use torc_client::Client;
use torc_model::api::{ActRequest, ActView, ActWord};
use torc_model::filter::{FIELDS, Filter};
use torc_model::words::count;

#[derive(clap::Args, Debug)]
#[command(after_help = after_help())]
pub struct Args {
    /// `retry`, `recover`, `cancel`, `hold`, `release`, `fail`, `priority`, `memory` or `runtime`
    #[arg(value_parser = parse_action)]
    action: ActWord,

    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Which jobs
    #[arg(long = "where", value_name = "FILTER", value_parser = parse_filter)]
    filter: String,

    /// For `priority`, `memory` and `runtime`: the new one, such as `10`, `8g` or `2h30m`
    #[arg(long, allow_hyphen_values = true)]
    value: Option<String>,

    /// Only tell what would happen
    #[arg(short = 'n', long)]
    dry_run: bool,
}

fn after_help() -> String {
    let mut text = String::from(
        "Examples:\n  torc jobs act recover --where 'family:train cause:oom' --dry-run\n  \
         torc jobs act hold sweep --where 'family:train -name~_(1|2)$'\n  \
         torc jobs act memory --where 'family:train' --value 12g\n\n\
         A filter is words, which are parts of names, and terms; `-` in front turns one around:\n",
    );
    for (_, usage) in FIELDS {
        text += &format!("  {usage}\n");
    }
    text
}

fn parse_action(text: &str) -> std::result::Result<ActWord, String> {
    ActWord::parse(text).ok_or_else(|| {
        let known: Vec<&str> = ActWord::ALL.iter().map(|word| word.as_str()).collect();
        let meant = torc_spec::nearest(text, known.iter().copied());
        let meant = meant.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
        format!("unknown action (known: {}){meant}", known.join(", "))
    })
}

/// Refuses a wrong filter before anything is asked; the server reads the text again.
pub fn parse_filter(text: &str) -> std::result::Result<String, String> {
    Filter::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl Args {
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let request = ActRequest {
            workflow_id: workflow.id,
            filter: self.filter,
            action: self.action,
            value: self.value,
            dry_run: self.dry_run,
            by: Some(super::author("torc jobs act")),
        };
        let view: ActView = client.post("/jobs/act", &request).await?;
        context.output.value(&view, |view| render(view, self.action))
    }
}

fn render(view: &ActView, action: ActWord) -> String {
    let would = if view.dry_run { "would be done with" } else { "done with" };
    let mut text = format!(
        "{action}: {would} {} of {} that the filter finds\n",
        count(view.done, "job"),
        torc_model::words::grouped(view.matched)
    );
    for note in &view.notes {
        text += &format!("  {}\n", escape::line(note));
    }
    for (why, number) in &view.skipped {
        text += &format!("  left as they are, {}: {}\n", count(*number, "job"), escape::line(why));
    }
    if view.dry_run {
        for name in &view.names {
            text += &format!("  {}\n", escape::line(name));
        }
        if view.done > view.names.len() as i64 {
            text += &format!("  and {} more\n", view.done - view.names.len() as i64);
        }
    }
    text
}

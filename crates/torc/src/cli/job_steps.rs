//! `torc jobs steps`: what the steps of a job's attempt did, as a tree.

use super::references::JobArg;
use super::{Context, describe};
use crate::error::{Error, Result};
use crate::output::{escape, human};
use serde_json::Value;
use std::fmt::Write as _;
use torc_client::Client;
use torc_model::event::EventKind;
use torc_model::json::from_plain;
use torc_model::steps::{ErrorKind, Report, Row};

/// Show what the steps of a job did
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    job: JobArg,

    /// Attempt in the run (default: the newest that has ended)
    #[arg(long)]
    attempt: Option<i64>,
}

impl Args {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let job = self.job.find(client).await?;
        let page = client.list_attempts(job.id).await?;
        let wanted = page.items.iter().rev().find(|attempt| {
            attempt.ended_ms.is_some()
                && self.attempt.is_none_or(|number| attempt.attempt_id == number)
        });
        let Some(attempt) = wanted else {
            return Err(Error::usage(format!(
                "job `{}` has no such attempt that has ended",
                job.name
            )));
        };
        let report = match &attempt.steps {
            Some(steps) => from_plain::<Report>(steps).map_err(|error| {
                Error::usage(format!("what the steps did cannot be read: {error}"))
            })?,
            // Where nothing is told of steps, the attempt itself tells all.
            None => Report::default(),
        };
        context.output.value(&report, |report| match &attempt.steps {
            Some(_) => render(&job.name, attempt.attempt_id, report),
            None => format!(
                "{} attempt {}\n  a plain command without steps\n",
                escape::line(&job.name),
                describe::attempt(attempt)
            ),
        })
    }
}

/// `recovered 2, ignored 1`, or nothing.
pub fn counts(recovered: i64, ignored: i64) -> Option<String> {
    let parts = [("recovered", recovered), ("ignored", ignored)];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| format!("{word} {count}"))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The tree, one line per try, with the outcome of each step.
pub fn render(job: &str, attempt: i64, report: &Report) -> String {
    let mut out = format!("{} attempt {attempt}", escape::line(job));
    if let Some(counts) = counts(report.recovered.into(), report.ignored.into()) {
        let _ = write!(out, ": {counts}");
    }
    out.push('\n');
    for row in &report.rows {
        let depth = row.path.matches('.').count();
        let seconds = (row.ended_ms - row.started_ms) as f64 / 1000.0;
        let name = row.name.as_deref().unwrap_or(&row.path);
        let indent = "  ".repeat(depth + 1);
        let _ = write!(
            out,
            "{indent}{} [{}] try {}: {}",
            escape::line(name),
            row.kind,
            row.nth,
            how(row)
        );
        let _ = writeln!(out, " ({})", human::seconds(seconds));
        if is_last(report, row)
            && let Some(outcome) =
                outcome(report, &row.path).filter(|outcome| *outcome != row.outcome.as_str())
        {
            let _ = writeln!(out, "{indent}=> {outcome}");
        }
    }
    for event in report
        .events
        .iter()
        .filter(|event| event.kind == EventKind::StepFinished && event.data["outcome"] == "skipped")
    {
        let name = event.data.get("name").and_then(Value::as_str).unwrap_or(&event.path);
        let _ = writeln!(out, "  {}: skipped", escape::line(name));
    }
    for event in report.events.iter().filter(|event| event.kind == EventKind::HandlerFinished) {
        // One whose commands failed has rows that say so.
        if let (Some(true), Some(error)) =
            (event.data["succeeded"].as_bool(), event.data["error"].as_str())
        {
            let place = if event.path.is_empty() { "the job" } else { &event.path };
            let _ = writeln!(out, "  handler of {}: {}", escape::line(place), escape::line(error));
        }
    }
    if report.rows.is_empty() && report.events.is_empty() {
        out.push_str("  one step, succeeded at once\n");
    }
    out
}

fn how(row: &Row) -> String {
    match row.error_kind {
        None => "ok".into(),
        Some(kind) => {
            let message =
                row.error.as_deref().unwrap_or_default().lines().next_back().unwrap_or_default();
            let message: String = message.chars().take(80).collect();
            let code = row.exit_code.unwrap_or_default();
            if kind == ErrorKind::Exit {
                return format!("failed with exit code {code}");
            }
            format!("failed ({} {code}): {}", kind.as_str(), escape::line(&message))
        }
    }
}

fn is_last(report: &Report, row: &Row) -> bool {
    report
        .rows
        .iter()
        .rev()
        .find(|other| other.path == row.path)
        .is_some_and(|last| last.nth == row.nth)
}

fn outcome<'a>(report: &'a Report, path: &str) -> Option<&'a str> {
    let event = report
        .events
        .iter()
        .rev()
        .find(|event| event.kind == EventKind::StepFinished && event.path == path)?;
    event.data.get("outcome").and_then(Value::as_str)
}

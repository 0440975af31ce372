//! `torc why`: one job's unmet condition, last failure and what to do about it.

use super::references::JobArg;
use super::session::Access;
use super::{Context, describe};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::human;
use torc_model::api::WhyView;

/// Explain why a job is where it is
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc why train_3             a job of the latest workflow, by name
  torc why sweep/train_3       a job of the workflow `sweep`
  torc -f json why 42          a job by its id, for a program")]
pub struct Args {
    #[command(flatten)]
    job: JobArg,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let job = self.job.find(client).await?;
            let why = client.why(job.id).await?;
            context.output.value(&why, render)?;
            Ok(Exit::Success)
        })
    }
}

fn render(why: &WhyView) -> String {
    let job = &why.job;
    let mut card = Card::new(format!(
        "{} (job {} of workflow {}): {}",
        job.name, job.id, job.workflow_id, job.status
    ));
    card.plain(&why.summary);
    for detail in &why.details {
        card.plain(format!("- {detail}"));
    }
    if let Some(diagnosis) = &why.diagnosis {
        let sure = (diagnosis.confidence * 100.0).round();
        card.line(
            "what",
            format!("{} ({sure}% confidence): {}", diagnosis.kind.title(), diagnosis.summary),
        );
        for proof in &diagnosis.proof {
            let place = match (proof.start, proof.end) {
                (Some(start), Some(end)) => format!(" (bytes {start}-{end} of stderr)"),
                _ => String::new(),
            };
            card.line("evidence", format!("{}: {}{place}", proof.source, proof.text));
        }
        for doubt in &diagnosis.doubts {
            card.line("but", doubt);
        }
    }
    if let Some(remedy) = &why.remedy {
        card.line("remedy", super::recover::proposal(remedy));
        card.optional("before", super::recover::record(&remedy.record));
    }
    for adjustment in &why.adjustments {
        let change = super::recover::written(&adjustment.change);
        let when = human::local_time(adjustment.created_ms);
        let source = format!("{} ({}, {when})", adjustment.why, adjustment.by);
        card.line("changed", format!("{change} after attempt {}: {source}", adjustment.attempt_id));
    }
    if let Some(attempt) = &why.attempt {
        card.line("attempt", describe::attempt(attempt));
        card.optional("limits", describe::limits(attempt));
        card.optional("used", describe::usage(attempt));
        card.optional("stdout", attempt.stdout_path.as_ref());
        card.optional("stderr", attempt.stderr_path.as_ref());
        if let Some(tail) = attempt.stderr_tail.as_ref().filter(|tail| !tail.trim().is_empty()) {
            card.block("end of standard error", tail);
        }
    }
    for hint in &why.hints {
        card.line("hint", crate::output::as_called(hint));
    }
    card.render()
}

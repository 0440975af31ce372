//! `torc knowledge`: what was learned from retries of failures.

use super::Context;
use super::session::Access;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table, escape, human};
use clap::Subcommand;
use std::path::PathBuf;
use torc_model::recovery::{
    Counts, Knowledge, KnowledgeForgotten, KnowledgeTaken, KnownFailure, Tried,
};

/// Show, share and forget what was learned from retries of failures
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc knowledge list                    failures that were retried, and how that ended
  torc knowledge show 3f9c0a1b2c3d4e5f   one of them, day by day
  torc knowledge forget 3f9c0a1b2c3d4e5f
  torc knowledge export known.json       for others; messages have their numbers, paths and addresses masked
  torc knowledge import known.json       what others learned; the same file twice counts once

Nothing leaves this machine by itself.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List failures that were retried, and how that ended
    List,
    /// Show one of them
    Show {
        /// Its fingerprint, or the beginning of it
        fingerprint: String,
    },
    /// Forget one of them, or all
    Forget {
        /// Its fingerprint, or the beginning of it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        fingerprint: Option<String>,
        /// Forget everything
        #[arg(long)]
        all: bool,
    },
    /// Write all of it to a file
    Export {
        /// Where to (`-`: standard output)
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Take in what others learned
    Import {
        /// A file that `torc knowledge export` wrote (`-`: standard input)
        file: PathBuf,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Create, async |client| {
            match &self.command {
                Command::List => {
                    let known: Knowledge = client.get("/knowledge").await?;
                    let count = known.failures.len() as i64;
                    context.output.list("failures", &known.failures, count, || table(&known))?;
                }
                Command::Show { fingerprint } => {
                    let known: Knowledge = client.get("/knowledge").await?;
                    let one = find(&known, fingerprint)?;
                    context.output.value(one, render)?;
                }
                Command::Forget { fingerprint, .. } => {
                    let path = match fingerprint {
                        Some(begin) => {
                            let known: Knowledge = client.get("/knowledge").await?;
                            format!("/knowledge/{}", find(&known, begin)?.fingerprint.id)
                        }
                        None => "/knowledge?all=true".into(),
                    };
                    let gone: KnowledgeForgotten = client.delete(&path).await?;
                    context.output.value(&gone, |gone| {
                        format!("forgot {}\n", human::count(gone.failures, "failure"))
                    })?;
                }
                Command::Export { file } => {
                    let known: Knowledge = client.get("/knowledge").await?;
                    let text = serde_json::to_string_pretty(&known)
                        .map_err(|error| Error::usage(error.to_string()))?;
                    if file.as_os_str() == "-" {
                        context.output.json(&known)?;
                    } else {
                        std::fs::write(file, text + "\n").map_err(Error::io("write", file))?;
                        context.output.talk(format_args!(
                            "wrote {} to {}",
                            human::count(known.failures.len() as i64, "failure"),
                            file.display()
                        ));
                    }
                }
                Command::Import { file } => {
                    let text = if file.as_os_str() == "-" {
                        std::io::read_to_string(std::io::stdin())
                            .map_err(Error::io("read", "standard input"))?
                    } else {
                        std::fs::read_to_string(file).map_err(Error::io("read", file))?
                    };
                    let known: Knowledge = serde_json::from_str(&text).map_err(|error| {
                        Error::usage_hint(
                            format!("{} is no knowledge: {error}", file.display()),
                            "`torc knowledge export FILE` writes some",
                        )
                    })?;
                    let taken: KnowledgeTaken = client.post("/knowledge", &known).await?;
                    context.output.value(&taken, |taken| {
                        let all = human::count(taken.failures, "failure");
                        format!("took in {all}, {} of them new\n", taken.new)
                    })?;
                }
            }
            Ok(Exit::Success)
        })
    }
}

/// The one failure whose fingerprint begins so.
fn find<'a>(known: &'a Knowledge, begin: &str) -> Result<&'a KnownFailure> {
    let mut fits = known.failures.iter().filter(|k| k.fingerprint.id.starts_with(begin));
    match (fits.next(), fits.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => {
            Err(Error::usage(format!("several failures begin with `{}`", escape::line(begin))))
        }
        (None, _) => Err(Error::usage_hint(
            format!("nothing is known of a failure `{}`", escape::line(begin)),
            "`torc knowledge list` shows what is known",
        )),
    }
}

/// `3 of 4`, or nothing.
fn share(counts: Counts) -> String {
    match counts.tries {
        0 => "-".into(),
        tries => format!("{} of {tries}", counts.succeeded),
    }
}

fn table(known: &Knowledge) -> Table {
    let mut table = Table::new([
        "fingerprint",
        "what happened",
        "program",
        "again",
        "more memory",
        "more time",
        "message",
    ]);
    for one in &known.failures {
        let print = &one.fingerprint;
        table.row([
            Field::text(&print.id),
            Field::text(print.kind.title()),
            Field::text(&print.program),
            Field::text(share(one.total(Tried::Again))),
            Field::text(share(one.total(Tried::MoreMemory))),
            Field::text(share(one.total(Tried::MoreTime))),
            Field::text(&print.template),
        ]);
    }
    table
}

fn render(one: &KnownFailure) -> String {
    let print = &one.fingerprint;
    let mut card = Card::new(format!("{} ({})", print.id, print.kind.title()));
    card.line("program", &print.program);
    card.optional("exception", print.exception.as_ref());
    card.line("message", &print.template);
    card.line("cause", &one.cause);
    for outcome in &one.outcomes {
        let day = human::local_time(outcome.day * 86_400_000);
        let day = day.split(' ').next().unwrap_or_default().to_owned();
        let tried = outcome.action.as_str().replace('_', " ");
        let mut line = format!(
            "{tried} on {day} in {}: {} succeeded",
            outcome.workflow,
            share(outcome.counts)
        );
        if let Some(bytes) = outcome.needed_bytes {
            line += &format!(", using up to {}", human::bytes(bytes));
        }
        card.line("tried", line);
    }
    card.render()
}

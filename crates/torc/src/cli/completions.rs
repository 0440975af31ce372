//! `torc completions`: a script that teaches a shell our commands. The script asks the program
//! itself for what fits, so that names of workflows and jobs are offered as well.

use super::references::LATEST;
use super::session::{Access, Session};
use super::{Cli, Context, Locator, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output;
use clap::CommandFactory as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use clap_complete::{CompleteEnv, Shell};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;
use torc_client::{Client, Query};
use torc_model::status::JobStatus;

/// The variable with which the script calls the program.
const VARIABLE: &str = "COMPLETE";
/// Names that are offered.
const MAX_OFFERED: i64 = 200;
/// A shell waits for the answer, so that a server that does not answer must not hold it up.
const PATIENCE: Duration = Duration::from_millis(700);

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc completions bash > ~/.local/share/bash-completion/completions/torc
  torc completions zsh > ~/.zfunc/_torc
  torc completions fish > ~/.config/fish/completions/torc.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, _: &Context) -> Result<Exit> {
        let shell: &dyn EnvCompleter = match self.shell {
            Shell::Bash => &Bash,
            Shell::Zsh => &Zsh,
            Shell::Fish => &Fish,
            Shell::Elvish => &Elvish,
            Shell::PowerShell => &Powershell,
            other => return Err(Error::usage(format!("there is no script for {other}"))),
        };
        let mut script = Vec::new();
        shell
            .write_registration(VARIABLE, "torc", "torc", "torc", &mut script)
            .map_err(Error::io("write", "the script"))?;
        output::write_data(&script)?;
        Ok(Exit::Success)
    }
}

/// Answers a shell that asks what fits, and ends the program then.
pub fn answer() {
    // Nothing of it is done for any other call.
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(|| complete(Cli::command())).var(VARIABLE).complete();
    }
}

/// The same command, with answers for the arguments that name something of the server's.
fn complete(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| match argument.get_id().as_str() {
            "workflow" | "workflows" | "work" => argument.add(ArgValueCompleter::new(workflows)),
            "job" | "jobs" => argument.add(ArgValueCompleter::new(jobs)),
            "status" => argument.add(ArgValueCompleter::new(statuses)),
            _ => argument,
        })
        .mut_subcommands(complete)
}

fn statuses(current: &OsStr) -> Vec<CompletionCandidate> {
    fitting(current, JobStatus::ALL.iter().map(|status| status.as_str().to_owned()))
}

fn workflows(current: &OsStr) -> Vec<CompletionCandidate> {
    // A spec may be meant as well.
    let files = clap_complete::engine::PathCompleter::file();
    let mut found = fitting(
        current,
        ask(async |client| {
            let newest = Query::new().add("sort_by", "id").add("reverse_sort", true);
            let page = client.list_workflows(&newest.add("limit", MAX_OFFERED)).await?;
            let mut names: Vec<String> = page.items.into_iter().map(|w| w.name).collect();
            names.dedup();
            names.insert(0, LATEST.into());
            Ok(names)
        })
        .into_iter(),
    );
    found.extend(clap_complete::engine::ValueCompleter::complete(&files, current));
    found
}

fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    let begin = current.to_str().unwrap_or_default().to_owned();
    let names = ask(async move |client| {
        let workflow = super::references::workflow(client, LATEST).await?;
        let query = Query::new().add("workflow_id", workflow.id).add("search", &begin);
        let page = client.list_jobs(&query.add("limit", MAX_OFFERED)).await?;
        Ok(page.items.into_iter().map(|job| job.name).collect())
    });
    fitting(current, names.into_iter())
}

fn fitting(current: &OsStr, words: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let begin = current.to_str().unwrap_or_default();
    words.filter(|word| word.starts_with(begin)).map(CompletionCandidate::new).collect()
}

/// What the server of this directory says; nothing when it says nothing in time. A shell that
/// completes a word has no place for an error.
fn ask(question: impl AsyncFnOnce(&Client) -> Result<Vec<String>>) -> Vec<String> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let locator = Locator {
        url: variable("TORC_API_URL").and_then(|url| url.into_string().ok()),
        token_file: variable("TORC_TOKEN_FILE").map(PathBuf::from),
        tls_ca: variable("TORC_TLS_CA").map(PathBuf::from),
        dir: variable("TORC_DIR").map(PathBuf::from),
    };
    let answer = block_on(async {
        let session = Session::open(&locator, Access::Existing).await?;
        let answer = tokio::time::timeout(PATIENCE, question(&session.client)).await;
        session.close().await;
        answer.unwrap_or_else(|_| Ok(Vec::new()))
    });
    answer.unwrap_or_default()
}

//! The command line: one file per command. Each turns its arguments into calls and the answers into
//! output.

mod access_groups;
mod act;
mod ai;
mod analyze;
mod apply;
mod bundle;
mod cancel;
mod check;
mod classify;
#[cfg(test)]
mod commands_page;
mod completions;
mod config;
mod correct;
mod create;
mod current_spec;
mod describe;
mod detach;
mod direct;
mod drive;
mod edit;
mod events;
mod exec;
mod export;
mod failure_handlers;
mod files;
mod full_export;
mod help;
mod hpc;
mod import;
mod install;
mod interrupt;
mod items;
mod job_dependencies;
mod job_output;
mod job_steps;
mod job_stream;
mod jobs;
mod jobs_add;
mod knowledge;
mod limits;
mod logging;
mod logs;
mod man;
mod mcp;
mod new;
mod node_report;
mod notify;
mod numbers;
mod paging;
mod parts;
mod person;
mod ping;
mod plot;
mod pool;
mod predict;
mod recap;
mod record;
mod recover;
mod references;
mod remote;
mod report;
mod reports;
mod requirements;
mod reservations;
mod results;
mod ro_crate;
mod rules;
mod run;
mod runner;
mod runner_options;
mod runners;
mod server;
mod session;
mod slurm;
mod spec;
mod status;
mod status_watch;
mod steps;
mod submit;
mod timeline;
mod tokens;
mod torc_1_0;
mod tui;
mod ui;
mod upstream_export;
mod user_data;
mod watch;
mod webhooks;
mod wfformat;
mod why;
mod workflow_actions;
mod workflows;

pub use completions::answer as answer_completion;
pub use rules::of_site as site_rules;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Format, Output};
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::path::PathBuf;
use std::pin::Pin;

/// Run workflows of shell jobs, and recover them
#[derive(Parser, Debug)]
#[command(
    name = "torc",
    version = crate::VERSION,
    disable_help_subcommand = true,
    help_template = "{about}\n\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}\n{after-help}",
    before_help = COMMANDS,
    after_help = AFTER_HELP
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,

    /// The options on this very command line that say which server is meant.
    #[arg(skip)]
    given: Vec<String>,

    #[command(subcommand)]
    command: Command,
}

/// The commands by purpose; a test checks that none is missing.
const COMMANDS: &str = "\
Run:
  run               Run a spec: create the workflow, resume it, or run what has changed
  exec              Run plain commands as a workflow
  create            Create a workflow from a spec, without running it
  submit            Create a workflow and ask Slurm for its nodes
  check             Check a spec and show what it would do, without touching anything
  new               Write a small commented example to begin with
  import            Make a spec of a batch script, of commands of parallel or xargs, or of WfFormat
  recover           Recover what failed: more memory, more time, or the same again
  watch             Watch a workflow, and recover it when jobs fail
  steps             Try a handler of a spec out, without a workflow

Look:
  status            Show how far a workflow is
  why               Explain why a job, or a whole workflow, is where it is
  predict           Tell when a workflow will be over, here or on other machines
  logs              Print what a job wrote to standard output and standard error
  events            Show what happened in a workflow
  results           Show how attempts ended: code, cause, time, CPU and memory
  runners           List the runners, and let them pause or leave
  job-dependencies  List what jobs depend on, read and write
  tui               See every workflow in this terminal, and act on its jobs
  ui                Open the page: see every workflow, and act on its jobs
  report            Write a workflow as one HTML file that needs no server
  export            Write a workflow for other programs
  reports           Sum up failures, and resource usage compared with what was requested
  plot              Plot resource usage over time

Change:
  cancel            Cancel a workflow: nothing new starts, what runs is stopped
  jobs              List jobs, show them, and change single ones
  items             List the items of a map, and retry or drop the dead ones
  workflows         List workflows, and start, reset, export or delete them
  files             List the files of a workflow, and change what the spec says of them
  resource-requirements  List what jobs ask for, and change it for all jobs that share it
  user-data         Read and write the values that jobs hand to each other
  failure-handlers  Show and change the failure handlers of a workflow
  knowledge         Show, share and forget what was learned from retries of failures
  rules             List and test what is known about failures
  limits            Show and set named limits, such as licences, that jobs take with `uses`
  reservations      Pause the start of new jobs for a while, to have something to yourself
  webhooks          Tell other programs when jobs and workflows end
  notify            Tell people when a workflow ends, fails or waits for them

Slurm:
  slurm             Ask a Slurm cluster for nodes, look at them, and recover them
  hpc               Show what clusters offer, and describe this one

Serve:
  server            Run a server by itself, back it up, show its token
  tokens            Give people tokens of their own, and take them back
  access-groups     Make groups of users, and share workflows with them
  config            Show, check and begin configuration files
  runner            Take part in a workflow from any directory or machine
  remote            Run runners on other machines over SSH
  mcp               Offer Torc's tools to AI agents over MCP

Help:
  help              Explain a command, or a key of the workflow file: `torc help spec retries`
  completions       Print a completion script for a shell
  man               Write the manual pages

";

const AFTER_HELP: &str = "\
`torc COMMAND --help` explains a command and shows examples.
Exit codes: 0 all jobs succeeded, 1 some did not, 2 the call or the spec was wrong, 3 the server could not be reached, 130 Ctrl-C.";

/// Options that every command takes.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Global options")]
struct Global {
    /// Print data as `table`, `json` or `csv`
    #[arg(
        short,
        visible_short_alias = 'F',
        long,
        global = true,
        env = "TORC_FORMAT",
        default_value = "table",
        value_enum
    )]
    #[arg(hide_possible_values = true, hide_default_value = true, hide_env_values = true)]
    format: Format,

    /// Address of the server (default: the local state)
    #[arg(
        long,
        alias = "api-url",
        global = true,
        env = "TORC_API_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    url: Option<String>,

    /// File that holds the token for the server
    #[arg(
        long,
        global = true,
        env = "TORC_TOKEN_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    token_file: Option<PathBuf>,

    /// PEM file of certificates to trust for `https`
    #[arg(long, global = true, env = "TORC_TLS_CA", value_name = "FILE", hide_env_values = true)]
    tls_ca: Option<PathBuf>,

    /// Directory of the local state
    #[arg(long, global = true, env = "TORC_DIR", value_name = "DIR", hide_env_values = true)]
    dir: Option<PathBuf>,

    /// Print only failures, errors and data
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Print starts and ends of jobs too; twice for debugging
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Print long lists at once instead of through `PAGER` or `less`
    #[arg(long, global = true)]
    no_pager: bool,
}

/// `--format` of commands in which `-f` means `--follow`. It has the id of the global option, so that
/// either counts wherever it stands.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Global options")]
pub struct FormatLetter {
    /// Print data as `table`, `json` or `csv`
    #[arg(id = "format", short = 'F', long = "format", value_enum, default_value = "table")]
    #[arg(env = "TORC_FORMAT", value_name = "FORMAT")]
    #[arg(hide_possible_values = true, hide_default_value = true, hide_env_values = true)]
    _format: Format,
}

#[derive(Subcommand, Debug)]
enum Command {
    AccessGroups(access_groups::Args),
    Cancel(cancel::Args),
    Check(check::Args),
    Completions(completions::Args),
    Config(config::Args),
    Create(create::Args),
    Events(events::Args),
    Exec(exec::Args),
    Export(export::Args),
    FailureHandlers(failure_handlers::Args),
    Files(files::Args),
    Help(help::Args),
    Hpc(hpc::Args),
    Import(import::Args),
    Items(items::Args),
    JobDependencies(job_dependencies::Args),
    Jobs(jobs::Args),
    Knowledge(knowledge::Args),
    Rules(rules::Args),
    Limits(limits::Args),
    Logs(logs::Args),
    Man(man::Args),
    Mcp(mcp::Args),
    New(new::Args),
    Notify(notify::Args),
    #[command(hide = true)]
    Ping(ping::Args),
    Plot(plot::Args),
    Predict(predict::Args),
    Recover(recover::Args),
    Remote(remote::Args),
    Report(report::Args),
    Reports(reports::Args),
    Reservations(reservations::Args),
    ResourceRequirements(requirements::Args),
    Results(results::Args),
    Run(run::Args),
    Runner(runner::Args),
    Runners(runners::Args),
    Server(server::Args),
    Slurm(slurm::Args),
    Status(status::Args),
    Submit(submit::Args),
    Steps(steps::Args),
    Tokens(tokens::Args),
    Tui(tui::Args),
    Ui(ui::Args),
    UserData(user_data::Args),
    /// Print the version
    #[command(hide = true)]
    Version,
    Watch(watch::Args),
    Webhooks(webhooks::Args),
    Why(why::Args),
    Workflows(workflows::Args),
}

/// The same command, whose footers have one line per paragraph: the width of the terminal breaks them,
/// and not our source as well. Lines that are set in stay as they are.
pub fn flowing(command: clap::Command) -> clap::Command {
    let command = match command.get_after_help().map(ToString::to_string) {
        Some(text) => command.after_help(flowing_text(&text)),
        None => command,
    };
    command.mut_subcommands(flowing)
}

fn flowing_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut goes_on = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        match goes_on && is_prose {
            true => out.push(' '),
            false if out.is_empty() => {}
            false => out.push('\n'),
        }
        out.push_str(line);
        // A sentence ends its paragraph's line; what ends with a colon is a heading.
        goes_on = is_prose && !line.ends_with(['.', ':']);
    }
    out
}

/// What every command may use.
#[derive(Debug)]
pub struct Context {
    /// Where words go.
    pub output: Output,
    /// How the server is found.
    pub locator: Locator,
}

/// Who asks, for the record: the user and the command.
fn author(command: &str) -> String {
    format!("{} ({command})", person::name())
}

/// Runs a command's asynchronous part. The runtime is made here, so that `torc --version` does not
/// pay for it.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // Half of the processors: jobs and the writer of the database need the others, and workers that
    // find little to do wake each other for it.
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().div_ceil(2));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(Error::io("start", "worker threads"))?;
    finish(runtime, Box::pin(work))
}

/// Runs `work` to its end. Threads of the pool that still hang in a system call, on a mount that
/// does not answer for example, must not keep the process from ending.
///
/// The runtime is not instantiated for every command: their futures are boxed.
fn finish<T>(
    runtime: tokio::runtime::Runtime,
    work: Pin<Box<dyn Future<Output = Result<T>> + '_>>,
) -> Result<T> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(PATIENCE);
    result
}

/// The same with one worker thread: a runner's few requests need no more, and threads that wake
/// each other up cost its jobs time.
fn block_on_one_worker<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Error::io("start", "a worker thread"))?;
    finish(runtime, Box::pin(work))
}

/// What the command line, not the environment, says about the server: hints repeat it.
fn given(matches: &clap::ArgMatches) -> Vec<String> {
    let mut given = Vec::new();
    for (id, option) in
        [("url", "--url"), ("token_file", "--token-file"), ("tls_ca", "--tls-ca"), ("dir", "--dir")]
    {
        if matches.value_source(id) == Some(ValueSource::CommandLine)
            && let Some(mut raw) = matches.get_raw(id)
            && let Some(value) = raw.next().and_then(std::ffi::OsStr::to_str)
        {
            given.extend([option.to_owned(), value.to_owned()]);
        }
    }
    given
}

/// How the server is found, as the user said it.
#[derive(Clone, Debug)]
pub struct Locator {
    /// `--url`.
    pub url: Option<String>,
    /// `--token-file`.
    pub token_file: Option<PathBuf>,
    /// `--tls-ca`.
    pub tls_ca: Option<PathBuf>,
    /// `--dir`.
    pub dir: Option<PathBuf>,
}

impl Locator {
    /// The same as arguments of another call.
    pub fn to_args(&self) -> Vec<std::ffi::OsString> {
        let mut args = Vec::new();
        let mut add = |name: &str, value: Option<&std::ffi::OsStr>| {
            if let Some(value) = value {
                args.extend([name.into(), value.to_os_string()]);
            }
        };
        add("--url", self.url.as_ref().map(std::ffi::OsStr::new));
        add("--token-file", self.token_file.as_ref().map(|file| file.as_os_str()));
        add("--tls-ca", self.tls_ca.as_ref().map(|file| file.as_os_str()));
        add("--dir", self.dir.as_ref().map(|dir| dir.as_os_str()));
        args
    }
}

impl Cli {
    /// Reads the arguments. Ends the program if they are wrong, or if they only ask for help.
    pub fn read(arguments: Vec<std::ffi::OsString>) -> Self {
        torc_1_0::read(&arguments, |words| numbers::read(words, Self::try_read)).unwrap_or_else(
            |error| torc_1_0::tell(numbers::explain(error, &arguments), &arguments).exit(),
        )
    }

    fn try_read(arguments: &[std::ffi::OsString]) -> std::result::Result<Self, clap::Error> {
        let command = crate::config::get().apply(Self::command());
        let matches = flowing(command).try_get_matches_from(arguments)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let is_from = |id, source| matches.value_source(id) == Some(source);
        cli.given = given(&matches);
        // What the user says here and now counts more than what the environment says: inside a job
        // it names the server of the workflow.
        if is_from("dir", ValueSource::CommandLine) && !is_from("url", ValueSource::CommandLine) {
            cli.global.url = None;
            cli.global.token_file =
                cli.global.token_file.filter(|_| is_from("token_file", ValueSource::CommandLine));
        }
        Ok(cli)
    }

    /// Runs the command.
    pub fn execute(self) -> Result<Exit> {
        crate::output::set_given(&self.given);
        let Global { format, url, token_file, tls_ca, dir, quiet, verbose, no_pager } = self.global;
        let log_format = match &self.command {
            Command::Server(args) => args.log_format(),
            _ => logging::LogFormat::Text,
        };
        logging::start(quiet, verbose, log_format);
        let does_without = matches!(
            self.command,
            Command::Config(_)
                | Command::Help(_)
                | Command::Completions(_)
                | Command::Man(_)
                | Command::Version
        );
        if !does_without {
            let config = crate::config::get();
            if let Some(error) = config::refusal(&config.problems) {
                return Err(error);
            }
        }
        let context = Context {
            output: Output { format, quiet, verbose, has_pager: !no_pager },
            locator: Locator {
                url: url.filter(|u| !u.trim().is_empty()),
                token_file: token_file.filter(|f| !f.as_os_str().is_empty()),
                tls_ca: tls_ca.filter(|f| !f.as_os_str().is_empty()),
                dir: dir.filter(|d| !d.as_os_str().is_empty()),
            },
        };
        let draws = matches!(format, Format::Dot | Format::Mermaid | Format::Svg);
        if draws && !matches!(self.command, Command::Check(_)) {
            let message =
                "only `torc check` draws graphs; the formats are `table`, `json` and `csv`"
                    .to_owned();
            return Err(Error::Usage { message, hint: None });
        }
        match self.command {
            Command::Cancel(args) => args.execute(&context),
            Command::Check(args) => args.execute(&context),
            Command::Completions(args) => args.execute(&context),
            Command::Config(args) => args.execute(&context, &self.given),
            Command::Create(args) => args.execute(&context),
            Command::Events(args) => args.execute(&context),
            Command::Exec(args) => args.execute(&context),
            Command::Export(args) => args.execute(&context),
            Command::FailureHandlers(args) => args.execute(&context),
            Command::Files(args) => args.execute(&context),
            Command::JobDependencies(args) => args.execute(&context),
            Command::ResourceRequirements(args) => args.execute(&context),
            Command::Help(args) => args.execute(&context),
            Command::Hpc(args) => args.execute(&context),
            Command::Import(args) => args.execute(&context),
            Command::Items(args) => args.execute(&context),
            Command::Jobs(args) => args.execute(&context),
            Command::Knowledge(args) => args.execute(&context),
            Command::Rules(args) => args.execute(&context),
            Command::Limits(args) => args.execute(&context),
            Command::Logs(args) => args.execute(&context),
            Command::Man(args) => args.execute(&context),
            Command::Mcp(args) => args.execute(&context),
            Command::New(args) => args.execute(&context),
            Command::Notify(args) => args.execute(&context),
            Command::Ping(args) => args.execute(&context),
            Command::Plot(args) => args.execute(&context),
            Command::Predict(args) => args.execute(&context),
            Command::Recover(args) => args.execute(&context),
            Command::Remote(args) => args.execute(&context),
            Command::Report(args) => args.execute(&context),
            Command::Reports(args) => args.execute(&context),
            Command::Reservations(args) => args.execute(&context),
            Command::Results(args) => args.execute(&context),
            Command::Run(args) => args.execute(&context),
            Command::Runner(args) => args.execute(&context),
            Command::Runners(args) => args.execute(&context),
            Command::Server(args) => args.execute(&context),
            Command::Slurm(args) => args.execute(&context),
            Command::Status(args) => args.execute(&context),
            Command::Submit(args) => args.execute(&context),
            Command::Steps(args) => args.execute(&context),
            Command::Tokens(args) => args.execute(&context),
            Command::AccessGroups(args) => args.execute(&context),
            Command::Tui(args) => args.execute(&context),
            Command::Ui(args) => args.execute(&context),
            Command::UserData(args) => args.execute(&context),
            Command::Version => help::version(&context),
            Command::Watch(args) => args.execute(&context),
            Command::Webhooks(args) => args.execute(&context),
            Command::Why(args) => args.execute(&context),
            Command::Workflows(args) => args.execute(&context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// An argument of a command with the id of a global one would be taken for it.
    #[test]
    fn no_command_takes_a_global_option_for_its_own() {
        fn check(command: &clap::Command, globals: &[String]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                // `FormatLetter` is meant to be the same.
                let is_letter = argument.get_id() == "format" && argument.get_short() == Some('F');
                assert!(
                    is_letter || !globals.contains(&argument.get_id().to_string()),
                    "{} {argument}",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(|inner| check(inner, globals));
        }
        let command = Cli::command();
        let globals = command.get_arguments().filter(|argument| argument.is_global_set());
        let globals: Vec<String> = globals.map(|argument| argument.get_id().to_string()).collect();
        assert!(globals.contains(&"url".to_owned()), "{globals:?}");
        check(&command, &globals);
    }

    #[test]
    fn footers_flow_and_examples_do_not() {
        let text = "Examples:\n  torc a   b\n  torc c\n\nOne sentence that is\nbroken. Another\none.\nA third.";
        let expected = "Examples:\n  torc a   b\n  torc c\n\nOne sentence that is broken. Another one.\nA third.";
        assert_eq!(flowing_text(text), expected);
    }

    #[test]
    fn every_command_is_in_the_overview() {
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let line = format!(
                "\n  {:<16}  {}\n",
                command.get_name(),
                command.get_about().unwrap_or_default()
            );
            assert!(COMMANDS.contains(&line), "the overview lacks the line {line:?}");
        }
    }

    #[test]
    fn every_command_is_in_the_reference() {
        let reference = include_str!("../../../../docs/cli.md");
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = command.get_name();
            assert!(
                reference.contains(&format!("`torc {name}")),
                "docs/cli.md lacks `torc {name}`"
            );
        }
    }
}

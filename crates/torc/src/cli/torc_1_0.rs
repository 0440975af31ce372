//! Calls of Torc 1.0.0 that are written otherwise here. What means the same is read as it was meant; of
//! everything else the answer names the command that does it, or says why there is none.
//!
//! This is asked only after a call was refused, so that no word of ours is ever read as another one.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error};
use std::ffi::OsString;

/// What a word of Torc 1.0.0 is here.
enum Here {
    /// The same, under these words.
    Words(&'static str),
    /// Nothing: what it asks for is always so, or decided by the program.
    Nothing,
    /// Nothing, and neither is the value after it.
    NothingWithValue,
    /// To be done otherwise, as told.
    Told(&'static str),
}
use Here::{Nothing, NothingWithValue, Told, Words};

/// Commands, the longest beginning of a call first. A row stands for all commands that begin so.
const COMMANDS: &[(&str, Here)] = &[
    ("admin list-audit-log", Words("server audit")),
    ("admin reload-auth", Told("tokens need no reload here")),
    ("admin sql", Told("stop the server and open the database with `sqlite3 .torc/torc.db`")),
    ("admin", Told("`GET /metrics` of the server has its claims, commits and events")),
    ("compute-nodes list", Words("runners list")),
    ("compute-nodes get", Words("runners get")),
    ("delete", Words("workflows delete")),
    (
        "events create",
        Told("events are written by the server; use `torc webhooks` to tell other programs"),
    ),
    ("events delete", Told("events stay with their workflow: `torc workflows delete`")),
    ("events get-latest-event", Told("`torc events WORKFLOW --tail 1`")),
    ("events list", Words("events")),
    ("events monitor", Words("events --follow")),
    (
        "jobs create-from-file",
        Told("`torc exec --commands-file FILE` makes a workflow of a file with a command per line"),
    ),
    (
        "jobs create",
        Told("write a spec and call `torc run SPEC`, or `torc jobs add FILE` inside of a job"),
    ),
    (
        "jobs delete",
        Told("take the job out of the spec and call `torc run SPEC`, or `torc jobs disable JOB`"),
    ),
    ("jobs delete-all", Told("take the jobs out of the spec and call `torc run SPEC`")),
    ("jobs list-failure-handlers", Words("failure-handlers list")),
    ("jobs list-resource-requirements", Words("resource-requirements list")),
    ("jobs reset-status", Words("jobs retry")),
    ("monitor-node", Told("runners sample their jobs by themselves: `torc plot`")),
    ("plot-resources", Told("`torc plot WORKFLOW`")),
    ("remote add-workers", Told("`torc remote add HOST...`; runners there serve every workflow")),
    ("remote add-workers-from-file", Told("`torc remote add --hosts-file FILE`")),
    ("remote collect-logs", Told("`torc remote logs --to DIR`")),
    ("remote delete-logs", Told("remove `.torc-remote` in the home directory of the machine")),
    (
        "remote list-workers",
        Told("`torc remote list` shows the machines, which serve every workflow"),
    ),
    ("remote remove-worker", Told("`torc remote remove HOST...`")),
    ("results delete", Told("results stay with their workflow: `torc workflows delete`")),
    ("results get", Told("`torc jobs attempts JOB` shows every attempt of a job")),
    ("ro-crate export", Words("export ro-crate")),
    (
        "ro-crate",
        Told(
            "`torc export ro-crate WORKFLOW` writes everything; a file of the spec may have an `identifier`",
        ),
    ),
    ("scheduled-compute-nodes list", Words("slurm allocations")),
    (
        "scheduled-compute-nodes",
        Told("`torc slurm allocations WORKFLOW` shows them with their state"),
    ),
    (
        "self update",
        Told("install a newer program over this one; databases tell if they are too old"),
    ),
    ("slurm plan-allocations", Words("slurm plan")),
    ("slurm stats", Words("slurm sacct")),
    ("slurm create", Words("slurm schedulers create")),
    ("slurm delete", Words("slurm schedulers delete")),
    ("slurm get", Words("slurm schedulers get")),
    ("slurm list", Words("slurm schedulers list")),
    ("slurm update", Words("slurm schedulers update")),
    (
        "tasks",
        Told("calls of this server end when their work is done: there are no tasks to wait for"),
    ),
    (
        "user-data create",
        Told(
            "declare it in the spec (`user_data`), or write it with `torc user-data update NAME JSON`",
        ),
    ),
    (
        "user-data delete",
        Told(
            "take it out of the spec and call `torc run SPEC`; `torc user-data update NAME null` empties it",
        ),
    ),
    ("user-data delete-all", Told("take them out of the spec and call `torc run SPEC`")),
    ("user-data list-missing", Told("`torc user-data list WORKFLOW` shows which have no value")),
    (
        "user-data update",
        Told("`torc user-data update NAME JSON` (`-w WORKFLOW` for another workflow)"),
    ),
    ("workflows check-resources", Words("reports resources")),
    ("workflows correct-resources", Words("reports correct")),
    ("workflows diagnose", Words("reports summary")),
    ("workflows execution-plan", Words("check")),
    ("workflows init", Words("workflows initialize")),
    (
        "workflows new",
        Told("`torc create SPEC` makes a workflow; `torc new` writes an example to begin with"),
    ),
    ("workflows reconcile", Told("`torc workflows sync-status WORKFLOW`")),
    ("workflows reinit", Words("workflows reinitialize")),
];

/// Options: of which command (empty: any), which, and what it is here.
const OPTIONS: &[(&str, &str, Here)] = &[
    ("", "--no-prompts", Words("--yes")),
    ("", "--poll-interval", NothingWithValue),
    ("", "--claim-backoff-max-secs", NothingWithValue),
    ("", "--log-level", Told("`-v` prints more, `-vv` what happens inside, `-q` only failures")),
    (
        "",
        "--skip-checks",
        Told("a spec with errors never runs; warnings do not keep it from running"),
    ),
    ("", "--persistent", Told("`torc runner WORKFLOW` stays until the workflow is complete")),
    ("", "-s", Nothing),
    ("", "--standalone", Nothing),
    ("create", "--dry-run", Told("`torc check SPEC` shows what would be created")),
    (
        "create",
        "--no-resource-monitoring",
        Told("write `resource_monitor: {enabled: false}` into the spec"),
    ),
    ("exec", "--dry-run", Told("`torc new` and `torc check` show a workflow before it runs")),
    ("exec", "--generate-plots", Told("`torc plot` draws them afterwards")),
    (
        "exec",
        "--monitor",
        Told("jobs are measured always; a spec's `resource_monitor` sets how often"),
    ),
    (
        "exec",
        "--monitor-compute-node",
        Told("jobs are measured always; a spec's `resource_monitor` sets how often"),
    ),
    ("exec", "--description", Told("`--name` names the workflow; a spec has a `description`")),
    (
        "exec",
        "--stdio",
        Told("write a spec: `stdio` is a key of its jobs (`torc help spec stdio`)"),
    ),
    ("exec", "-i", Told("jobs are measured always; a spec's `resource_monitor` sets how often")),
    (
        "jobs list",
        "--include-relationships",
        Told("`torc job-dependencies` lists what jobs depend on, read and write"),
    ),
    (
        "jobs list",
        "--upstream-job-id",
        Told("`torc job-dependencies job-job` lists what depends on what"),
    ),
    ("jobs retry", "--reinit", Nothing),
    ("jobs retry", "--reinitialize", Nothing),
    ("results list", "--include-logs", Nothing),
    ("run", "--end-time", Told("`--time-limit TIME` says how long from now")),
    ("slurm generate", "--walltime-strategy", Told("`--max-walltime` or `--walltime-multiplier`")),
    (
        "slurm parse-logs",
        "--workflow-id",
        Told("`torc slurm parse-logs DIR` reads all in the directory"),
    ),
    ("slurm sacct", "--save-json", Told("`torc slurm sacct WORKFLOW -f json > FILE`")),
    (
        "slurm schedule-nodes",
        "--job-prefix",
        Told("allocations are named by the server, so that it knows them again"),
    ),
    (
        "slurm schedule-nodes",
        "--keep-submission-scripts",
        Told("the scripts stay in the output directory"),
    ),
    ("slurm schedule-nodes", "--num-hpc-jobs", Words("--num-allocations")),
    ("slurm schedule-nodes", "--scheduler-config-id", Told("`--scheduler NAME`")),
    (
        "slurm schedule-nodes",
        "--suppress-actions",
        Told("actions of the spec run when their time comes; take them out of it"),
    ),
    (
        "submit",
        "--max-parallel-jobs",
        Told("`torc slurm schedule-nodes WORKFLOW --max-parallel-jobs N`"),
    ),
    ("submit", "-i", Nothing),
    ("submit", "-p", NothingWithValue),
    ("workflows export", "--include-results", Words("--full")),
    ("workflows export", "--include-events", Words("--full")),
    ("workflows list", "--all-users", Nothing),
    ("workflows list", "--archived-only", Told("`--include-archived` lists them with the others")),
    ("workflows reset-status", "--reinitialize", Nothing),
];

/// Global options that take a value: what follows them is no command.
const WITH_VALUE: [&str; 7] =
    ["-f", "-F", "--format", "--url", "--api-url", "--token-file", "--log-level"];

/// Reads a call again as Torc 1.0.0 would mean it, if it was refused for a word that is unknown here.
pub fn read<T>(
    arguments: &[OsString],
    parse: impl Fn(&[OsString]) -> Result<T, Error>,
) -> Result<T, Error> {
    let error = match parse(arguments) {
        Err(error) if is_about_a_word(&error) => error,
        other => return other,
    };
    match translate(arguments) {
        Some(meant) => parse(&meant).map_err(|_| error),
        None => Err(error),
    }
}

fn is_about_a_word(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict
    )
}

/// The call in our words; `None` if nothing in it is known to have others here.
fn translate(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let mut out: Vec<OsString> = arguments.to_vec();
    let mut is_changed = false;
    if let Some((at, (words, Words(here)))) = command(&out) {
        out.splice(at..at + words.split(' ').count(), here.split(' ').map(OsString::from));
        is_changed = true;
    }
    let mut at = 1;
    while at < out.len() && out[at] != "--" {
        let here = out[at].to_str().and_then(|word| option(&out, word));
        match here {
            Some(Words(name)) if *name == "--yes" && !has_option(&out, "yes") => {
                out.remove(at);
            }
            Some(Words(name)) => out[at] = name.into(),
            Some(Nothing) => {
                out.remove(at);
            }
            Some(NothingWithValue) => {
                out.drain(at..out.len().min(at + 2));
            }
            Some(Told(_)) | None => {
                at += 1;
                continue;
            }
        }
        is_changed = true;
    }
    is_changed.then_some(out)
}

/// The same error with what to do here, if it is about a word that Torc 1.0.0 knows.
pub fn tell(mut error: Error, arguments: &[OsString]) -> Error {
    if !is_about_a_word(&error) {
        return error;
    }
    let word = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
        .into_iter()
        .find_map(|kind| error.get(kind).map(ToString::to_string))
        .unwrap_or_default();
    let word = word.split([' ', '=']).next().unwrap_or_default();
    let told = match (option(arguments, word), command(arguments)) {
        (Some(Told(text)), _) | (_, Some((_, (_, Told(text))))) => *text,
        _ => return error,
    };
    let tip = format!("coming from Torc 1.0.0: {told}");
    // What clap finds similar by its letters would lead elsewhere.
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// The row of a call's command, and where its first word stands.
fn command(arguments: &[OsString]) -> Option<(usize, &'static (&'static str, Here))> {
    let at = first_word(arguments)?;
    let begins = |words: &str| {
        let mut given = arguments[at..].iter();
        words.split(' ').all(|word| given.next().is_some_and(|given| given == word))
    };
    let rows = COMMANDS.iter().filter(|(words, _)| begins(words));
    rows.max_by_key(|(words, _)| words.len()).map(|row| (at, row))
}

fn first_word(arguments: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = arguments.get(at) {
        match word.to_str() {
            Some(word) if WITH_VALUE.contains(&word) => at += 2,
            Some(word) if word.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// What an option of this call is here.
fn option(arguments: &[OsString], word: &str) -> Option<&'static Here> {
    let at = first_word(arguments)?;
    let is_of = |of: &str| {
        let mut given = arguments[at..].iter();
        of.is_empty() || of.split(' ').all(|word| given.next().is_some_and(|given| given == word))
    };
    OPTIONS.iter().find(|(of, name, _)| *name == word && is_of(of)).map(|(_, _, here)| here)
}

/// The command of this call has such an option.
fn has_option(arguments: &[OsString], long: &str) -> bool {
    let mut command = super::Cli::command();
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        if let Some(found) = command.find_subcommand(word) {
            command = found.clone();
        }
    }
    command.get_arguments().any(|argument| argument.get_long() == Some(long))
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;

    /// Every call in the documents of Torc 1.0.0, a line each.
    const CALLS: &str = include_str!("torc_1_0_calls.txt");

    fn parsed(call: &str) -> Result<(), Error> {
        let words = ["torc"].into_iter().chain(call.split(' ')).map(OsString::from);
        let words: Vec<OsString> = words.collect();
        read(&words, |words| Cli::try_read(words).map(|_| ())).map_err(|error| tell(error, &words))
    }

    #[test]
    fn every_call_of_torc_1_0_is_taken_or_answered() {
        let (mut taken, mut answered) = (0, 0);
        for call in CALLS.lines().filter(|line| !line.is_empty()) {
            match parsed(call) {
                Ok(()) => taken += 1,
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains("coming from Torc 1.0.0: "), "torc {call}: {said}");
                    answered += 1;
                }
            }
        }
        assert_eq!(taken + answered, 206);
        assert!(taken >= 105, "{taken} taken, {answered} answered");
    }

    /// A tip that names a command which does not exist leads nowhere.
    #[test]
    fn every_command_that_an_answer_names_exists() {
        let told = COMMANDS.iter().map(|(_, here)| here);
        let told = told.chain(OPTIONS.iter().map(|(_, _, here)| here));
        let mut seen = 0;
        for here in told {
            let text = match here {
                Words(words) if !words.starts_with('-') => format!("`torc {words}`"),
                Told(text) => (*text).to_owned(),
                _ => continue,
            };
            for call in text.split('`').skip(1).step_by(2).filter_map(|t| t.strip_prefix("torc ")) {
                let mut command = Cli::command();
                command.build();
                for word in call.split(' ').filter(|word| !word.is_empty()) {
                    let is_name = !word.starts_with('-')
                        && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                    if word.starts_with("--") && word.len() > 2 {
                        let long = &word[2..];
                        let is_known =
                            command.get_arguments().any(|option| option.get_long() == Some(long));
                        assert!(is_known, "`torc {call}` has no `{word}`");
                    } else if is_name && command.has_subcommands() {
                        let found = command.find_subcommand(word);
                        assert!(found.is_some(), "`torc {call}` does not exist: {word}");
                        command = found.expect("it was found").clone();
                    }
                }
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn words_that_mean_the_same_are_read_as_they_were_meant() {
        let meant = |call: &str| {
            let words: Vec<OsString> = call.split(' ').map(OsString::from).collect();
            let words = translate(&words).expect("it is translated");
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(meant("torc -s run a.yaml"), "torc run a.yaml");
        assert_eq!(
            meant("torc -f json delete 1 --no-prompts"),
            "torc -f json workflows delete 1 --yes"
        );
        assert_eq!(meant("torc cancel 1 --no-prompts"), "torc cancel 1");
        assert_eq!(meant("torc events monitor 1"), "torc events --follow 1");
        assert_eq!(meant("torc watch 1 --poll-interval 5"), "torc watch 1");
        assert_eq!(
            meant("torc slurm schedule-nodes 1 --num-hpc-jobs 2"),
            "torc slurm schedule-nodes 1 --num-allocations 2"
        );
    }

    #[test]
    fn what_follows_two_dashes_is_left_alone() {
        let words: Vec<OsString> =
            ["torc", "exec", "--", "tool", "-s", "--no-prompts"].map(OsString::from).to_vec();
        assert_eq!(translate(&words), None);
    }
}

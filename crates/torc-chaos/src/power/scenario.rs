//! The run that is recorded: a server and a runner that work, a server that is killed while jobs
//! run, results that wait on the runner's disk, a server that ends in order and comes again.

use super::process::{RecordedProgram, Talk};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};
use torc_model::api::AttemptView;
use torc_model::status::AttemptState;

/// A phase that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks; each of them is an answer that must last.
const LOOK: Duration = Duration::from_millis(15);

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Completed, failed and so on.
    pub state: AttemptState,
    /// Its return code.
    pub code: Option<i64>,
}

/// What clients were told, with the length that the journal had when they had heard it.
#[derive(Default, Debug)]
pub struct Told {
    /// Workflows that were created.
    pub workflows: BTreeMap<i64, u64>,
    /// Ends of attempts, by row.
    pub ends: BTreeMap<i64, (Ended, u64)>,
}

/// Plays it. Everything has been killed when it returns.
pub fn play(program: &mut RecordedProgram) -> io::Result<Told> {
    let mut told = Told::default();
    program.start_server()?;
    let first = create(program, &mut told, &spec("first", "true"))?;
    program.start_runner(first)?;
    until(program, &mut told, first, |look| look.is_complete)?;
    program.await_runner()?;

    // The server dies while jobs run; their results wait on the runner's disk.
    let second =
        create(program, &mut told, &spec("second", "until [ -e go ]; do sleep 0.02; done"))?;
    program.start_runner(second)?;
    until(program, &mut told, second, |look| look.running >= 3)?;
    program.kill_server()?;
    std::fs::write(program.root.join("go"), "")?;
    program.await_spool(3, PATIENCE)?;
    program.start_server()?;
    until(program, &mut told, second, |look| look.is_complete)?;
    program.await_runner()?;

    // An end in good order writes the log into the database.
    program.stop_server()?;
    program.start_server()?;
    let third = create(program, &mut told, &spec("third", "true"))?;
    program.start_runner(third)?;
    until(program, &mut told, third, |look| look.is_complete)?;
    program.kill_all()?;
    Ok(told)
}

/// Jobs in a row and beside each other, one that is retried and one that fails.
pub fn spec(name: &str, wait: &str) -> Value {
    json!({
        "name": name,
        "failure_handlers": [{"name": "h", "rules": [
            {"exit_codes": [10], "max_retries": 3, "recovery_script": "true"}]}],
        "jobs": [
            {"name": "a", "command": wait},
            {"name": "b", "command": wait},
            {"name": "c", "command": wait},
            {"name": "d", "command": "echo done", "depends_on": ["a", "b"]},
            {"name": "e", "command": "[ $TORC_ATTEMPT_ID != 1 ] || exit 10", "failure_handler": "h",
             "depends_on": ["c"]},
            {"name": "f", "command": "exit 3", "depends_on": ["d"]},
            {"name": "g", "command": "true", "depends_on": ["e"]},
        ],
    })
}

/// Creates a workflow and notes that it was acknowledged.
pub fn create(program: &RecordedProgram, told: &mut Told, spec: &Value) -> io::Result<i64> {
    let body = json!({"spec": spec, "initialize": true, "directory": program.root});
    let created: Value = program.talk()?.post("/workflows", &body)?;
    let id = created["id"].as_i64().ok_or_else(|| io::Error::other("a workflow without id"))?;
    told.workflows.insert(id, program.journal_length()?);
    Ok(id)
}

/// What a client sees of a workflow.
pub struct Look {
    /// Everything has ended.
    pub is_complete: bool,
    /// Jobs that run.
    pub running: usize,
}

/// Looks, and notes which ends it was told of.
pub fn look(
    program: &RecordedProgram,
    talk: &Talk,
    told: &mut Told,
    workflow: i64,
) -> io::Result<Look> {
    let attempts = talk.attempts(workflow)?;
    let length = program.journal_length()?;
    for attempt in attempts.iter().filter(|attempt| !attempt.state.is_live()) {
        told.ends.entry(attempt.id.0).or_insert((ended(attempt), length));
    }
    Ok(Look { is_complete: talk.is_complete(workflow)?, running: talk.running(workflow)? })
}

/// How an attempt ended.
pub fn ended(attempt: &AttemptView) -> Ended {
    Ended { state: attempt.state, code: attempt.return_code }
}

fn until(
    program: &mut RecordedProgram,
    told: &mut Told,
    workflow: i64,
    is_it: impl Fn(&Look) -> bool,
) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let talk = program.talk()?;
    while !is_it(&look(program, &talk, told, workflow)?) {
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("workflow {workflow} does not get on")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

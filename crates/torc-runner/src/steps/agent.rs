//! Calls of the agent: which program, with which arguments, and how many calls a workflow may make.
//!
//! The budget is a file beside the logs that all runners of the workflow share: one line per call.
//! Calls at once are counted by locked files, which the system unlocks when a runner dies.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use torc_model::steps::{Permissions, StepAgent};

/// Stands for the prompt among the arguments; without it the prompt comes by standard input.
const PROMPT: &str = "{prompt}";

/// Program and arguments of a call; the prompt is one argument or none.
pub fn arguments(agent: &StepAgent, prompt: &str) -> (Vec<String>, bool) {
    let mut words = agent.command.clone();
    let is_claude = words
        .first()
        .is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == "claude"));
    if is_claude {
        let more: &[&str] = match agent.permissions {
            Permissions::Ask => &[],
            Permissions::Edit => &["--permission-mode", "acceptEdits"],
            Permissions::All => &["--dangerously-skip-permissions"],
        };
        words.extend(more.iter().map(|word| (*word).to_owned()));
    }
    let by_argument = words.iter().any(|word| word == PROMPT);
    let words = words
        .into_iter()
        .map(|word| if word == PROMPT { prompt.to_owned() } else { word })
        .collect();
    (words, !by_argument)
}

/// The files of which a call must hold one.
pub fn slots(most: u64, dir: &Path, workflow: i64) -> Vec<PathBuf> {
    (0..most).map(|number| dir.join(format!("agent_wf{workflow}_slot{number}"))).collect()
}

/// A slot that was free, held now; it is free again when the file is closed.
pub fn free_slot(paths: &[PathBuf]) -> io::Result<Option<File>> {
    for path in paths {
        let file = open_slot(path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Waits until a slot is free, and holds it.
pub fn wait_for_slot(path: &Path) -> io::Result<File> {
    let file = open_slot(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn open_slot(path: &Path) -> io::Result<File> {
    torc_fs::append_log(path)
}

/// Counts one call against the budget; a sentence when it is used up.
pub fn count_call(
    agent: &StepAgent,
    dir: &Path,
    workflow: i64,
    what: &str,
) -> io::Result<Result<(), String>> {
    let Some(most) = agent.max_calls else { return Ok(Ok(())) };
    let mut file = torc_fs::append_log(&dir.join(format!("agent_wf{workflow}_calls")))?;
    // Two runners must not both take the last call.
    flock(&file, FlockOperation::LockExclusive)?;
    let mut calls = String::new();
    file.read_to_string(&mut calls)?;
    let made = calls.lines().count() as u64;
    if made >= most {
        let message = format!(
            "the agent's budget is used up: {made} of {most} calls were made (`agent.max_calls`)"
        );
        return Ok(Err(message));
    }
    file.write_all(format!("{}\n", what.escape_debug()).as_bytes())?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_is_data() {
        let agent = StepAgent { command: vec!["x".into(), PROMPT.into()], ..StepAgent::default() };
        assert_eq!(
            arguments(&agent, "a'; rm -rf /"),
            (vec!["x".into(), "a'; rm -rf /".into()], false)
        );
        let edit = StepAgent { permissions: Permissions::Edit, ..StepAgent::default() };
        assert_eq!(arguments(&edit, "p").0, ["claude", "-p", "--permission-mode", "acceptEdits"]);
        assert_eq!(
            arguments(&StepAgent::default(), "p"),
            (vec!["claude".into(), "-p".into()], true)
        );
    }

    #[test]
    fn the_budget_is_counted_over_all_calls() {
        let dir = tempfile::tempdir().unwrap();
        let agent = StepAgent { max_calls: Some(2), ..StepAgent::default() };
        let call = || count_call(&agent, dir.path(), 1, "j").unwrap();
        assert_eq!((call(), call()), (Ok(()), Ok(())));
        assert!(call().unwrap_err().contains("2 of 2 calls"));
    }

    #[test]
    fn slots_are_given_back_and_the_next_in_line_gets_them() {
        let dir = tempfile::tempdir().unwrap();
        let paths = slots(2, dir.path(), 1);
        let (first, second) = (free_slot(&paths).unwrap(), free_slot(&paths).unwrap());
        assert!(first.is_some() && second.is_some() && free_slot(&paths).unwrap().is_none());
        let waiting = std::thread::spawn({
            let path = paths[1].clone();
            move || wait_for_slot(&path).unwrap()
        });
        drop(second);
        let third = waiting.join().unwrap();
        assert!(free_slot(&paths).unwrap().is_none());
        drop(third);
        assert!(free_slot(&paths).unwrap().is_some());
    }
}

//! Calls of the agent: which program, with which arguments, and how many calls a workflow may make.
//!
//! The budget is a file beside the logs that all runners of the workflow share: one line per call. Calls at once are
//! counted by locked files, which the system unlocks when a runner dies.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use torc_model::steps::{Agent, Permissions};

/// Stands for the prompt among the arguments; without it the prompt comes by standard input.
const PROMPT: &str = "{prompt}";

/// Program and arguments of a call; the prompt is one argument or none.
pub fn arguments(agent: &Agent, prompt: &str) -> (Vec<String>, bool) {
    let mut words = agent.command.clone();
    let is_claude = words.first().is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == "claude"));
    if is_claude {
        let more: &[&str] = match agent.permissions {
            Permissions::Ask => &[],
            Permissions::Edit => &["--permission-mode", "acceptEdits"],
            Permissions::All => &["--dangerously-skip-permissions"],
        };
        words.extend(more.iter().map(|word| (*word).to_owned()));
    }
    let by_argument = words.iter().any(|word| word == PROMPT);
    let words = words.into_iter().map(|word| if word == PROMPT { prompt.to_owned() } else { word }).collect();
    (words, !by_argument)
}

/// Whether a call may be made.
#[derive(Debug)]
pub enum Permit {
    /// Yes; the slot is free again when this is dropped.
    Granted(Option<File>),
    /// Not now: as many calls as allowed are being made.
    Busy,
    /// No: the budget is used up.
    Exhausted(String),
}

/// Asks for the right to make one call.
pub fn permit(agent: &Agent, dir: &Path, workflow: i64, what: &str) -> io::Result<Permit> {
    let slot = match agent.max_parallel {
        Some(most) => {
            let mut free = None;
            for number in 0..most {
                let path = dir.join(format!("agent_wf{workflow}_slot{number}"));
                let file = File::options().create(true).append(true).open(path)?;
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    free = Some(file);
                    break;
                }
            }
            let Some(free) = free else { return Ok(Permit::Busy) };
            Some(free)
        }
        None => None,
    };
    if let Some(most) = agent.max_calls {
        let mut file =
            File::options().create(true).append(true).read(true).open(dir.join(format!("agent_wf{workflow}_calls")))?;
        // Two runners must not both take the last call.
        flock(&file, FlockOperation::LockExclusive)?;
        let mut calls = String::new();
        file.read_to_string(&mut calls)?;
        let made = calls.lines().count() as u64;
        if made >= most {
            let message =
                format!("the agent's budget is used up: {made} of {most} calls were made (`agent.max_calls`)");
            return Ok(Permit::Exhausted(message));
        }
        file.write_all(format!("{}\n", what.escape_debug()).as_bytes())?;
    }
    Ok(Permit::Granted(slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_is_data() {
        let agent = Agent { command: vec!["x".into(), PROMPT.into()], ..Agent::default() };
        assert_eq!(arguments(&agent, "a'; rm -rf /"), (vec!["x".into(), "a'; rm -rf /".into()], false));
        let edit = Agent { permissions: Permissions::Edit, ..Agent::default() };
        assert_eq!(arguments(&edit, "p").0, ["claude", "-p", "--permission-mode", "acceptEdits"]);
        assert_eq!(arguments(&Agent::default(), "p"), (vec!["claude".into(), "-p".into()], true));
    }

    #[test]
    fn the_budget_is_counted_over_all_calls_and_slots_are_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let agent = Agent { max_calls: Some(3), max_parallel: Some(1), ..Agent::default() };
        let call = || permit(&agent, dir.path(), 1, "j").unwrap();
        let first = call();
        assert!(matches!(first, Permit::Granted(Some(_))));
        assert!(matches!(call(), Permit::Busy));
        drop(first);
        assert!(matches!(call(), Permit::Granted(_)));
        assert!(matches!(call(), Permit::Granted(_)));
        assert!(matches!(call(), Permit::Exhausted(_)));
    }
}

//! Attempts in steps of their own (`execution_config.mode: slurm`): each has an agent under an `srun` of
//! its own, so that Slurm shows and accounts it. The agent is the one that works on other nodes:
//! limits, measuring and ending are the same as everywhere.

use crate::agent::{GIVEN_UP_AFTER, Hello, ToAgent};
use crate::agents::{AgentLink, now_ms, read, srun, write};
use crate::attempt::{lost_report, step_failed_report};
use crate::dispatcher::Event;
use crate::mailbox::Mailbox;
use crate::places::{NODELIST, add_places};
use crate::procfs;
use crate::steps::Live;
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use torc_model::api::{AttemptPacket, AttemptRef};
use torc_model::ids::AttemptId;

/// Longest name of a step.
const MAX_NAME: usize = 64;

/// Starts attempts in steps.
#[derive(Clone)]
pub struct StepAgents {
    shared: Arc<Shared>,
}

/// What every step is made from.
pub struct Shared {
    /// The program and its first arguments that run an agent.
    pub program: Vec<OsString>,
    /// CPUs that each node has for the allocation.
    pub num_cpus: i64,
    /// Slurm's names of the nodes; the first is the runner's own.
    pub nodes: Vec<String>,
    /// What an agent must know; key, directory and node are filled in.
    pub hello: Hello,
    /// Hears what happens.
    pub events: Mailbox<Event>,
    /// Passes on what the steps of jobs do.
    pub live: Arc<Live>,
    /// Attempts that have not ended.
    pub open: Mutex<HashMap<AttemptId, Sender<ToAgent>>>,
}

impl StepAgents {
    /// For a runner.
    pub fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Starts an attempt on a node. Whatever comes of it, its end is heard.
    pub fn start(&self, mut packet: Box<AttemptPacket>, gpus: Vec<String>, node: usize) {
        if !packet.env.contains_key(NODELIST)
            && let Some(name) = self.shared.nodes.get(node)
        {
            add_places(&mut packet.env, &[(name.clone(), packet.num_cpus.max(1))]);
        }
        let attempt = AttemptRef { id: packet.id, token: packet.token.clone() };
        let name = step_name(&packet.job_name);
        let (sender, inbox) = mpsc::channel();
        // The first message, whatever is said to it meanwhile.
        let _ = sender.send(ToAgent::Start(packet, gpus));
        self.shared.open().insert(attempt.id, sender);
        let shared = self.shared.clone();
        let id = attempt.id;
        let thread = std::thread::Builder::new().name("torc-step".into()).stack_size(512 << 10);
        let failed = attempt.clone();
        let spawned = thread.spawn(move || shared.attend(attempt, &name, node, inbox));
        if let Err(error) = spawned {
            self.shared.open().remove(&id);
            let report = step_failed_report(failed, &error.to_string(), crate::time::now_ms());
            self.shared.events.send(Event::Ended(Box::new(report)));
        }
    }

    /// Tells all.
    pub fn tell_all(&self, message: &dyn Fn() -> ToAgent) {
        for sender in self.shared.open().values() {
            let _ = sender.send(message());
        }
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, HashMap<AttemptId, Sender<ToAgent>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the start of the step to its end.
    fn attend(&self, attempt: AttemptRef, name: &str, node: usize, inbox: Receiver<ToAgent>) {
        let place = self.nodes.get(node).map_or("", String::as_str);
        let hello = Hello {
            key: format!("{}+s{}", self.hello.key, attempt.id),
            token_dir: self.hello.token_dir.join(format!("s{}", attempt.id)),
            node_name: place.to_owned(),
            is_step: true,
            ..self.hello.clone()
        };
        let mut command = srun(&self.program, self.num_cpus, place);
        command.arg(format!("--job-name={name}")).args(&self.program);
        let greeted =
            AgentLink::open(command, place).and_then(|(link, pipe)| link.greet(pipe, &hello));
        let failure = match greeted {
            Ok(greeted) => {
                let (input, child, output) = greeted.into_parts();
                let heard = Arc::new(AtomicU64::new(now_ms()));
                let process = i32::try_from(child.id()).ok().and_then(procfs::find_process);
                let seen = heard.clone();
                let writer = std::thread::Builder::new().stack_size(512 << 10);
                match writer.spawn(move || write(input, &inbox, &seen, process.as_ref())) {
                    Err(error) => Some((error.to_string(), true)),
                    Ok(_) => {
                        // The agent's input ends when nothing can be said to it any more; then it
                        // leaves, and so does its step.
                        let ended = |id: AttemptId| drop(self.open().remove(&id));
                        let (why, said_bye) =
                            read(output, child, &heard, &self.events, &self.live, &ended);
                        let silent = now_ms().saturating_sub(heard.load(Ordering::Relaxed));
                        let is_open = self.open().contains_key(&attempt.id);
                        if is_open && !said_bye {
                            // That Slurm has given a step up does not prove that its processes are
                            // dead, and nothing tells when they are.
                            let silent = Duration::from_millis(silent);
                            std::thread::sleep(GIVEN_UP_AFTER.saturating_sub(silent));
                        }
                        is_open.then_some((why, false))
                    }
                }
            }
            Err(error) => Some((error.to_string(), true)),
        };
        if hello.token_dir.exists()
            && let Err(error) = std::fs::remove_dir_all(&hello.token_dir)
        {
            tracing::debug!(%error, "the tokens of a step could not be removed");
        }
        if let Some((why, is_unstarted)) = failure
            && self.open().remove(&attempt.id).is_some()
        {
            let now = crate::time::now_ms();
            let report = match is_unstarted {
                true => step_failed_report(attempt, &why, now),
                false => lost_report(attempt, place, &why, now),
            };
            self.events.send(Event::Ended(Box::new(report)));
        }
    }
}

/// A job's name as Slurm takes it.
fn step_name(job: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = job.chars().take(MAX_NAME).map(plain).collect();
    if name.is_empty() { "job".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_steps_are_words() {
        assert_eq!(step_name("train_1"), "train_1");
        assert_eq!(step_name("a b|c\n"), "a_b_c_");
        assert_eq!(step_name(""), "job");
        assert_eq!(step_name(&"x".repeat(200)).len(), MAX_NAME);
    }
}

//! The agents of a runner: starts one on each other node of the allocation with `srun`, speaks with
//! them, and notices when one is lost.

use crate::agent::{FromAgent, GIVEN_UP_AFTER, Hello, LOST_AFTER, PING, ToAgent};
use crate::dispatcher::Event;
use crate::mailbox::Mailbox;
use crate::procfs::{self, Process};
use crate::step_agents::StepAgents;
use crate::steps::Live;
use crate::sys;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use torc_model::ids::AttemptId;
use torc_model::json::from_text;

/// Nodes that have not answered after this long are left out.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A node on which an agent works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeReady {
    /// Slurm's name.
    pub name: String,
    /// CPUs that this allocation has there.
    pub num_cpus: i64,
    /// Names of its GPUs.
    pub gpus: Vec<String>,
}

/// The agents that came up. Node 0 is the runner's own; agent `n` is that of node `n`.
#[derive(Default)]
pub struct Agents {
    senders: Vec<Sender<ToAgent>>,
    /// Attempts run in steps of their own.
    pub steps: Option<StepAgents>,
}

/// What an agent is started with.
pub struct Start<'a> {
    /// The program and its first arguments that run an agent.
    pub program: &'a [OsString],
    /// Names of the other nodes.
    pub nodes: &'a [String],
    /// CPUs that each node has for the allocation.
    pub num_cpus: i64,
    /// Says what the agent of a node must know.
    pub hello: &'a dyn Fn(usize, &str) -> Hello,
    /// Hears what happens there.
    pub events: &'a Mailbox<Event>,
    /// Passes on what steps do there.
    pub live: &'a Arc<Live>,
}

impl Agents {
    /// Starts an agent on each node and waits until it answers. Nodes without an answer are named
    /// with the reason. Blocks.
    pub fn start(start: &Start<'_>) -> (Self, Vec<NodeReady>, Vec<String>) {
        let (answers, inbox) = mpsc::channel();
        let mut problems = Vec::new();
        let mut waiting = 0;
        for (index, name) in start.nodes.iter().enumerate() {
            let mut command = srun(start.program, start.num_cpus, name);
            command.args(start.program);
            match AgentLink::open(command, name) {
                Ok((link, pipe)) => {
                    let answers = answers.clone();
                    let hello = (start.hello)(index + 1, name);
                    waiting += 1;
                    let greeted = std::thread::Builder::new().spawn(move || {
                        let _ = answers.send((index, link.greet(pipe, &hello)));
                    });
                    if let Err(error) = greeted {
                        waiting -= 1;
                        problems.push(format!("{name}: {error}"));
                    }
                }
                Err(error) => problems.push(format!("{name}: `srun` cannot be started: {error}")),
            }
        }
        let deadline = Instant::now() + START_PATIENCE;
        let mut ready = Vec::new();
        while waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(left) {
                Ok((index, Ok(greeted))) => ready.push((index, greeted)),
                Ok((index, Err(error))) => {
                    problems.push(format!("{}: {error}", start.nodes[index]))
                }
                Err(_) => {
                    problems.push("no answer from the agents of some nodes".into());
                    break;
                }
            }
            waiting -= 1;
        }
        ready.sort_by_key(|(index, _)| *index);
        let mut agents = Self::default();
        let mut nodes = Vec::new();
        for (_, greeted) in ready {
            let name = greeted.link.name.clone();
            let (num_cpus, gpus) = (greeted.num_cpus, greeted.gpus.clone());
            match greeted.serve(nodes.len() + 1, start.events, start.live) {
                Ok(sender) => {
                    agents.senders.push(sender);
                    nodes.push(NodeReady { name, num_cpus, gpus });
                }
                Err(error) => problems.push(format!("{name}: {error}")),
            }
        }
        (agents, nodes, problems)
    }

    /// Tells the agent of a node. One that is gone hears nothing; the event of its loss follows.
    pub fn tell(&self, node: usize, message: ToAgent) {
        if let Some(sender) = node.checked_sub(1).and_then(|index| self.senders.get(index)) {
            let _ = sender.send(message);
        }
    }

    /// Tells all agents.
    pub fn tell_all(&self, message: impl Fn() -> ToAgent) {
        for sender in &self.senders {
            let _ = sender.send(message());
        }
        if let Some(steps) = &self.steps {
            steps.tell_all(&message);
        }
    }
}

/// An `srun` on a node, without what it runs there.
pub fn srun(program: &[OsString], num_cpus: i64, name: &str) -> Command {
    debug_assert!(!program.is_empty(), "there is something to run");
    let mut command = Command::new("srun");
    // All of the node's share: jobs are placed by the runner. Steps of jobs overlap with it.
    command
        .args(["--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--no-kill"])
        .args(["--kill-on-bad-exit=0", "--quit-on-interrupt"])
        .arg(format!("--cpus-per-task={num_cpus}"))
        .arg(format!("--nodelist={name}"))
        // srun refuses to choose between memory settings that it finds in the environment.
        .env_remove("SLURM_MEM_PER_CPU")
        .env_remove("SLURM_MEM_PER_GPU");
    command
}

/// One `srun` with an agent behind it.
pub struct AgentLink {
    name: String,
    child: Child,
    input: ChildStdin,
}

/// An agent that answers.
pub struct AnsweringAgent {
    link: AgentLink,
    output: BufReader<std::process::ChildStdout>,
    num_cpus: i64,
    gpus: Vec<String>,
}

impl AgentLink {
    /// Starts it.
    pub fn open(mut command: Command, name: &str) -> io::Result<(Self, std::process::ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => {
                Ok((Self { name: name.to_owned(), child, input }, output))
            }
            _ => Err(io::Error::other("it has no pipes")),
        }
    }

    /// Says hello and waits for the answer.
    pub fn greet(
        mut self,
        output: std::process::ChildStdout,
        hello: &Hello,
    ) -> io::Result<AnsweringAgent> {
        let mut line = serde_json::to_vec(hello)?;
        line.push(b'\n');
        self.input.write_all(&line)?;
        let mut output = BufReader::new(output);
        let mut answer = String::new();
        output.read_line(&mut answer)?;
        match from_text(&answer) {
            Ok(FromAgent::Ready(num_cpus, gpus)) => {
                Ok(AnsweringAgent { link: self, output, num_cpus, gpus })
            }
            _ => {
                let ended = self.child.wait()?;
                Err(io::Error::other(format!("its agent did not come up: {ended}")))
            }
        }
    }
}

impl AnsweringAgent {
    /// Its input, its process and its output.
    pub fn into_parts(self) -> (ChildStdin, Child, BufReader<std::process::ChildStdout>) {
        (self.link.input, self.link.child, self.output)
    }

    /// From here on messages go both ways, by two threads.
    fn serve(
        self,
        node: usize,
        events: &Mailbox<Event>,
        live: &Arc<Live>,
    ) -> io::Result<Sender<ToAgent>> {
        let Self { link: AgentLink { name, child, input }, output, .. } = self;
        let (sender, inbox) = mpsc::channel();
        let heard = Arc::new(AtomicU64::new(now_ms()));
        let srun = i32::try_from(child.id()).ok().and_then(procfs::find_process);
        let thread = |what: &str| {
            std::thread::Builder::new().name(format!("torc-{what}{node}")).stack_size(512 << 10)
        };
        let seen = heard.clone();
        thread("to-agent").spawn(move || write(input, &inbox, &seen, srun.as_ref()))?;
        let (events, live) = (events.clone(), live.clone());
        thread("of-agent").spawn(move || {
            let (why, said_bye) = read(output, child, &heard, &events, &live, &|_| {});
            let silent =
                Duration::from_millis(now_ms().saturating_sub(heard.load(Ordering::Relaxed)));
            // That `srun` or Slurm has given a node up does not prove that its processes are dead.
            let proof_in = match said_bye {
                true => Duration::ZERO,
                false => GIVEN_UP_AFTER.saturating_sub(silent),
            };
            events.send(Event::NodeLost { node, name, why, proof_in });
        })?;
        Ok(sender)
    }
}

/// Now, by a clock that goes on while the machine sleeps.
pub fn now_ms() -> u64 {
    u64::try_from(sys::boottime().as_millis()).unwrap_or(u64::MAX)
}

/// Until the runner drops its side, which ends the agent's input, or the agent cannot be reached.
pub fn write(
    mut input: ChildStdin,
    inbox: &Receiver<ToAgent>,
    heard: &AtomicU64,
    srun: Option<&Process>,
) {
    loop {
        let message = match inbox.recv_timeout(PING) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => ToAgent::Ping,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let silent = Duration::from_millis(now_ms().saturating_sub(heard.load(Ordering::Relaxed)));
        if silent >= LOST_AFTER {
            tracing::warn!("an agent has been silent for {} s", silent.as_secs());
            // The reader hears its end and tells of the loss.
            if let Some(srun) = srun {
                let _ = torc_fence::ending::signal_exactly(srun, Signal::KILL);
            }
            return;
        }
        let sent = serde_json::to_vec(&message).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            input.write_all(&line)
        });
        if let Err(error) = sent {
            tracing::debug!(%error, "an agent hears nothing");
            return;
        }
    }
}

/// Until the agent's output ends. Says why, and whether the agent ended its attempts before.
pub fn read(
    output: BufReader<std::process::ChildStdout>,
    mut child: Child,
    heard: &AtomicU64,
    events: &Mailbox<Event>,
    live: &Live,
    on_end: &dyn Fn(AttemptId),
) -> (String, bool) {
    let mut said_bye = false;
    for line in output.lines() {
        let Ok(line) = line else { break };
        heard.store(now_ms(), Ordering::Relaxed);
        match from_text(&line) {
            Ok(FromAgent::Started(report)) => events.send(Event::Started(report)),
            Ok(FromAgent::Ended(report)) => {
                let attempt = report.attempt.id;
                live.end(attempt);
                events.send(Event::Ended(report));
                on_end(attempt);
            }
            Ok(FromAgent::Steps(all)) => {
                for steps in all {
                    for event in steps.events {
                        live.push(steps.attempt.id, &steps.attempt.token, event);
                    }
                }
            }
            Ok(FromAgent::Bye) => said_bye = true,
            Ok(FromAgent::Pong | FromAgent::Ready(..)) => {}
            // What `srun` itself prints.
            Err(error) => tracing::debug!(%error, "a line that is not an agent's"),
        }
    }
    let why = match child.wait() {
        Ok(status) => format!("the `srun` of its agent ended with {status}"),
        Err(error) => format!("its agent cannot be waited for: {error}"),
    };
    (why, said_bye)
}

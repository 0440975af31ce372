//! Runs a step tree on this machine without a server: for trying a handler out, and for tests.

use super::turns::{Answer, Ask, StepRun};
use crate::attempt::{Attempt, AttemptContext};
use crate::mailbox::mailbox;
use crate::process::Setup;
use crate::supervisor::{ProcessEvent, Rules, Supervisor};
use crate::tasks::Tasks;
use crate::token_files::TokenFiles;
use rustix::process::Signal;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use torc_model::api::{AttemptPacket, CompletionReport};
use torc_model::ids::{RunnerId, WorkflowId};
use torc_model::plan::Execution;
use torc_model::steps::Step;

/// The key of the poller that the supervisor leaves free.
const DONE_KEY: u64 = 0;

static RUNS: AtomicU64 = AtomicU64::new(0);

/// What to run and where.
#[derive(Clone, Debug)]
pub struct LocalRun {
    /// The attempt.
    pub packet: AttemptPacket,
    /// The workflow's name.
    pub workflow_name: String,
    /// Where paths start.
    pub working_dir: PathBuf,
    /// Where logs go.
    pub output_dir: PathBuf,
    /// Between the termination signal and SIGKILL.
    pub grace: Duration,
    /// Takes the place of the first try of its first step.
    pub first_try: Option<Step>,
}

/// Runs an attempt with steps to its end.
pub fn run_locally(local: LocalRun) -> io::Result<Box<CompletionReport>> {
    std::fs::create_dir_all(local.output_dir.join(torc_model::files::LOGS))?;
    crate::sys::become_subreaper()?;
    let context = Arc::new(AttemptContext {
        workflow_id: WorkflowId(0),
        workflow_name: local.workflow_name,
        // Tags must differ between runs of one process: what bears an ended one is ended too.
        key: format!("local-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed)),
        output_dir: local.output_dir,
        working_dir: local.working_dir.clone(),
        runner_id: RunnerId(0),
        tokens: TokenFiles::none(),
        api_url: String::new(),
        tls_ca: None,
        env: Default::default(),
        execution: Execution::default(),
        checkpoint_exit_code: None,
        time_series: None,
        live: Default::default(),
    });
    let setup = Setup::new(&context.key, local.working_dir, None)?;
    let rules = Rules::uniform(local.grace, Signal::TERM, None);
    let tasks = Arc::new(Tasks::default());
    let (sender, inbox) = mailbox(DONE_KEY)?;
    let mut supervisor = Supervisor::new(setup, rules, tasks.clone(), sender)?;
    inbox.join(supervisor.poller())?;
    let attempt = Attempt::new(local.packet, Vec::new());
    let mut run = match local.first_try {
        Some(first) => StepRun::rehearsal(attempt, context.clone(), first),
        None => StepRun::new(attempt, context.clone()),
    };
    let mut ask = run.advance(Answer::Begin);
    let mut next_id = 1;
    loop {
        let answer = match ask {
            Ask::Done(report) => return Ok(report),
            Ask::Wait(time) => {
                std::thread::sleep(time);
                Answer::Woken
            }
            // Alone on this machine as far as it knows: the first file will do.
            Ask::Slot { paths, .. } => match paths.first() {
                Some(path) => Answer::Slot(super::agent::wait_for_slot(path)?),
                None => Answer::Woken,
            },
            Ask::Run(mut order) => {
                order.id = next_id;
                order.tag = context.tag(next_id);
                next_id += 1;
                supervisor.start(*order, Instant::now());
                Answer::Ended(wait_for_end(&mut supervisor, &tasks, &inbox)?)
            }
        };
        ask = run.advance(answer);
    }
}

fn wait_for_end(
    supervisor: &mut Supervisor,
    tasks: &Tasks,
    inbox: &crate::mailbox::Inbox<crate::supervisor::Done>,
) -> io::Result<Box<crate::supervisor::ProcessExit>> {
    let (mut ready, mut messages, mut events) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let has_tasks = !tasks.is_empty();
        tasks.run_all();
        // What a task found out is in the mailbox already.
        let alarm = supervisor.next_alarm().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = if has_tasks {
            Some(Duration::ZERO)
        } else {
            alarm.map(|t| t + Duration::from_micros(100))
        };
        supervisor.poller().wait(timeout, &mut ready)?;
        let now = Instant::now();
        inbox.take(&ready, &mut messages);
        for message in messages.drain(..) {
            supervisor.on_done(message, now, &mut events);
        }
        for key in ready.drain(..).filter(|key| *key != DONE_KEY) {
            supervisor.on_ready(key, now, &mut events);
        }
        supervisor.on_time(now, &mut events);
        for event in events.drain(..) {
            if let ProcessEvent::Ended(exit) = event {
                return Ok(exit);
            }
        }
    }
}

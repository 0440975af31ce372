//! One attempt's steps: its state, and the job as the outermost group.

use super::command::Process;
use super::failure::{Failure, Place, Stop};
use super::journal::Journal;
use super::run_report;
use super::scope::Scope;
use super::turns::Port;
use crate::attempt::{Attempt, AttemptContext};
use crate::outputs::Before;
use crate::time::now_ms;
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::{AttemptPacket, CompletionReport, ScriptResult};
use torc_model::event::EventKind;
use torc_model::steps::{
    Action, AfterHandler, AfterTry, ErrorKind, Handler, Outcome, Report, Resume, Step, Strategy,
    Tree, after_handler, after_try,
};

/// An attempt and its tree, read once.
#[derive(Debug)]
pub struct Plan {
    packet: AttemptPacket,
    env: Vec<(String, String)>,
    script: Option<ScriptResult>,
    tree: Result<Tree, String>,
    outputs: Option<Arc<Before>>,
    /// Fails in the place of the first try.
    pub(super) rehearsal: Option<Step>,
}

impl Plan {
    /// Reads the tree of an attempt.
    pub fn of(attempt: Attempt, context: &AttemptContext) -> Self {
        let env = attempt.env(context, attempt.packet.attempt_id);
        let Attempt { mut packet, script, outputs, .. } = attempt;
        let tree = Tree::from_value(packet.steps.take().unwrap_or_default());
        Self { packet, env, script, tree, outputs, rehearsal: None }
    }

    /// One plain shell step: nothing to keep track of.
    pub fn is_light(&self) -> bool {
        let Ok(tree) = &self.tree else { return false };
        let [step] = tree.steps.as_slice() else { return false };
        let plain =
            Step { action: step.action.clone(), name: step.name.clone(), ..Step::default() };
        let whole =
            Tree { steps: tree.steps.clone(), values: tree.values.clone(), ..Tree::default() };
        matches!(step.action, Action::Shell(_))
            && *step == plain
            && *tree == whole
            && self.packet.output_files.is_empty()
            && self.packet.lists.is_empty()
    }
}

/// Runs an attempt's steps and makes the report.
pub async fn attempt(
    plan: Plan,
    context: Arc<AttemptContext>,
    port: Port,
) -> Box<CompletionReport> {
    let is_light = plan.is_light();
    let Plan { packet, env, script, tree, outputs, rehearsal } = plan;
    let mut run = Run::new(packet, env, script, context, port, is_light);
    run.rehearsal = rehearsal;
    run.outputs = outputs;
    let end = match tree {
        Ok(tree) => {
            if let Some(outputs) = &run.outputs {
                outputs.look(&run.context.working_dir);
            }
            let tree = Arc::new(tree);
            run.all(&tree).await
        }
        Err(message) => Ok(Some(run.failure(ErrorKind::Spawn, 127, message, &Place::root()))),
    };
    run_report::make(run, end)
}

/// One attempt's steps while they run.
pub struct Run {
    pub packet: AttemptPacket,
    pub script: Option<ScriptResult>,
    pub context: Arc<AttemptContext>,
    pub record: RunRecord,
    pub clock: RunClock,
    /// CPU time, highest memory and the last process of them all.
    pub usage: run_report::Sum,
    pub is_light: bool,
    pub(super) port: Port,
    pub(super) inherited: Inherited,
    pub scope: Scope,
    /// How often each step was tried, by its path.
    pub(super) tries: HashMap<String, u32>,
    pub(super) last: Option<Process>,
    pub files: Vec<PathBuf>,
    /// Output files as they were before, unless those count as its own.
    pub(super) outputs: Option<Arc<Before>>,
    /// Fails in the place of the first try.
    pub(super) rehearsal: Option<Step>,
}

/// What is told of a run: to the server, to its journal on disk, and to people.
pub struct RunRecord {
    pub report: Report,
    pub(super) journal: Journal,
    /// What people should hear besides the failure, if it comes to one.
    pub remarks: Vec<String>,
}

/// When an attempt's steps began, and how long they may take.
pub struct RunClock {
    pub started: Instant,
    pub started_ms: i64,
    /// Ends of the time limits around the current step, the attempt's own first.
    pub(super) deadlines: Vec<Instant>,
    pub(super) has_own_deadline: bool,
}

impl RunClock {
    fn start(limit: Option<Duration>) -> Self {
        let started = Instant::now();
        Self {
            started,
            started_ms: now_ms(),
            deadlines: limit.map(|limit| started + limit).into_iter().collect(),
            has_own_deadline: limit.is_some(),
        }
    }

    /// Until the nearest deadline; None if there is none.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        self.deadlines.iter().map(|end| end.saturating_duration_since(now)).min()
    }
}

/// What the current step has from the groups around it, the innermost last.
pub(super) struct Inherited {
    pub dirs: Vec<PathBuf>,
    pub base_env: Vec<(String, String)>,
    pub envs: Vec<Vec<(String, String)>>,
    pub agent: Option<torc_model::steps::StepAgent>,
}

impl Run {
    fn new(
        packet: AttemptPacket,
        env: Vec<(String, String)>,
        script: Option<ScriptResult>,
        context: Arc<AttemptContext>,
        port: Port,
        is_light: bool,
    ) -> Self {
        let limit =
            packet.time_limit_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
        let journal = Journal::new(context.log_path(&packet, "_steps.jsonl"));
        Self {
            inherited: Inherited {
                dirs: vec![context.working_dir.clone()],
                base_env: env,
                envs: Vec::new(),
                agent: None,
            },
            packet,
            script,
            context,
            record: RunRecord { report: Report::default(), journal, remarks: Vec::new() },
            clock: RunClock::start(limit),
            usage: run_report::Sum::default(),
            is_light,
            port,
            scope: Scope::default(),
            tries: HashMap::new(),
            last: None,
            files: Vec::new(),
            outputs: None,
            rehearsal: None,
        }
    }

    /// The job is a group like any other: its steps, then its handler or what follows success.
    async fn all(&mut self, tree: &Arc<Tree>) -> Result<Option<Box<Failure>>, Stop> {
        let lists = crate::attempt::lists(&self.context, &self.packet);
        if let Err(error) = crate::long::write_lists(&lists) {
            let message = format!("cannot write a list of input files: {error}");
            return Ok(Some(self.failure(ErrorKind::Spawn, 127, message, &Place::root())));
        }
        self.files.extend(lists.into_iter().map(|(path, _)| path));
        if let Err(message) = self.set_variables(tree) {
            return Ok(Some(self.failure(ErrorKind::Variable, 1, message, &Place::root())));
        }
        if let Some(settings) = &tree.expand {
            return self.find_items(settings).await;
        }
        if let Some(dir) = &tree.dir {
            match self.scope.fill(dir) {
                Ok(dir) => self.inherited.dirs.push(self.context.working_dir.join(dir)),
                Err(error) => {
                    return Ok(Some(self.failure(
                        ErrorKind::Variable,
                        1,
                        error.to_string(),
                        &Place::root(),
                    )));
                }
            }
        }
        let root = Place::root();
        let done = if tree.resume == Resume::Step { self.done_before(tree) } else { 0 };
        if done > 0 {
            // The steps that are not repeated may have written them.
            self.outputs = None;
        }
        let group = Step {
            action: Action::Steps(Vec::new()),
            on_failure: tree.on_failure.clone(),
            ..Step::default()
        };
        let mut n = 0;
        let mut from = done;
        loop {
            n += 1;
            let went = self.list_from(&tree.steps, from, &root, "steps").await?;
            let handler = group.on_failure.as_ref();
            let failure =
                match (after_try(went.failure.is_none(), n, handler.map(rule)), went.failure) {
                    (AfterTry::Passed(outcome), _) => {
                        if outcome == Outcome::Recovered {
                            self.record.report.recovered += 1;
                        }
                        return Ok(self
                            .list_from(&tree.on_success, 0, &root, "on_success")
                            .await?
                            .failure);
                    }
                    (AfterTry::GiveUp | AfterTry::Handle, Some(failure))
                        if failure.expired.is_some() =>
                    {
                        return Ok(Some(failure));
                    }
                    (AfterTry::Handle, Some(failure)) => failure,
                    (AfterTry::GiveUp | AfterTry::Handle, failure) => return Ok(failure),
                };
            let Some(handler) = handler else { return Ok(Some(failure)) };
            let end = self.handle(handler, &failure, &root).await?;
            match after_handler(
                handler.strategy,
                end,
                n,
                handler.max_attempts,
                handler.handler_failure_fatal,
            ) {
                AfterHandler::Recovered => {
                    self.record.report.recovered += 1;
                    self.event(
                        EventKind::StepRecovered,
                        &root,
                        json!({"strategy": handler.strategy}),
                    );
                    return Ok(None);
                }
                AfterHandler::Rerun => from = 0,
                AfterHandler::GiveUp => return Ok(Some(failure)),
                AfterHandler::Fatal => return Err(Stop::Fatal(failure)),
            }
        }
    }
}

/// What the decisions about a handler need of it.
pub(super) fn rule(handler: &Handler) -> (Strategy, u32) {
    (handler.strategy, handler.max_attempts)
}

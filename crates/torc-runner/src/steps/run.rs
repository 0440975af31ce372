//! What steps mean: the order of tries, retries, checks, handlers and groups. The decisions are the model's.

use super::agent::{self, Permit};
use super::journal::{Journal, Line};
use super::outputs::{self, Ended};
use super::scope::Scope;
use super::turns::{Answer, Ask, Port};
use super::{expand, run_report};
use crate::attempt::{Attempt, Context};
use crate::process::{Order, Sink};
use crate::supervisor::{Exit, How, StopReason};
use crate::time::now_ms;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_model::api::{AttemptPacket, CompletionReport, ScriptResult};
use torc_model::steps::{
    Action, AfterHandler, AfterTry, Capture, ErrorKind, Handler, HandlerEnd, MapSettings, Outcome, Report, Resume, Row,
    Source, Step, StepEvent, Strategy, TextError, Tree, Word, after_handler, after_try, given_up, shell,
};

/// How long to wait for a free slot of the agent before asking again.
const AGENT_BUSY: Duration = Duration::from_secs(1);
/// A process that was ended at its limit may have run this much less than the limit by our clock.
const LIMIT_SLACK: Duration = Duration::from_millis(20);

/// An attempt and its tree, read once.
#[derive(Debug)]
pub struct Plan {
    packet: AttemptPacket,
    env: Vec<(String, String)>,
    script: Option<ScriptResult>,
    tree: Result<Tree, String>,
}

impl Plan {
    /// Reads the tree of an attempt.
    pub fn of(attempt: Attempt, context: &Context) -> Self {
        let env = attempt.env(context, attempt.packet.attempt_id);
        let Attempt { mut packet, script, .. } = attempt;
        let tree = Tree::from_value(packet.steps.take().unwrap_or_default());
        Self { packet, env, script, tree }
    }

    /// One plain shell step: nothing to keep track of.
    pub fn is_light(&self) -> bool {
        let Ok(tree) = &self.tree else { return false };
        let [step] = tree.steps.as_slice() else { return false };
        let plain = Step { action: step.action.clone(), name: step.name.clone(), ..Step::default() };
        let whole = Tree { steps: tree.steps.clone(), values: tree.values.clone(), ..Tree::default() };
        matches!(step.action, Action::Shell(_))
            && *step == plain
            && *tree == whole
            && self.packet.output_files.is_empty()
    }
}

/// Runs an attempt's steps and makes the report.
pub async fn attempt(plan: Plan, context: Arc<Context>, port: Port) -> Box<CompletionReport> {
    let is_light = plan.is_light();
    let Plan { packet, env, script, tree } = plan;
    let mut run = Run::new(packet, env, script, context, port, is_light);
    let end = match tree {
        Ok(tree) => {
            let tree = Arc::new(tree);
            run.all(&tree).await
        }
        Err(message) => Ok(Some(run.failure(ErrorKind::Spawn, 127, message, &Place::root()))),
    };
    run_report::make(run, end)
}

/// Where a step is: as people read it and as files are called.
#[derive(Clone, Debug)]
pub struct Place {
    path: String,
    file: String,
}

impl Place {
    fn root() -> Self {
        Self { path: String::new(), file: String::new() }
    }

    fn child(&self, word: &str, index: usize) -> Self {
        let mark = match word {
            "on_failure" => "f",
            "validate" => "v",
            "on_success" => "o",
            _ if self.file.is_empty() => "",
            _ => ".",
        };
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { path: format!("{}{dot}{word}[{index}]", self.path), file: format!("{}{mark}{index}", self.file) }
    }
}

/// A failure, with everything that its handler may want to know.
#[derive(Clone, Debug)]
pub struct Failure {
    /// In which way.
    pub kind: ErrorKind,
    /// As a shell would say it.
    pub code: i64,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// What a person should read.
    pub message: String,
    /// The step's name, or its path.
    pub step: String,
    command: String,
    nth: u32,
    stdout: Option<PathBuf>,
    stderr: Option<PathBuf>,
    at_ms: i64,
    /// The end of the process that failed.
    pub exit: Option<Box<Exit>>,
    /// The time limit around it that is over, counted from the outside.
    pub expired: Option<usize>,
}

/// Why everything ends at once.
#[derive(Debug)]
pub enum Stop {
    /// The attempt was stopped from outside.
    Interrupted(Option<Box<Exit>>, Option<StopReason>),
    /// A handler failed whose failure is fatal.
    Fatal(Box<Failure>),
}

type Tried = Result<Result<(), Box<Failure>>, Stop>;
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Check,
}

/// A process that has ended.
#[derive(Debug)]
struct Process {
    exit: Box<Exit>,
    nth: u32,
    stdout: PathBuf,
    stderr: PathBuf,
    dir: PathBuf,
}

/// How a list of steps went.
struct Went {
    failure: Option<Box<Failure>>,
    succeeded: u32,
}

/// One attempt's steps while they run.
pub struct Run {
    pub packet: AttemptPacket,
    pub script: Option<ScriptResult>,
    pub context: Arc<Context>,
    pub report: Report,
    pub started: Instant,
    pub started_ms: i64,
    /// CPU time, highest memory and the last process of them all.
    pub usage: run_report::Sum,
    pub is_light: bool,
    port: Port,
    base_env: Vec<(String, String)>,
    pub scope: Scope,
    tries: HashMap<String, u32>,
    /// Ends of the time limits around the current step, the attempt's own first.
    deadlines: Vec<Instant>,
    has_own_deadline: bool,
    dirs: Vec<PathBuf>,
    envs: Vec<Vec<(String, String)>>,
    last: Option<Process>,
    agent: Option<torc_model::steps::Agent>,
    journal: Journal,
    pub files: Vec<PathBuf>,
}

impl Run {
    fn new(
        packet: AttemptPacket,
        env: Vec<(String, String)>,
        script: Option<ScriptResult>,
        context: Arc<Context>,
        port: Port,
        is_light: bool,
    ) -> Self {
        let started = Instant::now();
        let limit = packet.time_limit_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
        let journal = Journal::new(context.log_path(&packet, "_steps.jsonl"));
        Self {
            dirs: vec![context.working_dir.clone()],
            packet,
            script,
            context,
            report: Report::default(),
            started,
            started_ms: now_ms(),
            usage: run_report::Sum::default(),
            is_light,
            port,
            base_env: env,
            scope: Scope::default(),
            tries: HashMap::new(),
            deadlines: limit.map(|limit| started + limit).into_iter().collect(),
            has_own_deadline: limit.is_some(),
            envs: Vec::new(),
            last: None,
            agent: None,
            journal,
            files: Vec::new(),
        }
    }

    /// The job is a group like any other: its steps, then its handler or what follows success.
    async fn all(&mut self, tree: &Arc<Tree>) -> Result<Option<Box<Failure>>, Stop> {
        if let Err(message) = self.set_variables(tree) {
            return Ok(Some(self.failure(ErrorKind::Variable, 1, message, &Place::root())));
        }
        if let Some(settings) = &tree.expand {
            return self.find_items(settings).await;
        }
        if let Some(dir) = &tree.dir {
            match self.scope.fill(dir) {
                Ok(dir) => self.dirs.push(self.context.working_dir.join(dir)),
                Err(error) => return Ok(Some(self.failure(ErrorKind::Variable, 1, error.to_string(), &Place::root()))),
            }
        }
        let root = Place::root();
        let done = if tree.resume == Resume::Step { self.done_before(tree) } else { 0 };
        let group = Step { action: Action::Steps(Vec::new()), on_failure: tree.on_failure.clone(), ..Step::default() };
        let mut n = 0;
        let mut from = done;
        loop {
            n += 1;
            let went = self.list_from(&tree.steps, from, &root, "steps").await?;
            let handler = group.on_failure.as_ref();
            let failure = match (after_try(went.failure.is_none(), n, handler.map(rule)), went.failure) {
                (AfterTry::Passed(outcome), _) => {
                    if outcome == Outcome::Recovered {
                        self.report.recovered += 1;
                    }
                    return Ok(self.list_from(&tree.on_success, 0, &root, "on_success").await?.failure);
                }
                (AfterTry::GiveUp | AfterTry::Handle, Some(failure)) if failure.expired.is_some() => {
                    return Ok(Some(failure));
                }
                (AfterTry::Handle, Some(failure)) => failure,
                (AfterTry::GiveUp | AfterTry::Handle, failure) => return Ok(failure),
            };
            let Some(handler) = handler else { return Ok(Some(failure)) };
            let end = self.handle(handler, &failure, &root).await?;
            match after_handler(handler.strategy, end, n, handler.max_attempts, handler.handler_failure_fatal) {
                AfterHandler::Recovered => {
                    self.report.recovered += 1;
                    self.event("step_recovered", &root, json!({"strategy": handler.strategy}));
                    return Ok(None);
                }
                AfterHandler::Rerun => from = 0,
                AfterHandler::GiveUp => return Ok(Some(failure)),
                AfterHandler::Fatal => return Err(Stop::Fatal(failure)),
            }
        }
    }

    fn set_variables(&mut self, tree: &Tree) -> Result<(), String> {
        let packet = &self.packet;
        let job = json!({"name": packet.job_name, "id": packet.job_id, "attempt": packet.attempt_id});
        self.scope.fix("job", job);
        let workflow = json!({"name": self.context.workflow_name, "id": self.context.workflow_id});
        self.scope.fix("workflow", workflow);
        let mut values = tree.values.clone();
        for (name, value) in &packet.env {
            // The server's word on user data is newer than what was known when the workflow was created.
            if let Some(name) = name.strip_prefix("TORC_USER_DATA_")
                && let Ok(value) = serde_json::from_str::<Value>(value)
            {
                let all = values.entry("user_data").or_insert_with(|| json!({"input": {}}));
                all["input"][name] = value;
            }
        }
        for (name, value) in values {
            self.scope.fix(&name, value);
        }
        let mut names = Vec::new();
        tree.parts().for_each(|(_, steps)| captured_names(steps, &mut names));
        names.extend(tree.on_failure.iter().flat_map(|handler| handler.capture.keys().cloned()));
        names.iter().for_each(|name| self.scope.expect_capture(name));
        self.agent.clone_from(&tree.agent);
        if let Some(item) = &tree.item {
            if item.to_string().len() > torc_model::steps::EXPORT_MAX {
                let file = self.keep_file("_item.json", &item.to_string())?;
                self.scope.name_file("item.file", file);
            }
            self.scope.fix("item", item.clone());
        }
        if let Some(Value::Object(map)) = &tree.map {
            let rows = map.get("rows").and_then(Value::as_array).cloned().unwrap_or_default();
            let lines = |rows: &mut dyn Iterator<Item = &Value>| rows.map(|row| format!("{row}\n")).collect::<String>();
            let results = self.keep_file("_map_results.jsonl", &lines(&mut rows.iter()))?;
            let is_dead = |row: &&Value| row["outcome"] != "ok" && row["outcome"] != "recovered";
            let dead = self.keep_file("_map_dead.jsonl", &lines(&mut rows.iter().filter(is_dead)))?;
            self.scope.name_file("map.results.file", results);
            self.scope.name_file("map.dead.file", dead);
            let mut map = map.clone();
            let rows = map.remove("rows").unwrap_or(Value::Null);
            map.insert("results".into(), rows);
            self.scope.fix("map", Value::Object(map));
        }
        Ok(())
    }

    fn keep_file(&mut self, ending: &str, text: &str) -> Result<String, String> {
        let path = self.context.log_path(&self.packet, ending);
        std::fs::write(&path, text).map_err(|error| format!("can not write `{}`: {error}", path.display()))?;
        Ok(path.display().to_string())
    }

    async fn find_items(&mut self, settings: &MapSettings) -> Result<Option<Box<Failure>>, Stop> {
        let place = Place { path: "map.items".into(), file: "items".into() };
        let mut printed = None;
        if let Source::Command { command, .. } = &settings.items {
            let step = Step { action: Action::Shell(command.clone()), ..Step::default() };
            let (_, failure) = self.step(&step, &place).await?;
            if failure.is_some() {
                return Ok(failure);
            }
            printed = self.last.as_ref().map(|process| process.stdout.clone());
        }
        match expand::items(settings, &self.context.working_dir, printed.as_deref()) {
            Ok(items) => {
                self.event("items_found", &place, json!({"count": items.len()}));
                self.report.items = Some(items);
                Ok(None)
            }
            Err(message) => Ok(Some(self.failure(ErrorKind::Spawn, 1, message, &place))),
        }
    }

    /// How many of the first steps an earlier attempt of this run has done; their captures come back.
    fn done_before(&mut self, tree: &Tree) -> usize {
        let own = self.packet.attempt_id;
        let earlier = (1..own).rev().find_map(|attempt| {
            let packet = AttemptPacket { attempt_id: attempt, ..self.packet.clone() };
            Journal::read(&self.context.log_path(&packet, "_steps.jsonl"))
        });
        let Some(lines) = earlier else { return 0 };
        let mut done = 0;
        for index in 0..tree.steps.len() {
            let place = Place::root().child("steps", index);
            let line = lines.iter().rev().find(|line| line.path == place.path && line.outcome.is_some());
            let Some(line) = line.filter(|line| matches!(line.outcome, Some(Outcome::Ok | Outcome::Recovered))) else {
                break;
            };
            for (name, captured) in &line.captures {
                self.scope.capture(name, captured.clone());
            }
            self.event("step_resumed", &place, json!({"outcome": line.outcome}));
            self.keep(line.clone());
            done = index + 1;
        }
        done
    }

    fn keep(&mut self, line: Line) {
        if !self.is_light
            && let Err(error) = self.journal.write(&line)
        {
            tracing::warn!(%error, "can not keep what steps have done");
        }
    }

    fn event(&mut self, kind: &str, place: &Place, data: Value) {
        let data = if let Value::Object(data) = data { data } else { Map::new() };
        let event = StepEvent { kind: kind.into(), at_ms: now_ms(), path: place.path.clone(), data };
        self.report.events.push(event);
    }

    fn list<'a>(
        &'a mut self,
        steps: &'a [Step],
        place: &'a Place,
        word: &'static str,
    ) -> Boxed<'a, Result<Went, Stop>> {
        Box::pin(self.list_from(steps, 0, place, word))
    }

    async fn list_from(
        &mut self,
        steps: &[Step],
        from: usize,
        place: &Place,
        word: &'static str,
    ) -> Result<Went, Stop> {
        let mut went = Went { failure: None, succeeded: 0 };
        for (index, step) in steps.iter().enumerate().skip(from) {
            let (outcome, failure) = self.step(step, &place.child(word, index)).await?;
            match outcome {
                Outcome::Ok | Outcome::Recovered => went.succeeded += 1,
                Outcome::Ignored | Outcome::Skipped => {}
                Outcome::Failed | Outcome::Interrupted => {
                    went.failure = failure;
                    return Ok(went);
                }
            }
        }
        Ok(went)
    }

    /// One step with everything that belongs to it.
    async fn step(&mut self, step: &Step, place: &Place) -> Result<(Outcome, Option<Box<Failure>>), Stop> {
        let name = step.name.clone().unwrap_or_else(|| place.path.clone());
        if let Some(when) = &step.when {
            match self.scope.holds(when) {
                Ok(true) => {}
                Ok(false) => {
                    self.event("step_finished", place, json!({"outcome": Outcome::Skipped, "name": name}));
                    return Ok((Outcome::Skipped, None));
                }
                Err(message) => {
                    let failure = self.failure(ErrorKind::Variable, 1, format!("`when`: {message}"), place);
                    return Ok(self.finish(step, place, &name, given_up(step.continue_on_error), Some(failure)));
                }
            }
        }
        if !self.is_light {
            self.event("step_started", place, json!({"name": name, "kind": step.action.word()}));
        }
        let begun = Instant::now();
        let (mut part, mut n) = (Part::Whole, 0);
        loop {
            n += 1;
            let failure = self.tries(step, place, part, begun).await?.err();
            let decision = after_try(failure.is_none(), n, step.on_failure.as_ref().map(rule));
            let mut failure = match (decision, failure) {
                (AfterTry::Passed(outcome), _) => {
                    let after = self.list(&step.on_success, place, "on_success").await?.failure;
                    let outcome = if after.is_some() { given_up(step.continue_on_error) } else { outcome };
                    return Ok(self.finish(step, place, &name, outcome, after));
                }
                (AfterTry::GiveUp | AfterTry::Handle, None) => {
                    return Ok(self.finish(step, place, &name, Outcome::Ok, None));
                }
                (AfterTry::GiveUp | AfterTry::Handle, Some(failure)) => failure,
            };
            if failure.step == place.path {
                failure.step.clone_from(&name);
            }
            // The time around this step is over: its own handler has none left.
            if failure.expired.is_some() {
                return Ok(self.finish(step, place, &name, Outcome::Failed, Some(failure)));
            }
            let Some(handler) = step.on_failure.as_ref().filter(|_| decision == AfterTry::Handle) else {
                return Ok(self.finish(step, place, &name, given_up(step.continue_on_error), Some(failure)));
            };
            let end = self.handle(handler, &failure, place).await?;
            match after_handler(handler.strategy, end, n, handler.max_attempts, handler.handler_failure_fatal) {
                AfterHandler::Recovered => {
                    if handler.strategy == Strategy::Fallback {
                        // Its result stands for the step's; what it did not print is simply not there.
                        let _ = self.take_captures(&step.capture);
                    }
                    return Ok(self.finish(step, place, &name, Outcome::Recovered, Some(failure)));
                }
                AfterHandler::Rerun => {
                    let only_check = failure.kind == ErrorKind::Validation && !step.validate.is_empty();
                    part = if only_check { Part::Check } else { Part::Whole };
                }
                AfterHandler::GiveUp => {
                    return Ok(self.finish(step, place, &name, given_up(step.continue_on_error), Some(failure)));
                }
                AfterHandler::Fatal => {
                    self.finish(step, place, &name, Outcome::Failed, Some(failure.clone()));
                    return Err(Stop::Fatal(failure));
                }
            }
        }
    }

    /// Writes down what a step came to.
    fn finish(
        &mut self,
        step: &Step,
        place: &Place,
        name: &str,
        outcome: Outcome,
        failure: Option<Box<Failure>>,
    ) -> (Outcome, Option<Box<Failure>>) {
        match outcome {
            Outcome::Recovered => {
                self.report.recovered += 1;
                self.event("step_recovered", place, json!({"name": name}));
            }
            Outcome::Ignored => {
                self.report.ignored += 1;
                self.event("step_ignored", place, json!({"name": name}));
            }
            Outcome::Ok | Outcome::Skipped | Outcome::Failed | Outcome::Interrupted => {}
        }
        if !self.is_light {
            let mut data = json!({"name": name, "outcome": outcome, "kind": step.action.word()});
            if let Some(failure) = &failure {
                data["error_kind"] = json!(failure.kind);
                data["exit_code"] = json!(failure.code);
            }
            self.event("step_finished", place, data);
            let captures = self.scope.captures().clone();
            self.keep(Line { path: place.path.clone(), event: None, outcome: Some(outcome), captures });
        }
        (outcome, failure.filter(|_| !outcome.goes_on()))
    }

    /// One part of a step with the step's own retries.
    async fn tries(&mut self, step: &Step, place: &Place, part: Part, begun: Instant) -> Tried {
        let mut tries = 0;
        loop {
            tries += 1;
            let Err(failure) = self.once(step, place, part).await? else { return Ok(Ok(())) };
            let seed = self.packet.job_id.0.unsigned_abs() ^ (self.packet.attempt_id.unsigned_abs() << 32);
            let elapsed = begun.elapsed().as_secs_f64();
            let wait = step
                .retry
                .as_ref()
                .filter(|_| failure.expired.is_none())
                .and_then(|retry| retry.wait(tries, failure.kind, failure.code, &failure.message, elapsed, seed));
            let Some(wait) = wait else { return Ok(Err(failure)) };
            self.event("retry_scheduled", place, json!({"try": tries + 1, "after_seconds": wait}));
            self.wait(Duration::try_from_secs_f64(wait).unwrap_or_default()).await?;
        }
    }

    async fn wait(&mut self, time: Duration) -> Result<(), Stop> {
        // A wait does not outlast the time limits around it; the next try will find them over.
        let left = self.deadlines.iter().map(|end| end.saturating_duration_since(Instant::now())).min();
        match self.port.ask(Ask::Wait(left.map_or(time, |left| left.min(time)))).await {
            Answer::Stop(reason) => Err(Stop::Interrupted(None, Some(reason))),
            Answer::Begin | Answer::Woken | Answer::Ended(_) => Ok(()),
        }
    }

    /// One part of a step, once.
    async fn once(&mut self, step: &Step, place: &Place, part: Part) -> Tried {
        let depth = (self.dirs.len(), self.envs.len());
        if let Err(failure) = self.enter(step, place) {
            return Ok(Err(failure));
        }
        let result = self.once_inside(step, place, part).await?;
        self.dirs.truncate(depth.0);
        self.envs.truncate(depth.1);
        Ok(result)
    }

    /// The directory and the environment of a step; those of a group are its steps' too.
    fn enter(&mut self, step: &Step, place: &Place) -> Result<(), Box<Failure>> {
        let filled = |run: &Self, text: &str| run.scope.fill(text);
        if let Some(dir) = &step.dir {
            let dir = filled(self, dir).map_err(|error| self.variable(&error, place))?;
            let base = self.dirs.last().cloned().unwrap_or_default();
            self.dirs.push(base.join(dir));
        }
        if !step.env.is_empty() {
            let mut env = Vec::with_capacity(step.env.len());
            for (key, value) in &step.env {
                env.push((key.clone(), filled(self, value).map_err(|error| self.variable(&error, place))?));
            }
            self.envs.push(env);
        }
        Ok(())
    }

    async fn once_inside(&mut self, step: &Step, place: &Place, part: Part) -> Tried {
        if part == Part::Whole {
            let result = match &step.action {
                Action::Shell(text) => self.shell(step, text, place).await?,
                Action::Claude(prompt) => self.agent(step, prompt, place).await?,
                Action::Validate(steps) | Action::Steps(steps) => self.group(step, steps, place).await?,
            };
            if let Err(failure) = result {
                return Ok(Err(failure));
            }
        }
        if step.validate.is_empty() {
            return Ok(Ok(()));
        }
        let went = self.list(&step.validate, place, "validate").await?;
        Ok(went.failure.map_or(Ok(()), |failure| Err(validation(failure, place))))
    }

    async fn group(&mut self, step: &Step, steps: &[Step], place: &Place) -> Tried {
        let own = self.deadlines.len();
        let limit = step.timeout.map(|timeout| Duration::from_secs(timeout.0));
        self.deadlines.extend(limit.map(|limit| Instant::now() + limit));
        let went = self.list(steps, place, step.action.word()).await?;
        self.deadlines.truncate(own);
        if let Some(mut failure) = went.failure {
            if failure.expired == Some(own) {
                failure.expired = None;
                failure.kind = ErrorKind::Timeout;
                failure.code = 124;
            } else if failure.expired.is_none() && matches!(step.action, Action::Validate(_)) {
                failure = validation(failure, place);
            }
            return Ok(Err(failure));
        }
        if let Err(message) = self.take_captures(&step.capture) {
            return Ok(Err(self.failure(ErrorKind::Capture, 1, message, place)));
        }
        if let Some(expect) = &step.expect {
            return Ok(self.expectation(expect, 0, place));
        }
        Ok(Ok(()))
    }

    fn expectation(&mut self, expect: &str, exit_code: i64, place: &Place) -> Result<(), Box<Failure>> {
        match self.scope.holds_after(expect, exit_code) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let code = if exit_code == 0 { 1 } else { exit_code };
                Err(self.failure(ErrorKind::Expect, code, format!("`{expect}` does not hold"), place))
            }
            Err(message) => Err(self.failure(ErrorKind::Variable, 1, format!("`expect`: {message}"), place)),
        }
    }

    /// A failure that no process belongs to.
    fn failure(&self, kind: ErrorKind, code: i64, message: String, place: &Place) -> Box<Failure> {
        Box::new(Failure {
            kind,
            code,
            signal: None,
            message,
            step: place.path.clone(),
            command: String::new(),
            nth: self.tries.get(&place.path).copied().unwrap_or(1),
            stdout: self.last.as_ref().map(|process| process.stdout.clone()),
            stderr: self.last.as_ref().map(|process| process.stderr.clone()),
            at_ms: now_ms(),
            exit: None,
            expired: None,
        })
    }

    fn variable(&self, error: &TextError, place: &Place) -> Box<Failure> {
        self.failure(ErrorKind::Variable, 1, error.to_string(), place)
    }

    async fn shell(&mut self, step: &Step, text: &str, place: &Place) -> Tried {
        let renamed = match shell(text, |root| self.scope.knows(root)) {
            Ok(renamed) => renamed,
            Err(error) => return Ok(Err(self.variable(&error, place))),
        };
        let exports = match self.scope.exports(&renamed.references) {
            Ok(exports) => exports,
            Err(error) => return Ok(Err(self.variable(&error, place))),
        };
        let limit = step.timeout.map(|timeout| Duration::from_secs(timeout.0));
        let order = self.order(renamed.text, exports);
        self.process(step, text, order, limit, place).await
    }

    async fn agent(&mut self, step: &Step, prompt: &str, place: &Place) -> Tried {
        let prompt = match self.scope.fill(prompt) {
            Ok(prompt) => prompt,
            Err(error) => return Ok(Err(self.variable(&error, place))),
        };
        let agent = self.agent.clone().unwrap_or_default();
        let exports = match self.scope.exports(&[]) {
            Ok(exports) => exports,
            Err(error) => return Ok(Err(self.variable(&error, place))),
        };
        let prompt_file = match self.keep_file(&format!("_s{}_prompt", place.file), &prompt) {
            Ok(file) => file,
            Err(message) => return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place))),
        };
        let limit = step.timeout.or(agent.timeout).map(|timeout| Duration::from_secs(timeout.0));
        let mut order = self.order(String::new(), exports);
        if agent.dry_run {
            // The prompt comes back as the answer.
            order.argv = vec!["cat".into()];
            order.stdin = Some(prompt_file.into());
            return self.process(step, &prompt, order, limit, place).await;
        }
        if prompt.contains('\0') {
            return Ok(Err(self.failure(ErrorKind::Agent, 1, "the prompt contains a NUL character".into(), place)));
        }
        let slot = loop {
            let workflow = self.context.workflow_id.0;
            let what = format!("{} {}", self.packet.job_name, place.path);
            match agent::permit(&agent, &self.context.output_dir, workflow, &what) {
                Ok(Permit::Granted(slot)) => break slot,
                Ok(Permit::Busy) => self.wait(AGENT_BUSY).await?,
                Ok(Permit::Exhausted(message)) => {
                    return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place)));
                }
                Err(error) => {
                    let message = format!("the agent's calls can not be counted: {error}");
                    return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place)));
                }
            }
            if let Some(failure) = self.expired(place) {
                return Ok(Err(failure));
            }
        };
        let (argv, by_stdin) = agent::arguments(&agent, &prompt);
        order.argv = argv;
        order.stdin = by_stdin.then(|| prompt_file.into());
        let mut result = self.process(step, &prompt, order, limit, place).await?;
        drop(slot);
        if let Err(failure) = &mut result
            && matches!(failure.kind, ErrorKind::Exit | ErrorKind::Spawn | ErrorKind::Signal)
        {
            failure.kind = ErrorKind::Agent;
        }
        Ok(result)
    }

    fn order(&self, text: String, exports: Vec<(String, String)>) -> Order {
        let mut env = self.base_env.clone();
        env.extend(exports);
        env.extend(self.envs.iter().flatten().cloned());
        let limit = self.packet.memory_bytes.filter(|_| self.context.execution.limit_resources);
        Order {
            id: 0,
            tag: String::new(),
            text,
            argv: Vec::new(),
            env,
            dir: self.dirs.last().cloned(),
            stdin: None,
            stdout: Sink::Null,
            stderr: Sink::Null,
            time_limit: None,
            memory_limit: limit.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes > 0),
        }
    }

    /// The failure of a step that has no time left.
    fn expired(&self, place: &Place) -> Option<Box<Failure>> {
        let now = Instant::now();
        let over = self.deadlines.iter().position(|end| *end <= now + LIMIT_SLACK)?;
        let is_own = over == 0 && self.has_own_deadline;
        let kind = if is_own { ErrorKind::Walltime } else { ErrorKind::Timeout };
        let mut failure = self.failure(kind, 124, "there was no time left".into(), place);
        failure.expired = Some(over);
        Some(failure)
    }

    /// Runs a process, keeps its row and its captures, and judges it.
    async fn process(
        &mut self,
        step: &Step,
        command: &str,
        order: Order,
        limit: Option<Duration>,
        place: &Place,
    ) -> Tried {
        if let Some(failure) = self.expired(place) {
            return Ok(Err(failure));
        }
        let nth = self.tries.entry(place.path.clone()).or_insert(0);
        *nth += 1;
        let nth = *nth;
        let mut order = order;
        let (stdout, stderr) = if self.is_light {
            let (stdout, stderr) = crate::attempt::sinks(&self.context, &self.packet);
            (order.stdout, order.stderr) = (stdout.clone(), stderr.clone());
            let path = |sink: &Sink| sink.path().map_or_else(PathBuf::new, PathBuf::from);
            (path(&stdout), path(&stderr))
        } else {
            let path = |ending: &str| self.context.log_path(&self.packet, &format!("_s{}_t{nth}.{ending}", place.file));
            let (stdout, stderr) = (path("o"), path("e"));
            (order.stdout, order.stderr) = (Sink::Create(stdout.clone()), Sink::Create(stderr.clone()));
            self.files.extend([stdout.clone(), stderr.clone()]);
            (stdout, stderr)
        };
        let now = Instant::now();
        let left = self.deadlines.iter().map(|end| end.saturating_duration_since(now)).min();
        order.time_limit = [limit, left].into_iter().flatten().min();
        let is_enclosing = left.is_some_and(|left| limit.is_none_or(|limit| left < limit));
        let dir = order.dir.clone().unwrap_or_default();
        let exit = match self.port.ask(Ask::Run(Box::new(order))).await {
            Answer::Ended(exit) => exit,
            Answer::Stop(reason) => return Err(Stop::Interrupted(None, Some(reason))),
            Answer::Begin | Answer::Woken => {
                return Ok(Err(self.failure(ErrorKind::Spawn, 127, "the process was lost from sight".into(), place)));
            }
        };
        self.usage.add(&exit);
        let is_stopped = exit
            .stop
            .as_ref()
            .is_some_and(|stop| !matches!(stop, StopReason::Timeout { .. } | StopReason::Memory { .. }));
        let code = self.judge(&exit);
        let mut failure = code.map(|(kind, code, sentence)| {
            let signal = if let How::Signal(signal) = exit.how { Some(i64::from(signal)) } else { None };
            Box::new(Failure {
                kind,
                code,
                signal,
                message: outputs::message(&stdout, &stderr, &sentence),
                step: place.path.clone(),
                command: command.to_owned(),
                nth,
                stdout: Some(stdout.clone()),
                stderr: Some(stderr.clone()),
                at_ms: exit.ended_ms,
                exit: Some(exit.clone()),
                expired: None,
            })
        });
        if let Some(failure) = failure.as_mut().filter(|failure| failure.kind == ErrorKind::Timeout && is_enclosing) {
            let now = Instant::now();
            failure.expired = self.deadlines.iter().position(|end| *end <= now + LIMIT_SLACK).or(Some(0));
            if failure.expired == Some(0) && self.has_own_deadline {
                failure.kind = ErrorKind::Walltime;
            }
        }
        self.last = Some(Process { exit, nth, stdout, stderr, dir });
        let result = if is_stopped { failure.map_or(Ok(()), Err) } else { self.judge_rest(step, failure, place) };
        self.row(step, place, nth, &result);
        if is_stopped {
            let exit = self.last.take().map(|process| process.exit);
            return Err(Stop::Interrupted(exit, None));
        }
        Ok(result)
    }

    /// Kind, code and a sentence about a process that did not end well.
    fn judge(&self, exit: &Exit) -> Option<(ErrorKind, i64, String)> {
        let verdict = crate::attempt::judge(exit, &self.context.execution, None, &[]);
        verdict.cause?;
        let sentence = verdict.error.unwrap_or_default();
        Some(match (&exit.stop, &exit.how) {
            (_, How::NotStarted(error)) => (ErrorKind::Spawn, i64::from(error.return_code), sentence),
            (Some(StopReason::Timeout { .. }), _) => (ErrorKind::Timeout, 124, sentence),
            (Some(_), _) | (None, How::Signal(_)) => (ErrorKind::Signal, verdict.return_code, sentence),
            (None, How::Code(_)) => (ErrorKind::Exit, verdict.return_code, sentence),
        })
    }

    /// Captures, then what was expected.
    fn judge_rest(&mut self, step: &Step, failure: Option<Box<Failure>>, place: &Place) -> Result<(), Box<Failure>> {
        let captured = self.take_captures(&step.capture);
        let exit_code = failure.as_ref().map_or(0, |failure| failure.code);
        match (&step.expect, failure) {
            // Only a code of its own can be expected.
            (Some(expect), failure) if failure.as_ref().is_none_or(|failure| failure.kind == ErrorKind::Exit) => {
                let mut result = self.expectation(expect, exit_code, place);
                if let (Err(new), Some(old)) = (&mut result, failure) {
                    new.exit = old.exit;
                    new.message = format!("{}\n{}", new.message, old.message);
                }
                result
            }
            (_, Some(failure)) => Err(failure),
            (_, None) => captured.map_err(|message| self.failure(ErrorKind::Capture, 1, message, place)),
        }
    }

    /// Reads variables from the process that ended last.
    fn take_captures(&mut self, capture: &Capture) -> Result<(), String> {
        if capture.is_empty() {
            return Ok(());
        }
        let Some(last) = &self.last else { return Err("there is nothing to capture from".into()) };
        let (exit_code, success) = self.judge(&last.exit).map_or((0, true), |(_, code, _)| (code, false));
        let ended = Ended {
            exit_code,
            success,
            seconds: last.exit.wall.as_secs_f64(),
            nth: last.nth,
            stdout: &last.stdout,
            stderr: &last.stderr,
            dir: &last.dir,
        };
        let mut found = Vec::new();
        let mut wrong = None;
        for (name, source) in capture {
            let source = match source {
                torc_model::steps::CaptureSource::File(path) => {
                    let path = self.scope.fill(path).map_err(|error| error.to_string())?;
                    &torc_model::steps::CaptureSource::File(path)
                }
                source => source,
            };
            match outputs::capture(source, &ended) {
                Ok(captured) => found.push((name, captured)),
                Err(message) => wrong = Some(format!("`{name}` can not be captured: {message}")),
            }
        }
        for (name, captured) in found {
            self.scope.capture(name, captured);
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Keeps the row of a try, and tells of it in the attempt's own log.
    fn row(&mut self, step: &Step, place: &Place, nth: u32, result: &Result<(), Box<Failure>>) {
        let Some(last) = &self.last else { return };
        let failure = result.as_ref().err();
        let text = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.display().to_string());
        let row = Row {
            path: place.path.clone(),
            name: step.name.clone(),
            kind: step.action.word().into(),
            nth,
            outcome: if failure.is_none() { Outcome::Ok } else { Outcome::Failed },
            exit_code: Some(failure.map_or(0, |failure| failure.code)),
            signal: failure.and_then(|failure| failure.signal),
            error_kind: failure.map(|failure| failure.kind),
            error: failure.map(|failure| failure.message.clone()),
            started_ms: last.exit.started_ms,
            ended_ms: last.exit.ended_ms,
            stdout_path: text(&last.stdout),
            stderr_path: text(&last.stderr),
        };
        if !self.is_light {
            let (stdout, stderr) = crate::attempt::sinks(&self.context, &self.packet);
            let stderr = if stderr == Sink::SameAsStdout { stdout.clone() } else { stderr };
            let how = match failure {
                None => "ok".to_owned(),
                Some(failure) => format!("{} ({})", failure.kind.as_str(), failure.code),
            };
            let line = format!("{} try {nth}: {how}", step.name.as_deref().unwrap_or(&place.path));
            let echo = |from: &PathBuf, to: &Sink| to.path().map_or(Ok(()), |to| outputs::echo(from, to));
            let told = echo(&last.stdout, &stdout)
                .and_then(|()| echo(&last.stderr, &stderr))
                .and_then(|()| stderr.path().map_or(Ok(()), |path| outputs::note(path, &line)));
            if let Err(error) = told {
                tracing::warn!(%error, "can not write the attempt's log");
            }
        }
        self.report.rows.push(row);
    }

    /// Runs a handler for a failure.
    async fn handle(&mut self, handler: &Handler, failure: &Failure, place: &Place) -> Result<HandlerEnd, Stop> {
        let data = json!({"strategy": handler.strategy, "error_kind": failure.kind, "exit_code": failure.code});
        self.event("handler_started", place, data);
        let started = Line {
            path: place.path.clone(),
            event: Some("handler_started".into()),
            outcome: None,
            captures: Default::default(),
        };
        self.keep(started);
        let file = |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
        let error = json!({
            "message": failure.message, "exit_code": failure.code, "step": failure.step,
            "timestamp": run_report::rfc3339(failure.at_ms), "kind": failure.kind, "signal": failure.signal,
            "attempt": failure.nth, "command": failure.command, "stdout_file": file(&failure.stdout),
            "stderr_file": file(&failure.stderr), "output_file": file(&failure.stdout),
        });
        let Value::Object(error) = error else { return Ok(HandlerEnd::Failed) };
        self.scope.push_error(error);
        let own = self.deadlines.len();
        let limit = handler.timeout.map(|timeout| Duration::from_secs(timeout.0));
        self.deadlines.extend(limit.map(|limit| Instant::now() + limit));
        let outcome_file = self.context.log_path(&self.packet, &format!("_s{}_outcome", place.file));
        if handler.strategy == Strategy::Custom {
            self.envs.push(vec![("OUTCOME_FILE".into(), outcome_file.display().to_string())]);
        }
        let went = self.list(&handler.commands, place, "on_failure").await;
        if handler.strategy == Strategy::Custom {
            self.envs.pop();
        }
        self.deadlines.truncate(own);
        self.scope.pop_error();
        let went = went?;
        let is_good = went.failure.is_none() && went.succeeded > 0;
        if is_good {
            // What a handler's output is not does not undo what it did.
            let _ = self.take_captures(&handler.capture);
        }
        let word = match handler.strategy {
            Strategy::Custom => Word::parse(&std::fs::read_to_string(&outcome_file).unwrap_or_default()),
            Strategy::Recovery | Strategy::Fallback | Strategy::Cleanup => Word::Failed,
        };
        let end = if is_good { HandlerEnd::Succeeded(word) } else { HandlerEnd::Failed };
        let error = went.failure.map(|failure| failure.message);
        self.event("handler_finished", place, json!({"succeeded": is_good, "error": error}));
        Ok(end)
    }
}

fn rule(handler: &Handler) -> (Strategy, u32) {
    (handler.strategy, handler.max_attempts)
}

/// The failure of a check is the failure of what it checks.
fn validation(mut failure: Box<Failure>, place: &Place) -> Box<Failure> {
    if failure.expired.is_none() {
        failure.kind = ErrorKind::Validation;
        failure.step.clone_from(&place.path);
    }
    failure
}

fn captured_names(steps: &[Step], names: &mut Vec<String>) {
    for step in steps {
        names.extend(step.capture.keys().cloned());
        names.extend(step.on_failure.iter().flat_map(|handler| handler.capture.keys().cloned()));
        step.parts().for_each(|(_, steps)| captured_names(steps, names));
    }
}

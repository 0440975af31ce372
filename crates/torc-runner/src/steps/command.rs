//! The processes of steps: shell text and calls of the agent.

use super::agent;
use super::failure::{Failure, LIMIT_SLACK, Place, Stop, Tried};
use super::outputs;
use super::run::Run;
use super::turns::{Answer, Ask};
use crate::attempt::{Lacking, Rules};
use crate::long::{self, Files};
use crate::process::{OrderRest, ProcessOrder, Sink};
use crate::supervisor::{How, ProcessExit, StopReason};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use torc_model::steps::{ErrorKind, Step, shell};

/// A process that has ended.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) exit: Box<ProcessExit>,
    pub(super) nth: u32,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
    pub(super) dir: PathBuf,
}

impl Run {
    pub(super) async fn shell(&mut self, step: &Step, text: &str, place: &Place) -> Tried {
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

    pub(super) async fn agent(&mut self, step: &Step, prompt: &str, place: &Place) -> Tried {
        let prompt = match self.scope.fill(prompt) {
            Ok(prompt) => prompt,
            Err(error) => return Ok(Err(self.variable(&error, place))),
        };
        let agent = self.inherited.agent.clone().unwrap_or_default();
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
            return Ok(Err(self.failure(
                ErrorKind::Agent,
                1,
                "the prompt contains a NUL character".into(),
                place,
            )));
        }
        let slot = match self.slot(&agent, place).await? {
            Ok(slot) => slot,
            Err(failure) => return Ok(Err(failure)),
        };
        let what = format!("{} {}", self.packet.job_name, place.path);
        let counted =
            agent::count_call(&agent, &self.context.output_dir, self.context.workflow_id.0, &what);
        match counted {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place))),
            Err(error) => {
                let message = format!("the agent's calls cannot be counted: {error}");
                return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place)));
            }
        }
        let (argv, by_stdin) = agent::arguments(&agent, &prompt);
        order.argv = argv;
        // It holds keys of its own and what it was told.
        order.rest.get_or_insert_default().no_core = true;
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

    /// A right to call the agent now, for as long as the file is open; waits until there is one.
    async fn slot(
        &mut self,
        agent: &torc_model::steps::StepAgent,
        place: &Place,
    ) -> Result<Result<Option<File>, Box<Failure>>, Stop> {
        let Some(most) = agent.max_parallel else { return Ok(Ok(None)) };
        let paths = agent::slots(most, &self.context.output_dir, self.context.workflow_id.0);
        match agent::free_slot(&paths) {
            Ok(Some(slot)) => return Ok(Ok(Some(slot))),
            Ok(None) => {}
            Err(error) => {
                let message = format!("the agent's calls cannot be counted: {error}");
                return Ok(Err(self.failure(ErrorKind::Agent, 1, message, place)));
            }
        }
        let left = self.clock.time_left(Instant::now());
        loop {
            match self.port.ask(Ask::Slot { paths: paths.clone(), at_most: left }).await {
                Answer::Slot(slot) => return Ok(Ok(Some(slot))),
                Answer::Stop(reason) => return Err(Stop::Interrupted(None, Some(reason))),
                Answer::Begin | Answer::Woken | Answer::Ended(_) => {}
            }
            if let Some(failure) = self.expired(place) {
                return Ok(Err(failure));
            }
        }
    }

    pub(super) fn order(&self, text: String, exports: Vec<(String, String)>) -> ProcessOrder {
        let mut env = self.inherited.base_env.clone();
        env.extend(exports);
        env.extend(self.inherited.envs.iter().flatten().cloned());
        let limit = self.packet.memory_bytes.filter(|_| self.context.execution.limit_resources);
        let rest = OrderRest {
            files: Files {
                lists: Vec::new(),
                dir: long::is_long(&text, &env)
                    .then(|| crate::attempt::long_dir(&self.context, &self.packet)),
            },
            outputs: None,
            tolerates_oom: self.packet.strictness.tolerate_oom,
            no_core: false,
        };
        ProcessOrder {
            shell: self.packet.strictness.shell.unwrap_or(self.context.execution.shell),
            rest: rest.boxed(),
            id: 0,
            tag: String::new(),
            text,
            argv: Vec::new(),
            env,
            dir: self.inherited.dirs.last().cloned(),
            stdin: None,
            stdout: Sink::Null,
            stderr: Sink::Null,
            time_limit: None,
            memory_limit: limit
                .and_then(|bytes| u64::try_from(bytes).ok())
                .filter(|bytes| *bytes > 0),
        }
    }

    /// Runs a process, keeps its row and its captures, and judges it.
    pub(super) async fn process(
        &mut self,
        step: &Step,
        command: &str,
        order: ProcessOrder,
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
            let path = |ending: &str| {
                self.context.log_path(&self.packet, &format!("_s{}_t{nth}.{ending}", place.file))
            };
            let (stdout, stderr) = (path("o"), path("e"));
            (order.stdout, order.stderr) =
                (Sink::Create(stdout.clone()), Sink::Create(stderr.clone()));
            self.files.extend([stdout.clone(), stderr.clone()]);
            (stdout, stderr)
        };
        let now = Instant::now();
        let left = self.clock.time_left(now);
        order.time_limit = [limit, left].into_iter().flatten().min();
        let is_enclosing = left.is_some_and(|left| limit.is_none_or(|limit| left < limit));
        let dir = order.dir.clone().unwrap_or_default();
        let long_dir = order.rest.as_ref().and_then(|rest| rest.files.dir.clone());
        let exit = match self.port.ask(Ask::Run(Box::new(order))).await {
            Answer::Ended(exit) => exit,
            Answer::Stop(reason) => return Err(Stop::Interrupted(None, Some(reason))),
            Answer::Begin | Answer::Woken | Answer::Slot(_) => {
                return Ok(Err(self.failure(
                    ErrorKind::Spawn,
                    127,
                    "the process was lost from sight".into(),
                    place,
                )));
            }
        };
        if let Some(dir) = long_dir {
            long::remove(&dir);
        }
        self.usage.add(&exit);
        let is_stopped = exit.stop.as_ref().is_some_and(|stop| {
            !matches!(stop, StopReason::Timeout { .. } | StopReason::Memory { .. })
        });
        let code = self.judge(&exit);
        let mut failure = code.map(|(kind, code, sentence)| {
            let signal =
                if let How::Signal(signal) = exit.how { Some(i64::from(signal)) } else { None };
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
        if let Some(failure) =
            failure.as_mut().filter(|failure| failure.kind == ErrorKind::Timeout && is_enclosing)
        {
            let now = Instant::now();
            failure.expired =
                self.clock.deadlines.iter().position(|end| *end <= now + LIMIT_SLACK).or(Some(0));
            if failure.expired == Some(0) && self.clock.has_own_deadline {
                failure.kind = ErrorKind::Walltime;
            }
        }
        self.last = Some(Process { exit, nth, stdout, stderr, dir });
        let result = if is_stopped {
            failure.map_or(Ok(()), Err)
        } else {
            self.judge_rest(step, failure, place)
        };
        self.row(step, place, nth, &result);
        if is_stopped {
            let exit = self.last.take().map(|process| process.exit);
            return Err(Stop::Interrupted(exit, None));
        }
        Ok(result)
    }

    /// Kind, code and a sentence about a process that did not end well.
    pub(super) fn judge(&self, exit: &ProcessExit) -> Option<(ErrorKind, i64, String)> {
        let verdict = crate::attempt::judge(
            exit,
            &Rules { checkpoint: None, ..Rules::of(&self.context, &self.packet) },
            &Lacking::default(),
        );
        verdict.cause?;
        let sentence = verdict.error.unwrap_or_default();
        Some(match (&exit.stop, &exit.how) {
            (_, How::NotStarted(error)) => {
                (ErrorKind::Spawn, i64::from(error.return_code), sentence)
            }
            (Some(StopReason::Timeout { .. }), _) => (ErrorKind::Timeout, 124, sentence),
            (Some(_), _) | (None, How::Signal(_)) => {
                (ErrorKind::Signal, verdict.return_code, sentence)
            }
            (None, How::Code(_)) => (ErrorKind::Exit, verdict.return_code, sentence),
        })
    }
}

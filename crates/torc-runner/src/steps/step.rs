//! One step with everything that belongs to it: tries, retries, checks, groups. The decisions are
//! the model's.

use super::failure::{Failure, Place, Stop, Tried, validation};
use super::journal::Line;
use super::run::{Run, rule};
use super::turns::{Answer, Ask};
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use torc_model::event::EventKind;
use torc_model::steps::{
    Action, AfterHandler, AfterTry, ErrorKind, FailedTry, Outcome, Step, Strategy, after_handler,
    after_try, given_up,
};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Check,
}

/// How a list of steps went.
pub(super) struct Went {
    pub(super) failure: Option<Box<Failure>>,
    pub(super) succeeded: u32,
}

impl Run {
    pub(super) fn list<'a>(
        &'a mut self,
        steps: &'a [Step],
        place: &'a Place,
        word: &'static str,
    ) -> Boxed<'a, Result<Went, Stop>> {
        Box::pin(self.list_from(steps, 0, place, word))
    }

    pub(super) async fn list_from(
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
    pub(super) async fn step(
        &mut self,
        step: &Step,
        place: &Place,
    ) -> Result<(Outcome, Option<Box<Failure>>), Stop> {
        let name = step.name.clone().unwrap_or_else(|| place.path.clone());
        if let Some(when) = &step.when {
            match self.scope.holds(when) {
                Ok(true) => {}
                Ok(false) => {
                    self.event(
                        EventKind::StepFinished,
                        place,
                        json!({"outcome": Outcome::Skipped, "name": name}),
                    );
                    return Ok((Outcome::Skipped, None));
                }
                Err(message) => {
                    let mut failure =
                        self.failure(ErrorKind::Variable, 1, format!("`when`: {message}"), place);
                    self.row_without_process(step, place, &mut failure);
                    return Ok(self.finish(
                        step,
                        place,
                        &name,
                        given_up(step.continue_on_error),
                        Some(failure),
                    ));
                }
            }
        }
        if !self.is_light {
            self.event(
                EventKind::StepStarted,
                place,
                json!({"name": name, "kind": step.action.word()}),
            );
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
                    let outcome =
                        if after.is_some() { given_up(step.continue_on_error) } else { outcome };
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
            let Some(handler) = step.on_failure.as_ref().filter(|_| decision == AfterTry::Handle)
            else {
                return Ok(self.finish(
                    step,
                    place,
                    &name,
                    given_up(step.continue_on_error),
                    Some(failure),
                ));
            };
            let end = self.handle(handler, &failure, place).await?;
            match after_handler(
                handler.strategy,
                end,
                n,
                handler.max_attempts,
                handler.handler_failure_fatal,
            ) {
                AfterHandler::Recovered => {
                    if handler.strategy == Strategy::Fallback {
                        // Its result stands for the step's; what it did not print is simply not
                        // there.
                        let _ = self.take_captures(&step.capture);
                    }
                    return Ok(self.finish(step, place, &name, Outcome::Recovered, Some(failure)));
                }
                AfterHandler::Rerun => {
                    let only_check =
                        failure.kind == ErrorKind::Validation && !step.validate.is_empty();
                    part = if only_check { Part::Check } else { Part::Whole };
                }
                AfterHandler::GiveUp => {
                    return Ok(self.finish(
                        step,
                        place,
                        &name,
                        given_up(step.continue_on_error),
                        Some(failure),
                    ));
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
                self.record.report.recovered += 1;
                self.event(EventKind::StepRecovered, place, json!({"name": name}));
            }
            Outcome::Ignored => {
                self.record.report.ignored += 1;
                self.event(EventKind::StepIgnored, place, json!({"name": name}));
            }
            Outcome::Ok | Outcome::Skipped | Outcome::Failed | Outcome::Interrupted => {}
        }
        if !self.is_light {
            let mut data = json!({"name": name, "outcome": outcome, "kind": step.action.word()});
            if let Some(failure) = &failure {
                data["error_kind"] = json!(failure.kind);
                data["exit_code"] = json!(failure.code);
            }
            self.event(EventKind::StepFinished, place, data);
            let captures = self.scope.captures().clone();
            self.keep(Line {
                path: place.path.clone(),
                event: None,
                outcome: Some(outcome),
                captures,
            });
            torc_failpoint::hit("steps.after_step");
        }
        (outcome, failure.filter(|_| !outcome.goes_on()))
    }

    /// One part of a step with the step's own retries.
    async fn tries(&mut self, step: &Step, place: &Place, part: Part, begun: Instant) -> Tried {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.record.report.rows.len();
            let Err(mut failure) = self.once(step, place, part).await? else { return Ok(Ok(())) };
            let has_row =
                self.record.report.rows[before..].iter().any(|row| row.path == place.path);
            // What failed inside it, and a check of it, have rows of their own.
            if !has_row && failure.step == place.path && failure.kind != ErrorKind::Validation {
                self.row_without_process(step, place, &mut failure);
            }
            let seed =
                self.packet.job_id.0.unsigned_abs() ^ (self.packet.attempt_id.unsigned_abs() << 32);
            let failed = FailedTry {
                nth: tries,
                kind: failure.kind,
                code: failure.code,
                message: &failure.message,
                elapsed: begun.elapsed().as_secs_f64(),
            };
            let retry = step.retry.as_ref().filter(|_| failure.expired.is_none());
            let wait = retry.and_then(|retry| retry.wait(&failed, seed));
            let Some(wait) = wait else { return Ok(Err(failure)) };
            self.event(
                EventKind::RetryScheduled,
                place,
                json!({"try": tries + 1, "after_seconds": wait}),
            );
            self.wait(Duration::try_from_secs_f64(wait).unwrap_or_default()).await?;
        }
    }

    pub(super) async fn wait(&mut self, time: Duration) -> Result<(), Stop> {
        // A wait does not outlast the time limits around it; the next try will find them over.
        let left = self.clock.time_left(Instant::now());
        match self.port.ask(Ask::Wait(left.map_or(time, |left| left.min(time)))).await {
            Answer::Stop(reason) => Err(Stop::Interrupted(None, Some(reason))),
            Answer::Begin | Answer::Woken | Answer::Ended(_) | Answer::Slot(_) => Ok(()),
        }
    }

    /// One part of a step, once.
    async fn once(&mut self, step: &Step, place: &Place, part: Part) -> Tried {
        let depth = (self.inherited.dirs.len(), self.inherited.envs.len());
        let result = match self.enter(step, place) {
            Ok(()) => self.once_inside(step, place, part).await?,
            Err(failure) => Err(failure),
        };
        self.inherited.dirs.truncate(depth.0);
        self.inherited.envs.truncate(depth.1);
        Ok(result)
    }

    /// The directory and the environment of a step; those of a group are its steps' too.
    fn enter(&mut self, step: &Step, place: &Place) -> Result<(), Box<Failure>> {
        let filled = |run: &Self, text: &str| run.scope.fill(text);
        if let Some(dir) = &step.dir {
            let dir = filled(self, dir).map_err(|error| self.variable(&error, place))?;
            let base = self.inherited.dirs.last().cloned().unwrap_or_default();
            self.inherited.dirs.push(base.join(dir));
        }
        if !step.env.is_empty() {
            let mut env = Vec::with_capacity(step.env.len());
            for (key, value) in &step.env {
                env.push((
                    key.clone(),
                    filled(self, value).map_err(|error| self.variable(&error, place))?,
                ));
            }
            self.inherited.envs.push(env);
        }
        Ok(())
    }

    async fn once_inside(&mut self, step: &Step, place: &Place, part: Part) -> Tried {
        if let Some(first) = self.rehearsal.take()
            && let Action::Shell(text) = &first.action
        {
            return match self.enter(&first, place) {
                Ok(()) => self.shell(&first, text, place).await,
                Err(failure) => Ok(Err(failure)),
            };
        }
        if part == Part::Whole {
            let result = match &step.action {
                Action::Shell(text) => self.shell(step, text, place).await?,
                Action::Claude(prompt) => self.agent(step, prompt, place).await?,
                Action::Validate(steps) | Action::Steps(steps) => {
                    self.group(step, steps, place).await?
                }
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
        let own = self.clock.deadlines.len();
        let limit = step.timeout.map(|timeout| Duration::from_secs(timeout.0));
        self.clock.deadlines.extend(limit.map(|limit| Instant::now() + limit));
        let went = self.list(steps, place, step.action.word()).await?;
        self.clock.deadlines.truncate(own);
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

    pub(super) fn expectation(
        &mut self,
        expect: &str,
        exit_code: i64,
        place: &Place,
    ) -> Result<(), Box<Failure>> {
        match self.scope.holds_after(expect, exit_code) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let code = if exit_code == 0 { 1 } else { exit_code };
                Err(self.failure(
                    ErrorKind::Expect,
                    code,
                    format!("`{expect}` does not hold"),
                    place,
                ))
            }
            Err(message) => {
                Err(self.failure(ErrorKind::Variable, 1, format!("`expect`: {message}"), place))
            }
        }
    }
}

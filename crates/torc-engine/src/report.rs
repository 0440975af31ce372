//! Reports: an attempt started, ended or was lost, and what follows from it.

use super::avoidance::PREFERENCE_MS;
use super::change::{Change, End, Judged};
use super::claim::Limits;
use super::index::{ClassIx, JobIx};
use super::jobs::Live;
use super::machine::{AttemptEvent, JobEvent, Machine};
use super::rules::{Failure, Verdict};
use super::workflow::{Next, Workflow};
use serde_json::json;
use torc_model::api::{Evidence, RecoveryScript};
use torc_model::attempt::{Decision, Ending};
use torc_model::chance;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, RunnerId};
use torc_model::plan::Rule;
use torc_model::recovery::{Diagnosis, Facts, Rules, diagnose, diagnose_with};
use torc_model::status::{
    Afterwards, AttemptState, Cause, EndDetail, EndedBy, JobStatus, Origin, Outcome, StatusReason,
};
use torc_model::words;

/// A recovery script is killed after this long unless its rule says otherwise.
const SCRIPT_TIMEOUT_SECONDS: i64 = 600;

/// A job may ask to be continued this often in one run; beyond it something is wrong with the
/// program.
const MAX_REFUNDS: u32 = 1000;

/// Return code of an attempt whose end was not seen.
const LOST_RETURN_CODE: i64 = -128;

/// What became of an ended attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The job's status now.
    pub status: JobStatus,
    /// What the rules decided about a failure.
    pub outcome: Option<Outcome>,
    /// Where its next attempt comes from, if one was queued.
    pub next: Option<Origin>,
}

/// Why a runner's attempts are given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Lost, preempted, node_fail or walltime.
    pub cause: Cause,
    /// One sentence: what is known.
    pub evidence: Evidence,
}

/// A rule that matches a failure.
struct Matched<'a> {
    /// The name of its handler.
    handler: &'a str,
    /// Its place in the handler.
    rule: usize,
    found: &'a Rule,
}

/// What follows from an end.
struct Consequence {
    event: JobEvent,
    outcome: Option<Outcome>,
    rule: Option<usize>,
    text: String,
    next: Option<Next>,
}

impl Workflow {
    /// The right to speak for an attempt: it is live, held by this runner, and the token is the one
    /// given.
    pub fn may_report(&self, attempt: AttemptId, runner: RunnerId, token: &str) -> Option<JobIx> {
        let index = self.find_live(attempt)?;
        let held = self.jobs[index].held()?;
        (held.runner == runner && held.token == token).then_some(index)
    }

    /// The runner started it. A repeat changes nothing.
    pub fn started(&mut self, index: JobIx, pid: i64, at: i64) {
        let job = &mut self.jobs[index];
        let number = job.tries.number;
        let Some(held) = job.held_mut() else { return };
        let Ok(state) = held.state.after(AttemptEvent::Started) else { return };
        held.state = state;
        held.started_at = Some(at);
        let id = held.attempt;
        self.shift(index, JobEvent::Started, None);
        self.record(Change::AttemptStarted { id, pid, at });
        self.event(
            EventKind::JobStarted,
            Some(index),
            json!({"attempt_id": number, "run_id": self.run}),
        );
    }

    /// The attempt ended. `end` holds what the runner saw; the state and the decision are filled in
    /// here.
    pub fn ended(&mut self, index: JobIx, mut end: End, limits: &mut Limits) -> Ended {
        let now = end.at;
        let job = &self.jobs[index];
        let held = job.held().expect("only held attempts end by report");
        let id = held.attempt;
        let canceled = end.ending.cause.is_some() && (held.cancel_requested || self.canceled);
        if canceled {
            end.ending.cause = Some(Cause::Canceled);
        }
        let decision =
            self.decide_revised(index, &end).unwrap_or_else(|| self.decide(index, id, &end));
        let state = match end.ending.cause {
            None => AttemptState::Completed,
            Some(Cause::Canceled) => AttemptState::Canceled,
            Some(Cause::Timeout) => AttemptState::Terminated,
            Some(cause) if is_free(cause, &end) => AttemptState::Terminated,
            Some(
                Cause::Exit
                | Cause::Signal
                | Cause::Oom
                | Cause::MissingOutput
                | Cause::SpawnError
                | Cause::Lost
                | Cause::Preempted
                | Cause::NodeFail
                | Cause::Walltime
                | Cause::Stopped
                | Cause::Checkpoint,
            ) => AttemptState::Failed,
        };
        debug_assert!(held.state.after(AttemptEvent::Ended(state)).is_ok());
        end.state = Some(state);
        end.decision = Decision {
            outcome: decision.outcome,
            rule: decision.rule,
            text: (!decision.text.is_empty()).then(|| words::message(&*decision.text)),
        };
        let runner = held.runner;
        let rather_elsewhere = decision
            .next
            .as_ref()
            .is_some_and(|n| matches!(n.origin, Origin::Handler | Origin::Lost | Origin::Auto));
        if rather_elsewhere && self.attempts.runners().any(|other| other != runner) {
            self.ready.avoidance.avoid(index, runner, now + PREFERENCE_MS);
        }
        self.release(index, limits);
        self.forget_script(index, &end, &decision);
        let number = self.jobs[index].tries.number;
        let facts = json!({
            "attempt_id": number, "run_id": self.run, "return_code": end.ending.return_code, "cause": end.ending.cause,
            "outcome": end.decision.outcome, "decision": end.decision.text, "will_retry": decision.next.is_some(),
        });
        if end.ending.cause.is_none()
            && let Some(seconds) = end.usage.exec_seconds
        {
            // The cast saturates.
            self.learn(index, (seconds * 1000.0).round() as u32, now);
        }
        self.record(Change::AttemptEnded(id, Box::new(end)));
        // What is decided after a crash about an attempt that had ended is not in its row, which never
        // changes: a restart could not count it. The number of the attempt bounds such retries.
        if let Some(rule) = decision.rule.filter(|_| decision.next.is_some()) {
            self.handlers.count_use(index, rule);
        }
        self.settle_end(index, decision, facts, now)
    }

    /// A script that ran, well or badly, is not for the next attempt. Only where it kept the
    /// command from running, and no rule matches that, it stays for the user who lets the job run
    /// again.
    fn forget_script(&mut self, index: JobIx, end: &End, decision: &Consequence) {
        if end.script.is_some() && !(blames_script(end) && decision.next.is_none()) {
            self.jobs[index].rare.edit(|rare| rare.script = None);
        }
    }

    /// Decides for an attempt that had ended before a decision was made, or whose decision the job
    /// never heard of.
    pub(super) fn decide_again(&mut self, index: JobIx, id: AttemptId, end: &End, now: i64) {
        let decision =
            self.decide_revised(index, end).unwrap_or_else(|| self.decide(index, id, end));
        let failed_for_good = self.jobs[index].status() == JobStatus::Failed;
        if failed_for_good && decision.next.is_none() {
            return;
        }
        self.forget_script(index, end, &decision);
        let facts = json!({
            "attempt_id": self.jobs[index].tries.number, "run_id": self.run, "return_code": end.ending.return_code,
            "cause": end.ending.cause, "outcome": decision.outcome, "decision": words::message(&*decision.text),
            "will_retry": decision.next.is_some(), "by": "crash recovery",
        });
        self.settle_end(index, decision, facts, now);
        if failed_for_good {
            self.reopen_dependents(index, now);
        }
    }

    /// Moves the job after its attempt ended, with everything that follows.
    fn settle_end(
        &mut self,
        index: JobIx,
        decision: Consequence,
        facts: serde_json::Value,
        now: i64,
    ) -> Ended {
        let outcome = decision.outcome;
        let origin = decision.next.as_ref().map(|next| next.origin);
        let afterwards = self.set_afterwards(index, |_| None);
        if afterwards == Some(Afterwards::Remove) {
            self.shift(index, decision.event, None);
            self.event(EventKind::JobCanceled, Some(index), facts);
            self.take_out(index, now);
        } else if let Some(mut next) = decision.next {
            // What was lost before its script had run must not run without it.
            let unfinished = self.jobs[index].rare.edit(|rare| rare.script.take());
            next.recovery = next.recovery.or(unfinished);
            if next.origin == Origin::Revised {
                // What the job was before spent nothing of what it is now.
                self.jobs[index].tries.renew();
                self.handlers.forget(|job| job == index);
            }
            let job = &mut self.jobs[index];
            job.tries.number += 1;
            match next.origin {
                Origin::Lost => {
                    job.tries.lost += 1;
                    job.tries.refunds += 1;
                }
                Origin::Requeued => job.tries.refunds += 1,
                Origin::Initial
                | Origin::Revised
                | Origin::Handler
                | Origin::Classified
                | Origin::Manual
                | Origin::Recovered
                | Origin::Auto => {}
            }
            self.event(EventKind::JobRetried, Some(index), facts);
            self.shift(index, decision.event, None);
            self.queue_attempt(index, next, now);
            self.block_if_unmet(index, now);
            // What was opened again may have ended badly meanwhile, or is a new dependency that had.
            self.cancel_if_hopeless(index, now);
        } else if decision.event == JobEvent::Expanded {
            self.shift(index, decision.event, Some(StatusReason::WaitsForItems));
            let count = self.tally(index).total;
            let attempt = self.jobs[index].tries.number;
            let facts = json!({"count": count, "run_id": self.run, "attempt_id": attempt});
            self.event(EventKind::ItemsExpanded, Some(index), facts);
            self.start_items(index, now);
        } else {
            self.shift(index, decision.event, None);
            let kind = match self.jobs[index].status() {
                JobStatus::Completed => EventKind::JobCompleted,
                JobStatus::Canceled => EventKind::JobCanceled,
                JobStatus::Terminated => EventKind::JobTerminated,
                JobStatus::PendingFailed => EventKind::JobPendingFailed,
                JobStatus::Uninitialized
                | JobStatus::Blocked
                | JobStatus::Ready
                | JobStatus::Pending
                | JobStatus::Running
                | JobStatus::Failed
                | JobStatus::Disabled => EventKind::JobFailed,
            };
            self.event(kind, Some(index), facts);
            if self.jobs[index].status().is_final() {
                self.propagate(index, now);
            }
        }
        self.finish();
        Ended { status: self.jobs[index].status(), outcome, next: origin }
    }

    /// Takes the attempt from its runner and gives back what it used.
    pub(super) fn release(&mut self, index: JobIx, limits: &mut Limits) {
        if let Some(class) = self.take_away(index) {
            self.give_back(class, limits);
        }
    }

    /// Takes the attempt from its runner. Answers with the class whose share is still taken.
    fn take_away(&mut self, index: JobIx) -> Option<ClassIx> {
        let job = &mut self.jobs[index];
        let (id, runner) = job.held().map(|held| (held.attempt, held.runner))?;
        job.live = Live::None;
        job.last = Some(id);
        let class = job.class;
        if let Some(next) = job.rare.next_class {
            job.rare.edit(|rare| rare.next_class = None);
            job.class = next;
        }
        self.attempts.take_back(id, runner, index);
        Some(class)
    }

    /// Takes what an attempt of this class uses of named limits.
    pub(super) fn take_share(&self, class: ClassIx, limits: &mut Limits) {
        for name in &self.classes[class].uses {
            if let Some(limit) = limits.get_mut(name) {
                limit.used += 1;
            }
        }
    }

    /// Frees what an attempt of this class used of named limits.
    fn give_back(&self, class: ClassIx, limits: &mut Limits) {
        for name in &self.classes[class].uses {
            if let Some(limit) = limits.get_mut(name) {
                limit.used -= 1;
            }
        }
    }

    /// What follows the end of an attempt whose job a new revision has changed or removed meanwhile: how
    /// it ended does not matter. A cancellation of the workflow holds for such a job too.
    fn decide_revised(&self, index: JobIx, end: &End) -> Option<Consequence> {
        let is_removed = match self.jobs[index].afterwards? {
            Afterwards::RunAgain if self.canceled => return None,
            Afterwards::RunAgain => false,
            Afterwards::Remove => true,
        };
        Some(if is_removed {
            Consequence {
                event: JobEvent::Canceled,
                outcome: end.ending.cause.map(|_| Outcome::Error),
                rule: None,
                text: "a new revision of the spec has removed the job".into(),
                next: None,
            }
        } else {
            Consequence {
                event: JobEvent::Requeued,
                outcome: end.ending.cause.map(|_| Outcome::Retried),
                rule: None,
                text: "a new revision of the spec changed the job while it ran: it runs again"
                    .into(),
                next: Some(Next::fresh(Origin::Revised)),
            }
        })
    }

    /// The recovery ladder's second and third rung: the job's rules, then the budget for losses.
    fn decide(&self, index: JobIx, id: AttemptId, end: &End) -> Consequence {
        let job = &self.jobs[index];
        let plain = |event, text: &str| Consequence {
            event,
            outcome: None,
            rule: None,
            text: text.into(),
            next: None,
        };
        let Some(cause) = end.ending.cause else {
            let is_search = self.map(index).is_some_and(|map| map.is_dynamic);
            return plain(if is_search { JobEvent::Expanded } else { JobEvent::Succeeded }, "");
        };
        let again = |origin| Next { retry_of: Some(id), ..Next::fresh(origin) };
        match cause {
            Cause::Canceled => return plain(JobEvent::Canceled, "canceled"),
            free if is_free(free, end) && job.tries.refunds < MAX_REFUNDS => {
                let text = format!(
                    "queued again, because {}; this does not count as a failure",
                    why_free(free)
                );
                let next = Some(again(Origin::Requeued));
                return Consequence {
                    event: JobEvent::Requeued,
                    outcome: None,
                    rule: None,
                    text,
                    next,
                };
            }
            Cause::Stopped
            | Cause::Checkpoint
            | Cause::Exit
            | Cause::Signal
            | Cause::Oom
            | Cause::Timeout
            | Cause::MissingOutput
            | Cause::SpawnError
            | Cause::Lost
            | Cause::Preempted
            | Cause::NodeFail
            | Cause::Walltime => {}
        }
        let is_fatal = end.steps.as_ref().is_some_and(|steps| steps["fatal"] == true);
        if is_fatal && !cause.is_loss() {
            let text = "a step's handler failed, and `handler_failure_fatal` forbids another try";
            // A failure without an outcome would look undecided.
            return Consequence {
                outcome: Some(Outcome::Error),
                ..plain(JobEvent::FailedForGood, text)
            };
        }
        let handler = job.handler.map(|h| &self.handlers[h]);
        let diagnosis = handler
            .filter(|handler| handler.needs_diagnosis())
            .and_then(|_| self.diagnosis(end, cause));
        let failure = Failure {
            return_code: end.ending.return_code.unwrap_or(LOST_RETURN_CODE),
            signal: end.ending.signal,
            cause,
            diagnosis: diagnosis.as_ref(),
            stderr_tail: end.output.stderr_tail.as_deref().unwrap_or(""),
            is_script: blames_script(end),
        };
        let verdict = match handler {
            Some(handler) if cause.is_loss() => handler.precise_verdict(&failure),
            Some(handler) => handler.verdict(&failure),
            None => Verdict::NoMatchingRule,
        };
        if let Verdict::Rule(rule, found) = verdict {
            let handler = handler.map_or("", |h| h.name.as_str());
            let matched = Matched { handler, rule, found };
            return self.by_rule(index, id, &matched, &failure, end.at);
        }
        if cause.is_loss() {
            if job.tries.lost < job.max_lost {
                let text = format!(
                    "queued again after a loss ({} of {}); this does not count against the job's own rules",
                    job.tries.lost + 1,
                    job.max_lost
                );
                let outcome = Some(Outcome::Retried);
                let next = Some(again(Origin::Lost));
                return Consequence { event: JobEvent::Requeued, outcome, rule: None, text, next };
            }
            let text = format!(
                "lost {}; `max_lost_retries` is {}",
                words::count(job.tries.lost + 1, "time"),
                job.max_lost
            );
            let outcome = Some(Outcome::MaxRetriesExceeded);
            return Consequence {
                event: JobEvent::FailedForGood,
                outcome,
                rule: None,
                text,
                next: None,
            };
        }
        if let Some(Judged::Again { not_before, text }) = &end.judged {
            let next = Next { not_before: *not_before, ..again(Origin::Auto) };
            return Consequence {
                event: JobEvent::Requeued,
                outcome: Some(Outcome::Retried),
                rule: None,
                text: text.clone(),
                next: Some(next),
            };
        }
        let (outcome, mut text) = match handler {
            Some(handler) => (
                Outcome::NoMatchingRule,
                format!(
                    "no rule of failure handler `{}` matches {}",
                    handler.name,
                    describe(&failure)
                ),
            ),
            None => (Outcome::NoHandler, "the job has no failure handler".into()),
        };
        if let Some(Judged::Leave(why)) = &end.judged {
            text += &format!("; not recovered automatically: {why}");
        }
        let event = match (self.settings.use_pending_failed, cause) {
            (true, _) => JobEvent::AwaitsVerdict,
            (false, Cause::Timeout) => JobEvent::TerminatedForGood,
            (false, _) => JobEvent::FailedForGood,
        };
        Consequence { event, outcome: Some(outcome), rule: None, text, next: None }
    }

    /// What happened to an attempt, as far as its report tells: what it ran and its limits are not
    /// at hand here, and only move how sure that is.
    fn diagnosis(&self, end: &End, cause: Cause) -> Option<Diagnosis> {
        let facts = Facts {
            cause: Some(cause),
            ..Facts::of(&end.ending, &end.usage, &end.output, end.observed.as_ref())
        };
        match self.settings.recovery.recovery_rules.is_empty() {
            true => diagnose(&facts),
            false => diagnose_with(
                &Rules::of_workflow(self.settings.recovery.recovery_rules.clone()),
                &facts,
            ),
        }
    }

    /// A rule matches the failure: is there a retry left?
    fn by_rule(
        &self,
        index: JobIx,
        id: AttemptId,
        matched: &Matched<'_>,
        failure: &Failure<'_>,
        now: i64,
    ) -> Consequence {
        let Matched { handler, rule, found } = *matched;
        let job = &self.jobs[index];
        // Attempts that were not the job's fault do not use up the user's budget.
        let number = job.tries.counted();
        let uses = self.handlers.uses(index, rule);
        let what = match found.stderr_matches.as_slice() {
            [] => describe(failure),
            texts => {
                format!("{} with `{}` in standard error", describe(failure), texts.join("` or `"))
            }
        };
        let said = format!("matched rule {} of failure handler `{handler}` ({what})", rule + 1);
        // The number bounds the attempts, and the rule itself never gives more retries than it
        // says: not even when attempts that did not count would leave room for more.
        if number >= found.max_retries || uses >= found.max_retries {
            let spent = if found.max_retries == 0 {
                "it retries never".to_owned()
            } else if number > found.max_retries {
                // Attempts that other rules allowed count as well.
                format!(
                    "this was attempt {number}, and the rule retries only up to attempt {}",
                    found.max_retries
                )
            } else if number == found.max_retries {
                format!("attempt {number} of {}", found.max_retries)
            } else {
                format!("it has given {}", words::count(uses, "retry"))
            };
            let text = format!("{said}; {spent}, no more retries");
            let event = match failure.cause {
                Cause::Timeout => JobEvent::TerminatedForGood,
                _ => JobEvent::FailedForGood,
            };
            let outcome = Some(Outcome::MaxRetriesExceeded);
            return Consequence { event, outcome, rule: Some(rule), text, next: None };
        }
        // Jobs that failed together do not come back together.
        let unit = chance::unit(id.0.unsigned_abs());
        let wait = found.backoff.as_ref().map(|b| b.wait_ms(uses + 1, unit)).filter(|ms| *ms > 0);
        let recovery = found.recovery_script.as_ref().map(|script| RecoveryScript {
            script: script.clone(),
            timeout_seconds: found.script_timeout.map_or(SCRIPT_TIMEOUT_SECONDS, |t| t.0 as i64),
            on_failure: found.on_script_failure,
            failed_attempt_id: i64::from(job.tries.number),
            return_code: failure.return_code,
        });
        let mut text = format!("{said}; queued as attempt {} of {}", number + 1, found.max_retries);
        if let Some(ms) = wait {
            text += &format!(", not before {:.1} s from now", ms as f64 / 1000.0);
        }
        if recovery.is_some() {
            text += ", after its recovery script";
        }
        let next = Next {
            retry_of: Some(id),
            not_before: wait.map(|ms| now + ms),
            recovery,
            ..Next::fresh(Origin::Handler)
        };
        let outcome = Some(Outcome::Retried);
        Consequence { event: JobEvent::Requeued, outcome, rule: Some(rule), text, next: Some(next) }
    }

    /// A runner is gone: ends what it held. Returns how many attempts were ended.
    pub fn runner_lost(
        &mut self,
        runner: RunnerId,
        lost: &Lost,
        limits: &mut Limits,
        now: i64,
    ) -> usize {
        self.ready.backfill.forget(runner);
        let held: Vec<JobIx> = self.held_by(runner).collect();
        for index in &held {
            self.ended(*index, lost_end(lost, now), limits);
        }
        self.release_actions(runner);
        held.len()
    }

    /// The runner was asked about an attempt and does not have it: the answer that granted it never
    /// arrived, and should it still arrive, the runner will not start it. It goes back to the queue
    /// at no cost.
    pub fn never_arrived(
        &mut self,
        runner: RunnerId,
        attempt: AttemptId,
        limits: &mut Limits,
        now: i64,
    ) {
        self.never_began(runner, attempt, "it never reached its runner", limits, now);
    }

    /// It is certain that the runner has not started an attempt and never will: it goes back to the
    /// queue at no cost.
    pub fn never_began(
        &mut self,
        runner: RunnerId,
        attempt: AttemptId,
        why: &str,
        limits: &mut Limits,
        now: i64,
    ) {
        let Some(index) = self.find_live(attempt) else { return };
        let held = self.jobs[index].held();
        if held.is_some_and(|h| h.runner == runner && h.state == AttemptState::Claimed) {
            let ending = Ending {
                cause: Some(Cause::Stopped),
                error: Some(words::message(why)),
                ..Ending::default()
            };
            let end = End { ending, ..End::new(EndedBy::Unstarted, now) };
            self.ended(index, end, limits);
        }
    }

    /// A runner that leaves has not started these attempts and never will: they go back to the
    /// queue at no cost.
    pub fn leave_unstarted(&mut self, runner: RunnerId, limits: &mut Limits, now: i64) {
        let held: Vec<AttemptId> =
            self.held_by(runner).filter_map(|index| self.jobs[index].live()).collect();
        for attempt in held {
            self.never_arrived(runner, attempt, limits, now);
        }
    }

    /// Attempts of this runner that it must stop, because the user said so.
    pub fn orders_for(&self, runner: RunnerId) -> Vec<AttemptId> {
        let asked = self.held_by(runner).filter_map(|index| {
            let held = self.jobs[index].held()?;
            held.cancel_requested.then_some(held.attempt)
        });
        asked.collect()
    }
}

/// The job goes back to the queue at no cost: it saved its state, or its runner had to leave and
/// stopped it in good order. What was lost with its runner has a budget.
fn is_free(cause: Cause, end: &End) -> bool {
    cause == Cause::Checkpoint || cause.is_stop() && end.by != EndedBy::Recovery
}

fn why_free(cause: Cause) -> &'static str {
    match cause {
        Cause::Checkpoint => "it saved its state",
        Cause::Preempted => "its nodes were given to another job",
        Cause::NodeFail => "its node failed",
        Cause::Walltime => "its allocation's time was over",
        Cause::Stopped
        | Cause::Exit
        | Cause::Signal
        | Cause::Oom
        | Cause::Timeout
        | Cause::MissingOutput
        | Cause::SpawnError
        | Cause::Lost
        | Cause::Canceled => "its runner could not go on with it",
    }
}

fn lost_end(lost: &Lost, now: i64) -> End {
    let ending = Ending {
        return_code: Some(LOST_RETURN_CODE),
        cause: Some(lost.cause),
        error: Some(words::message(format!("crash recovery: {}", lost.evidence.text))),
        evidence: vec![lost.evidence.clone().shown()],
        ..Ending::default()
    };
    End { ending, ..End::new(EndedBy::Recovery, now) }
}

/// The recovery script failed, so that the command did not run.
fn blames_script(end: &End) -> bool {
    end.ending.detail == Some(EndDetail::RecoveryScript)
}

fn describe(failure: &Failure<'_>) -> String {
    let what = match failure.cause {
        Cause::Exit => format!("exit code {}", failure.return_code),
        Cause::Signal => {
            format!(
                "{} (code {})",
                torc_model::signal::name(failure.signal.unwrap_or(0)),
                failure.return_code
            )
        }
        cause => format!("cause `{cause}` (code {})", failure.return_code),
    };
    if failure.is_script { format!("{what}, with which the recovery script failed") } else { what }
}

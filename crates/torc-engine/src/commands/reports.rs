//! Reports of runners: attempts start and end.

use super::moves;
use crate::engine::{Command, Engine, Turn, Wakes};
use crate::{Burnt, Change, End, Ended, FoundItems, Judged, Refused, Workflow, unwritten};
use serde::Deserialize as _;
use serde_json::json;
use torc_model::api::{CompletionReport, StartReport};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, RunnerId, WorkflowId};
use torc_model::status::{Cause, JobStatus};
use torc_model::steps::StepEvent;

moves! {
    /// An attempt started. Answers with the status of its job; None: it is not this runner's any more.
    ReportStart<'a> {
        /// Who reports it.
        runner: RunnerId,
        /// What it reports.
        report: &'a StartReport,
        /// Its end follows in the same request: people hear of the start, and its rows are left to the
        /// end, which says all that the start said.
        is_followed: bool,
    } -> Option<JobStatus> = |workflow, _, _| {
        let attempt = &report.attempt;
        let Some(index) = workflow.may_report(attempt.id, runner, &attempt.token) else {
            return Ok(None);
        };
        workflow.started(index, report.pid, report.at_ms);
        if is_followed {
            workflow.leave_rows_to_the_end();
        }
        Ok(Some(workflow.job(index).status()))
    };

    /// An attempt ended that was not the runner's any more: people hear of it.
    NoteLateEnd<'a> {
        /// Who reports it.
        runner: RunnerId,
        /// What it reports.
        report: &'a CompletionReport,
    } -> () = |workflow, _, _| {
        // By the runner's clock: tells the doctor whether it ran beside its successor.
        let took_ms = (report.exec_seconds * 1000.0) as i64;
        let data = json!({
            "attempt": report.attempt.id, "runner_id": runner, "return_code": report.return_code,
            "cause": report.cause, "started_ms": report.started_ms,
            "ended_ms": report.started_ms.saturating_add(took_ms),
        });
        workflow.record(Change::Event { kind: EventKind::LateResult, job: None, data });
        Ok(())
    };
}

/// An attempt ended, with everything that follows from it. None: it is not this runner's any more, and
/// nothing follows.
#[derive(Clone, Debug)]
pub struct ReportEnd<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Who reports it.
    pub runner: RunnerId,
    /// What it reports.
    pub report: &'a CompletionReport,
    /// The process of the start that was reported in the same request.
    pub started: Option<i64>,
    /// What rows tell of it.
    pub facts: EndFacts,
}

/// What rows tell of an attempt that ends.
#[derive(Clone, Debug, Default)]
pub struct EndFacts {
    /// What it found, if it is of a map that looks for its items.
    pub found: Option<FoundItems>,
    /// What the server's own diagnosis of a failure asks for.
    pub judged: Option<Judged>,
    /// So many events of its steps are written.
    pub steps_written: u64,
}

/// What followed from the end of an attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    /// What became of it.
    pub ended: Ended,
    /// Its machine was found to be bad: it is to be kept from work.
    pub burnt: Option<Burnt>,
}

impl Command for ReportEnd<'_> {
    type Reply = Option<Reported>;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Option<Reported>, Refused> {
        let Self { workflow: id, runner, report, started, facts } = self;
        let EndFacts { found, judged, steps_written } = facts;
        let attempt = report.attempt.id;
        let Some(index) = turn.see(id)?.may_report(attempt, runner, &report.attempt.token) else {
            if let Some(pid) = started {
                turn.on(id, |workflow, _, _| workflow.write_start(attempt, pid))?;
            }
            return Ok(None);
        };
        let found = found.map(|found| (turn.take_job_ids(found.new.len()), found));
        let (job, ended, had_limits) = turn.on(id, |workflow, limits, now| {
            if let Some((first, found)) = found {
                workflow.find_items(index, first, found, now);
            }
            let had_limits = !workflow.class_of(index).uses.is_empty();
            let end = End { pid: started, judged, ..End::reported(report, now) };
            let ended = workflow.ended(index, end, limits);
            if report.steps.is_some() {
                workflow.finish_steps(index, report, steps_written);
            }
            (workflow.job(index).id(), ended, had_limits)
        })?;
        if had_limits {
            // Others may have waited for what it had, in any workflow.
            turn.wake(Wakes::All);
        }
        let is_canceled = ended.status == JobStatus::Canceled;
        let cause = if is_canceled { Some(Cause::Canceled) } else { report.cause };
        let how = (cause, report.exec_seconds);
        let burnt = turn.engine.runners.judge(runner, (job, attempt), how, turn.at);
        Ok(Some(Reported { ended, burnt }))
    }
}

impl Workflow {
    /// The rest of what an attempt's steps did becomes events, and what it captured user data.
    fn finish_steps(&mut self, index: crate::JobIx, report: &CompletionReport, written: u64) {
        let Some(steps) = &report.steps else { return };
        let events: Vec<StepEvent> = Vec::deserialize(&steps["events"]).unwrap_or_default();
        self.tell_steps(index, unwritten(written, 0, &events));
        let captures = steps["captures"].as_object().filter(|all| !all.is_empty());
        if let Some(captures) = captures.filter(|_| report.cause.is_none()) {
            let values = captures.iter().map(|(name, value)| (name.clone(), value.clone()));
            self.record(Change::Captured(self.job(index).id(), values.collect()));
        }
    }

    /// The rows of a start that were left to an end which does not count.
    fn write_start(&mut self, attempt: AttemptId, pid: i64) {
        let Some(index) = self.find_live(attempt) else { return };
        let started = self.job(index).held().and_then(|held| held.started_at);
        if let Some(at) = started {
            self.record_job(index);
            self.record(Change::AttemptStarted { id: attempt, pid, at });
        }
    }
}

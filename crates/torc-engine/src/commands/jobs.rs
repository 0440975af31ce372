//! Jobs: what people, verdicts and recoveries do to single ones.

use super::moves;
use crate::{Because, Change, JobIx};
use serde_json::Value;
use torc_model::api::Evidence;
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId};
use torc_model::recovery::Change as Adjusted;
use torc_model::status::{Cause, JobStatus, Origin};

moves! {
    /// Stops a job that has not ended; what depends on it is canceled with it.
    CancelJob {
        /// Which.
        job: JobIx,
    } -> () = |workflow, _, now| workflow.cancel_job(job, now);

    /// Stops jobs; what depends on them is canceled with them. One that has ended meanwhile is passed
    /// over.
    CancelJobs<'a> {
        /// Which.
        jobs: &'a [JobIx],
    } -> () = |workflow, _, now| {
        for job in jobs {
            if !workflow.job(*job).status().is_final() {
                workflow.cancel_job(*job, now)?;
            }
        }
        Ok(())
    };

    /// One more attempt of a job, while its number allows it.
    RetryJob {
        /// Which.
        job: JobIx,
        /// The run that the caller has seen.
        run: i64,
        /// The highest number that an attempt may have.
        max: i64,
    } -> () = |workflow, _, now| workflow.retry(job, run, max, now);

    /// Opens jobs again that failed or wait for a verdict. One that was opened with another is passed
    /// over.
    RunAgain<'a> {
        /// Which.
        jobs: &'a [JobIx],
        /// Where their next attempts come from.
        origin: Origin,
    } -> () = |workflow, _, now| {
        use JobStatus::{Failed, PendingFailed, Terminated};
        for job in jobs {
            let status = workflow.job(*job).status();
            if matches!(status, Failed | Terminated | PendingFailed) {
                workflow.again(*job, origin, now);
            }
        }
        Ok(())
    };

    /// A verdict on a job that waits for one: try again, or give up.
    ClassifyJob {
        /// Which.
        job: JobIx,
        /// Try again.
        retry: bool,
    } -> () = |workflow, _, now| workflow.classify(job, retry, now);

    /// Switches a job off.
    DisableJob {
        /// Which.
        job: JobIx,
    } -> () = |workflow, _, now| workflow.disable(job, now);

    /// Switches a disabled job on again.
    EnableJob {
        /// Which.
        job: JobIx,
    } -> () = |workflow, _, now| workflow.enable(job, now);

    /// Holds a job back from being claimed, or lets it go.
    HoldJob {
        /// Which.
        job: JobIx,
        /// Hold it back.
        held: bool,
    } -> () = |workflow, _, _| {
        workflow.hold(job, held);
        Ok(())
    };

    /// Gives a job another priority, because a person says so.
    PrioritizeJob<'a> {
        /// Which.
        job: JobIx,
        /// Higher runs first.
        priority: i64,
        /// Why.
        why: Option<&'a str>,
        /// Who says so.
        by: Option<&'a str>,
    } -> () = |workflow, _, _| {
        workflow.prioritize(job, priority, why, by);
        Ok(())
    };

    /// Gives a job other limits of its own from its next attempt on, and notes why.
    AdjustJob<'a> {
        /// Which.
        job: JobIx,
        /// What changes.
        changes: &'a [Adjusted],
        /// Why.
        because: Because<'a>,
    } -> () = |workflow, _, _| {
        for change in changes {
            workflow.adjust_because(job, change, because);
        }
        Ok(())
    };

    /// Assigns jobs to another scheduler of a batch system.
    AssignSchedulers<'a> {
        /// Which.
        jobs: &'a [JobId],
        /// The row of the scheduler.
        scheduler: i64,
    } -> () = |workflow, _, _| {
        for job in jobs {
            if let Some(job) = workflow.find(*job) {
                workflow.assign_scheduler(job, scheduler);
            }
        }
        Ok(())
    };

    /// Lets the queued attempt of a job be claimed at another time than was said.
    DelayJob {
        /// Which.
        job: JobIx,
        /// Not before this time.
        not_before: Option<i64>,
    } -> () = |workflow, _, _| {
        workflow.delay(job, not_before);
        Ok(())
    };

    /// What depends on a job waits for jobs that it has added, too.
    HoldDependents<'a> {
        /// The job that added them.
        by: JobIx,
        /// The new jobs.
        added: &'a [JobId],
    } -> () = |workflow, _, now| {
        let added: Vec<JobIx> = added.iter().filter_map(|job| workflow.find(*job)).collect();
        workflow.hold_dependents(by, &added, now);
        Ok(())
    };

    /// Tells that a job has added so many.
    TellAdded {
        /// The job that added them.
        by: JobIx,
        /// How many.
        count: usize,
    } -> () = |workflow, _, _| {
        workflow.tell_added(by, count);
        Ok(())
    };

    /// Why an attempt ended became known after its end.
    ExplainAttempt {
        /// Which.
        attempt: AttemptId,
        /// Of which job.
        job: JobId,
        /// Why it ended.
        cause: Cause,
        /// All that is known about it.
        evidence: Vec<Evidence>,
        /// What the event says.
        told: Value,
    } -> () = |workflow, _, _| {
        workflow.record(Change::AttemptExplained { id: attempt, cause, evidence });
        let kind = EventKind::AttemptExplained;
        workflow.record(Change::Event { kind, job: Some(job), data: told });
        Ok(())
    };
}

//! The kinds of events: what a workflow's event stream, its webhooks and the server's own tasks can
//! hear of.

use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// What happened.
    EventKind {
        /// An action was executed, well or not.
        ActionExecuted = "action_executed",
        /// The trigger of an action came.
        ActionTriggered = "action_triggered",
        /// An allocation is over.
        AllocationEnded = "allocation_ended",
        /// The batch system said why an allocation had ended.
        AllocationExplained = "allocation_explained",
        /// The batch system will start an allocation again.
        AllocationRequeued = "allocation_requeued",
        /// The runner of an allocation has reported.
        AllocationStarted = "allocation_started",
        /// No remaining job needs an allocation.
        AllocationUnneeded = "allocation_unneeded",
        /// Allocations were asked for.
        AllocationsPlanned = "allocations_planned",
        /// The batch system refused allocations.
        AllocationsRefused = "allocations_refused",
        /// Allocations were submitted to the batch system.
        AllocationsSubmitted = "allocations_submitted",
        /// It is not known whether the batch system has allocations.
        AllocationsUnknown = "allocations_unknown",
        /// An ended attempt got its cause after all.
        AttemptExplained = "attempt_explained",
        /// A verdict waits for a person.
        ClassificationHeld = "classification_held",
        /// A person rejected a verdict.
        ClassificationRejected = "classification_rejected",
        /// The handler of a step ended.
        HandlerFinished = "handler_finished",
        /// The handler of a step began.
        HandlerStarted = "handler_started",
        /// The user took an item out of the count.
        ItemDropped = "item_dropped",
        /// The items of a map became jobs.
        ItemsExpanded = "items_expanded",
        /// A map found its items.
        ItemsFound = "items_found",
        /// Recovery changed what a job gets.
        JobAdjusted = "job_adjusted",
        /// A job was canceled.
        JobCanceled = "job_canceled",
        /// The user changed a job.
        JobChanged = "job_changed",
        /// A verdict on a failure was applied.
        JobClassified = "job_classified",
        /// A job succeeded.
        JobCompleted = "job_completed",
        /// A job was switched off.
        JobDisabled = "job_disabled",
        /// A job was switched on again.
        JobEnabled = "job_enabled",
        /// A job failed for good.
        JobFailed = "job_failed",
        /// A job is held back.
        JobHeld = "job_held",
        /// A job failed and waits for a verdict.
        JobPendingFailed = "job_pending_failed",
        /// A job is no longer held back.
        JobReleased = "job_released",
        /// Crash recovery made the rows of a job fit together.
        JobRepaired = "job_repaired",
        /// Another attempt of a job was queued.
        JobRetried = "job_retried",
        /// An attempt of a job started.
        JobStarted = "job_started",
        /// A job was ended by a limit.
        JobTerminated = "job_terminated",
        /// A running job added jobs.
        JobsAdded = "jobs_added",
        /// A report came about an attempt that was no longer its runner's.
        LateResult = "late_result",
        /// Many jobs failed for the same passing cause: their retries wait for one of them.
        RecoveryPaused = "recovery_paused",
        /// Retries that waited for one of them go on.
        RecoveryResumed = "recovery_resumed",
        /// A step will be tried again.
        RetryScheduled = "retry_scheduled",
        /// A runner is gone.
        RunnerEnded = "runner_ended",
        /// A runner gets no work for a while, because its node spoils jobs.
        RunnerQuarantined = "runner_quarantined",
        /// A runner registered.
        RunnerStarted = "runner_started",
        /// The quarantine of a runner is over.
        RunnerTriedAgain = "runner_tried_again",
        /// A step ended.
        StepFinished = "step_finished",
        /// The failure of a step was tolerated.
        StepIgnored = "step_ignored",
        /// A handler recovered a step.
        StepRecovered = "step_recovered",
        /// A step goes on where an earlier attempt stopped.
        StepResumed = "step_resumed",
        /// A step began.
        StepStarted = "step_started",
        /// The user canceled the workflow.
        WorkflowCanceled = "workflow_canceled",
        /// Every job is final.
        WorkflowCompleted = "workflow_completed",
        /// A round of recovery was carried out.
        WorkflowRecovered = "workflow_recovered",
        /// Allocations were planned anew.
        WorkflowRegenerated = "workflow_regenerated",
        /// Jobs were reset.
        WorkflowReset = "workflow_reset",
        /// A new revision of the spec was applied: jobs were added, changed or removed.
        WorkflowRevised = "workflow_revised",
        /// A run began.
        WorkflowStarted = "workflow_started",
    }
}

/// What the end of an attempt says.
const END: &[&str] =
    &["attempt_id", "run_id", "return_code", "cause", "outcome", "decision", "will_retry", "by"];

impl EventKind {
    /// The fields that the data of such an event may have. A debug build of the server refuses to
    /// write others, so the list is complete.
    pub fn fields(self) -> impl Iterator<Item = &'static str> {
        let tells_of_an_end = matches!(
            self,
            Self::JobCanceled
                | Self::JobCompleted
                | Self::JobFailed
                | Self::JobPendingFailed
                | Self::JobRetried
                | Self::JobTerminated
        );
        let of_end = if tells_of_an_end { END } else { &[] };
        let of_steps: &[&str] = if self.is_of_steps() { &["step", "at_ms"] } else { &[] };
        of_end.iter().chain(of_steps).chain(self.own_fields()).copied()
    }

    const fn own_fields(self) -> &'static [&'static str] {
        match self {
            Self::ActionExecuted => &["action_id", "runner_id", "error"],
            Self::ActionTriggered => &["action_id", "trigger"],
            Self::AllocationEnded => &["allocation_id", "slurm_job_id", "state", "reason"],
            Self::AllocationExplained => {
                &["allocation_id", "slurm_job_id", "state", "reason", "cause"]
            }
            Self::AllocationRequeued | Self::AllocationStarted => {
                &["allocation_id", "slurm_job_id"]
            }
            Self::AllocationUnneeded => &["allocation_id", "slurm_job_id", "scheduler"],
            Self::AllocationsPlanned => &["name", "scheduler", "count", "action_id"],
            Self::AllocationsSubmitted => &["name", "slurm_job_id"],
            Self::AllocationsRefused | Self::AllocationsUnknown => &["name", "message"],
            Self::AttemptExplained => &["attempt_id", "run_id", "cause", "was", "evidence"],
            Self::ClassificationHeld => &[
                "classification_id",
                "action",
                "by",
                "agent",
                "confidence",
                "note",
                "run_id",
                "attempt_id",
            ],
            Self::ClassificationRejected => &["classification_id", "action", "by"],
            Self::HandlerFinished => &["succeeded", "error"],
            Self::HandlerStarted => &["strategy", "error_kind", "exit_code"],
            Self::ItemDropped
            | Self::JobDisabled
            | Self::JobEnabled
            | Self::JobHeld
            | Self::JobPendingFailed
            | Self::JobReleased
            | Self::JobRetried
            | Self::JobTerminated => &[],
            Self::ItemsExpanded => &["count", "run_id", "attempt_id"],
            Self::ItemsFound => &["count"],
            Self::JobAdjusted => &["field", "from", "to", "why", "by"],
            Self::JobCanceled => &["because_of_job_id"],
            Self::JobChanged => &["priority", "reason", "by"],
            Self::JobClassified => {
                &["classification_id", "action", "by", "agent", "run_id", "attempt_id", "note"]
            }
            Self::JobCompleted | Self::JobFailed => &["total", "successful", "failed", "tolerate"],
            Self::JobRepaired => &["what"],
            Self::JobStarted => &["attempt_id", "run_id"],
            Self::LateResult => {
                &["attempt", "runner_id", "return_code", "cause", "started_ms", "ended_ms"]
            }
            Self::RecoveryPaused => &["cause", "kind", "jobs", "why"],
            Self::RecoveryResumed => &["cause", "jobs", "why"],
            Self::RetryScheduled => &["try", "after_seconds"],
            Self::RunnerEnded => &["runner_id", "reason", "attempts_ended"],
            Self::RunnerQuarantined => {
                &["runner_id", "hostname", "why", "until_ms", "refunded", "queued_again"]
            }
            Self::RunnerStarted => &["runner_id", "hostname", "pid"],
            Self::RunnerTriedAgain => &["runner_id", "hostname"],
            Self::StepFinished => &["name", "outcome", "kind", "error_kind", "exit_code"],
            Self::StepIgnored => &["name"],
            Self::StepRecovered => &["name", "strategy"],
            Self::StepResumed => &["outcome"],
            Self::StepStarted => &["name", "kind"],
            Self::WorkflowCanceled => &["run_id"],
            Self::WorkflowCompleted => &["run_id", "counts"],
            Self::WorkflowRecovered => &["by", "jobs", "reopened", "left"],
            Self::WorkflowRegenerated => &["schedulers", "allocations", "actions"],
            Self::JobsAdded | Self::WorkflowReset | Self::WorkflowStarted => &["run_id", "jobs"],
            Self::WorkflowRevised => &["added", "changed", "removed", "again", "accepted"],
        }
    }

    /// The first field of `data` that such an event does not have.
    pub fn unknown_field(self, data: &serde_json::Value) -> Option<&str> {
        data.as_object()?.keys().map(String::as_str).find(|key| self.fields().all(|f| f != *key))
    }

    /// About a job as a whole.
    pub const fn is_of_jobs(self) -> bool {
        matches!(
            self,
            Self::JobAdjusted
                | Self::JobCanceled
                | Self::JobChanged
                | Self::JobClassified
                | Self::JobCompleted
                | Self::JobDisabled
                | Self::JobEnabled
                | Self::JobFailed
                | Self::JobHeld
                | Self::JobPendingFailed
                | Self::JobReleased
                | Self::JobRepaired
                | Self::JobRetried
                | Self::JobStarted
                | Self::JobTerminated
        )
    }

    /// About a runner.
    pub const fn is_of_runners(self) -> bool {
        matches!(
            self,
            Self::RunnerEnded
                | Self::RunnerQuarantined
                | Self::RunnerStarted
                | Self::RunnerTriedAgain
        )
    }

    /// About allocations.
    pub const fn is_of_allocations(self) -> bool {
        matches!(
            self,
            Self::AllocationEnded
                | Self::AllocationExplained
                | Self::AllocationRequeued
                | Self::AllocationStarted
                | Self::AllocationUnneeded
                | Self::AllocationsPlanned
                | Self::AllocationsRefused
                | Self::AllocationsSubmitted
                | Self::AllocationsUnknown
        )
    }

    /// Told by the runner about the steps of an attempt.
    pub const fn is_of_steps(self) -> bool {
        matches!(
            self,
            Self::StepStarted
                | Self::StepFinished
                | Self::RetryScheduled
                | Self::HandlerStarted
                | Self::HandlerFinished
                | Self::StepRecovered
                | Self::StepIgnored
                | Self::StepResumed
                | Self::ItemsFound
        )
    }
}

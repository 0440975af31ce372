//! The words for where a job or an attempt stands and why it got there.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Defines an enum whose variants have one stable text each, used in SQL, JSON and on the command
/// line.
macro_rules! words {
    (
        $(#[doc = $doc:literal])*
        $name:ident { $($(#[doc = $about:literal])* $variant:ident = $text:literal),* $(,)? }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name { $($(#[doc = $about])* #[serde(rename = $text)] $variant),* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stable text of this variant.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The variant with this text.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == text)
            }

            /// What this variant means: its documentation, for pages that list them all.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),*)),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        // The derived schema would list the names of the variants: it cannot see texts that come
        // from a macro.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                let words = Self::ALL.iter().map(|word| word.as_str());
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .description(Some(concat!($($doc),*).trim()))
                    .enum_values(Some(words))
                    .into()
            }
        }
        impl utoipa::ToSchema for $name {}
    };
}
pub(crate) use words;

words! {
    /// Where a job stands. The integers 0-10 (see [`JobStatus::code`]) are part of the contract
    /// with users.
    JobStatus {
        /// Created, or reset; `initialize` moves it on.
        Uninitialized = "uninitialized",
        /// Waits for at least one dependency.
        Blocked = "blocked",
        /// May be claimed; has a queued attempt.
        Ready = "ready",
        /// Claimed by a runner that has not yet said that it started.
        Pending = "pending",
        /// A runner executes it.
        Running = "running",
        /// Succeeded; final for the run.
        Completed = "completed",
        /// Failed for good; retry, recover or reset may reopen it.
        Failed = "failed",
        /// Never ran or was stopped: by the user, or because a dependency failed.
        Canceled = "canceled",
        /// Ended by a signal from us (walltime, shutdown); final like failed.
        Terminated = "terminated",
        /// Switched off; dependents treat it as satisfied.
        Disabled = "disabled",
        /// Failed without a matching rule; waits for a person or an agent to classify it.
        PendingFailed = "pending_failed",
    }
}

impl JobStatus {
    /// The integer stored in the database and known to users.
    pub const fn code(self) -> i64 {
        self as i64
    }

    /// The status with this integer.
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    /// What happened to a job, as a sentence continues after its name: `failed`, `was canceled`.
    pub const fn clause(self) -> &'static str {
        match self {
            Self::Uninitialized => "has not been started",
            Self::Blocked => "waits for other jobs",
            Self::Ready => "is ready",
            Self::Pending => "is being started",
            Self::Running => "is running",
            Self::Completed => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "was canceled",
            Self::Terminated => "was stopped at a limit",
            Self::Disabled => "is disabled",
            Self::PendingFailed => "failed and waits for a verdict",
        }
    }

    /// A workflow is complete when every job is in such a status.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Terminated | Self::Disabled
        )
    }

    /// Dependents may go ahead.
    pub const fn satisfies(self) -> bool {
        matches!(self, Self::Completed | Self::Disabled)
    }

    /// Final, and dependents may not go ahead (unless they asked to run anyway).
    pub const fn is_bad_end(self) -> bool {
        matches!(self, Self::Failed | Self::Canceled | Self::Terminated)
    }

    /// A runner holds an attempt of this job.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

words! {
    /// The life of one attempt. One way only; the last four never change again.
    AttemptState {
        /// Waits in the queue.
        Queued = "queued",
        /// A runner owns it and has not yet said that it started.
        Claimed = "claimed",
        /// Its process exists, as far as the runner said.
        Running = "running",
        /// Exit 0 and all outputs there.
        Completed = "completed",
        /// Ended badly by itself, or lost.
        Failed = "failed",
        /// Stopped or dropped because a user said so.
        Canceled = "canceled",
        /// Stopped by us for a reason that is not the user's word: timeout, walltime, shutdown.
        Terminated = "terminated",
    }
}

impl AttemptState {
    /// Queued, claimed or running.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Queued | Self::Claimed | Self::Running)
    }
}

words! {
    /// Why an attempt ended badly.
    Cause {
        /// The program returned a code other than 0.
        Exit = "exit",
        /// A signal that we did not send killed it.
        Signal = "signal",
        /// It used more memory than it asked for.
        Oom = "oom",
        /// It ran longer than it may.
        Timeout = "timeout",
        /// Exit 0, but a declared output file is not there.
        MissingOutput = "missing_output",
        /// The command could not be started.
        SpawnError = "spawn_error",
        /// Its runner is gone.
        Lost = "lost",
        /// The scheduler gave the node to another job.
        Preempted = "preempted",
        /// The node failed.
        NodeFail = "node_fail",
        /// The time of its allocation was over first; not the job's own limit, which is `timeout`.
        Walltime = "walltime",
        /// A person (or a rule of theirs) stopped it.
        Canceled = "canceled",
        /// The runner was told to stop; the job goes back to the queue at no cost.
        Stopped = "stopped",
        /// The program saved its state and asked to be continued.
        Checkpoint = "checkpoint",
    }
}

/// Where a cause comes from. Every cause is put into one of these once, here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CauseOrigin {
    /// How the program ended, and what it left.
    Program,
    /// A limit of the job, or its command could not be started.
    Job,
    /// Its runner is gone.
    Loss,
    /// The nodes were taken away from the job and its runner.
    Nodes,
    /// The runner was told to leave.
    Runner,
    /// A person, or the program itself, asked for it.
    Request,
}

impl Cause {
    const fn origin(self) -> CauseOrigin {
        match self {
            Self::Exit | Self::Signal | Self::MissingOutput => CauseOrigin::Program,
            Self::Oom | Self::Timeout | Self::SpawnError => CauseOrigin::Job,
            Self::Lost => CauseOrigin::Loss,
            Self::Preempted | Self::NodeFail | Self::Walltime => CauseOrigin::Nodes,
            Self::Stopped => CauseOrigin::Runner,
            Self::Canceled | Self::Checkpoint => CauseOrigin::Request,
        }
    }

    /// Not the job's fault: paid from the budget for losses, not from the user's rules. Free when
    /// its runner could still stop it in good order.
    pub const fn is_loss(self) -> bool {
        matches!(self.origin(), CauseOrigin::Loss | CauseOrigin::Nodes)
    }

    /// The nodes were taken away from the job and its runner.
    pub const fn is_taken_away(self) -> bool {
        matches!(self.origin(), CauseOrigin::Nodes)
    }

    /// Why a runner stops its jobs when it has to leave: they go back to the queue at no cost.
    pub const fn is_stop(self) -> bool {
        matches!(self.origin(), CauseOrigin::Nodes | CauseOrigin::Runner)
    }

    /// The program ended badly by itself, as far as can be seen: what it printed may say why, and so may
    /// a signal to its runner.
    pub const fn is_end_of_program(self) -> bool {
        matches!(self.origin(), CauseOrigin::Program)
    }
}

words! {
    /// Why a job has its status, where the status alone does not tell.
    StatusReason {
        /// Canceled with a job that it depends on; it comes back with it.
        DependencyFailed = "dependency_failed",
        /// A map that has found its items and waits for them.
        WaitsForItems = "waits_for_items",
        /// A map whose items have all ended, too many of them badly.
        TooManyItemsFailed = "too_many_items_failed",
        /// An item that was canceled because too many others failed; it comes back with those.
        GivenUp = "given_up",
        /// An item that no longer exists.
        ItemGone = "item_gone",
        /// An item that the user took out of the count.
        Dropped = "dropped",
        /// The user canceled it.
        CanceledByUser = "canceled_by_user",
        /// The user switched it off.
        DisabledByUser = "disabled_by_user",
        /// A person or an agent judged its failure as one that another attempt cannot mend.
        ClassifiedPermanent = "classified_permanent",
        /// The newest revision of the spec no longer has it; its attempts stay.
        Removed = "removed",
        /// It did not run: the user accepted its outputs as they are.
        Accepted = "accepted",
    }
}

impl StatusReason {
    /// What people read.
    pub fn text(self) -> &'static str {
        crate::words::label(match self {
            Self::DependencyFailed => "a job it depends on did not succeed",
            Self::WaitsForItems => "its items are not done",
            Self::TooManyItemsFailed => "more items failed than it tolerates",
            Self::GivenUp => "too many other items failed",
            Self::ItemGone => "its item is gone",
            Self::Dropped => "dropped by the user",
            Self::CanceledByUser => "canceled by the user",
            Self::DisabledByUser => "disabled by the user",
            Self::ClassifiedPermanent => "classified as permanent",
            Self::Removed => "the spec no longer has it",
            Self::Accepted => "its outputs were accepted as they are",
        })
    }
}

words! {
    /// How the time that a job is expected to take is known.
    EstimateSource {
        /// From the job's own earlier attempts, in this workflow or in an earlier one of the same name.
        Own = "own",
        /// From jobs of its family that have ended in this run.
        Family = "family",
        /// From jobs of its family in an earlier run.
        FamilyEarlier = "family_earlier",
        /// From its `runtime`: a third of it.
        Runtime = "runtime",
    }
}

words! {
    /// The order in which ready jobs of one priority are given to runners.
    DispatchOrder {
        /// The longest chain of jobs that follows goes first, wide jobs before narrow ones.
        CriticalPath = "critical_path",
        /// As they stand in the spec.
        Submission = "submission",
    }
}

words! {
    /// What becomes of a job that a new revision of the spec changes while an attempt of it runs, once
    /// that attempt has ended.
    Afterwards {
        /// It runs again, as the new revision says.
        RunAgain = "run_again",
        /// It is taken out of the workflow.
        Remove = "remove",
    }
}

words! {
    /// What to do with running attempts of jobs that a new revision of the spec changes or removes.
    RunningJobs {
        /// They run to their end first.
        Finish = "finish",
        /// Their runners stop them.
        Stop = "stop",
    }
}

words! {
    /// What ended an attempt.
    EndedBy {
        /// Its runner reported the end.
        Runner = "runner",
        /// Its runner was found dead, left without it or was given up: crash recovery.
        Recovery = "recovery",
        /// It is certain that its runner never started it.
        Unstarted = "unstarted",
        /// The engine dropped it because its job went elsewhere.
        Dropped = "dropped",
    }
}

words! {
    /// What exactly failed or stopped an attempt, where its cause leaves that open.
    EndDetail {
        /// The recovery script failed, so that the command did not run.
        RecoveryScript = "recovery_script",
        /// Its runner was told to stop and was not told why.
        ToldToStop = "told_to_stop",
        /// It took longer than the job's `timeout`.
        JobTimeout = "job_timeout",
        /// It took longer than the job's `runtime`, which `enforce_runtime` makes a limit.
        EnforcedRuntime = "enforced_runtime",
        /// A step returned a code other than 0.
        StepExit = "step_exit",
        /// A signal ended a step.
        StepSignal = "step_signal",
        /// A step took longer than its own limit.
        StepTimeout = "step_timeout",
        /// A step could not be started.
        StepSpawn = "step_spawn",
        /// The agent program of a step could not be called.
        StepAgent = "step_agent",
        /// The `expect` of a step did not hold.
        StepExpect = "step_expect",
        /// A check of a step failed.
        StepValidation = "step_validation",
        /// A value that a step captured was not what it should be.
        StepCapture = "step_capture",
        /// A variable of a step has no value.
        StepVariable = "step_variable",
        /// The time of the attempt was over within a step.
        StepWalltime = "step_walltime",
        /// What it starts with is not there: its program, its directory or a file.
        StartNotFound = "start_not_found",
        /// It must not be started, or what it starts with must not be opened.
        StartDenied = "start_denied",
        /// The disk that it starts with was full.
        StartDiskFull = "start_disk_full",
        /// The quota of what it starts with was used up.
        StartQuota = "start_quota",
        /// No process, file or memory was to be had to start it.
        StartLimit = "start_limit",
        /// The file system that it starts with failed.
        StartFileSystem = "start_file_system",
    }
}

words! {
    /// Where a piece of evidence comes from; earlier ones are stronger.
    EvidenceSource {
        /// What we did ourselves.
        Journal = "journal",
        /// What the kernel counted.
        Kernel = "kernel",
        /// What the batch system said.
        Scheduler = "scheduler",
        /// What was seen on the node.
        Node = "node",
        /// Which output files are there.
        Output = "output",
        /// What the program printed.
        Text = "text",
        /// The exit code alone.
        Exit = "exit",
    }
}

words! {
    /// What the recovery rules made of a failed attempt.
    Outcome {
        /// A new attempt was queued.
        Retried = "Retried",
        /// The job has no failure handler.
        NoHandler = "NoHandler",
        /// It has one, but no rule matches this failure.
        NoMatchingRule = "NoMatchingRule",
        /// The matching rule's budget is used up.
        MaxRetriesExceeded = "MaxRetriesExceeded",
        /// The decision itself failed.
        Error = "Error",
    }
}

words! {
    /// Where an attempt came from.
    Origin {
        /// The first of its run.
        Initial = "initial",
        /// A failure handler's rule.
        Handler = "handler",
        /// Its predecessor was lost.
        Lost = "lost",
        /// A person or an agent classified the failure as retryable.
        Classified = "classified",
        /// A user asked for it.
        Manual = "manual",
        /// `torc recover`.
        Recovered = "recovered",
        /// The server, by itself: `auto_recover`.
        Auto = "auto",
        /// The runner stopped, or the job asked to be continued.
        Requeued = "requeued",
        /// A new revision of the spec changed the job while it ran.
        Revised = "revised",
    }
}

words! {
    /// Where an action stands.
    ActionState {
        /// Its trigger has not come yet.
        Waiting = "waiting",
        /// Its trigger came; the next runner takes it.
        Triggered = "triggered",
        /// A runner executes it.
        Claimed = "claimed",
        /// All its commands succeeded.
        Executed = "executed",
        /// One of its commands failed.
        Failed = "failed",
    }
}

words! {
    /// Where an allocation (`scheduled_compute_node`) stands.
    AllocationStatus {
        /// Wanted, and not sent to Slurm yet.
        Planned = "planned",
        /// A submitter is sending it, or was interrupted while doing so: Slurm may or may not have
        /// it.
        Submitting = "submitting",
        /// In Slurm's queue.
        Pending = "pending",
        /// Its runner has reported.
        Active = "active",
        /// Over, refused or given up.
        Complete = "complete",
    }
}

words! {
    /// What recovery or a person may change for the next attempts of a job.
    Adjustable {
        /// Its memory.
        Memory = "memory",
        /// Its planned runtime.
        Runtime = "runtime",
        /// Its time limit.
        Timeout = "timeout",
        /// Its CPUs; by people only.
        Cpus = "num_cpus",
        /// Its GPUs; by people only.
        Gpus = "num_gpus",
    }
}

words! {
    /// How it is known that an allocation is over.
    AllocationEnd {
        /// The batch system said so.
        Reported = "reported",
        /// The batch system no longer knows it.
        Vanished = "vanished",
        /// Its last runner left; the batch system may still say why.
        Left = "left",
        /// The batch system refused it.
        Refused = "refused",
        /// It was no longer needed before it was sent.
        NotSent = "not_sent",
    }
}

words! {
    /// Where a runner runs.
    RunnerKind {
        /// On the user's machine: leaves as soon as there is nothing to do without help.
        Local = "local",
        /// In a Slurm allocation: leaves after the workflow's idle time.
        Slurm = "slurm",
        /// None: it stands for the unknown owner of an attempt that crash recovery wrote down.
        Recovery = "recovery",
    }
}

words! {
    /// What a person asked of a runner.
    RunnerOrder {
        /// To take no more jobs until it is told otherwise.
        Drain = "drain",
        /// To take no more jobs, and to leave when it holds none.
        Remove = "remove",
    }
}

words! {
    /// Where a runner stands.
    RunnerState {
        /// It was heard within its lease.
        Active = "active",
        /// It was not; nothing is done to its jobs.
        LostContact = "lost_contact",
        /// It left or is gone.
        Ended = "ended",
    }
}

words! {
    /// One of the outputs of an attempt.
    Stream {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
        /// Standard output of the recovery script.
        ScriptStdout = "script_stdout",
        /// Standard error of the recovery script.
        ScriptStderr = "script_stderr",
    }
}

words! {
    /// What an item of a map came to.
    ItemOutcome {
        /// It succeeded.
        Ok = "ok",
        /// It succeeded, and a step of it was recovered.
        Recovered = "recovered",
        /// The user took it out of the count, or it is gone.
        Dropped = "dropped",
        /// It ended badly.
        Failed = "failed",
        /// It has not ended.
        Open = "open",
    }
}

words! {
    /// Where a reservation stands.
    ReservationStatus {
        /// It pauses claims in its scope.
        Active = "ACTIVE",
        /// Its holder gave it back.
        Released = "RELEASED",
        /// Its time was over.
        Expired = "EXPIRED",
    }
}

words! {
    /// Where the delivery of an event to a webhook stands.
    DeliveryState {
        /// It is tried, perhaps again.
        Pending = "pending",
        /// The endpoint took it.
        Delivered = "delivered",
        /// It was tried as often as it is tried.
        Dead = "dead",
    }
}

words! {
    /// What sets an action off.
    Trigger {
        /// The workflow was initialized.
        OnWorkflowStart = "on_workflow_start",
        /// Every job is final.
        OnWorkflowComplete = "on_workflow_complete",
        /// All of its jobs became ready.
        OnJobsReady = "on_jobs_ready",
        /// All of its jobs are final.
        OnJobsComplete = "on_jobs_complete",
        /// A runner begins to work.
        OnWorkerStart = "on_worker_start",
        /// A runner is about to leave.
        OnWorkerComplete = "on_worker_complete",
        /// A job that is tried again became ready, however often that happens.
        AutoScheduleOnReadyJobs = "auto_schedule_on_ready_jobs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_integers_are_the_documented_ones() {
        let table: Vec<_> = JobStatus::ALL.iter().map(|s| format!("{} {s}", s.code())).collect();
        assert_eq!(
            table.join(", "),
            "0 uninitialized, 1 blocked, 2 ready, 3 pending, 4 running, 5 completed, 6 failed, 7 canceled, \
             8 terminated, 9 disabled, 10 pending_failed"
        );
        for status in JobStatus::ALL {
            assert_eq!(JobStatus::from_code(status.code()), Some(*status));
            assert_eq!(JobStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(JobStatus::from_code(11), None);
        assert_eq!(JobStatus::from_code(-1), None);
    }
}

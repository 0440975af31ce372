//! What may be done, by noun: one struct per command, named in the imperative.

mod actions;
mod allocations;
mod claims;
mod jobs;
mod maps;
mod reports;
mod runners;
mod shared;
mod workflows;

#[cfg(test)]
mod tests;

pub use actions::{AddLateAction, EndSchedule, ReportAction, RetireSchedules};
pub use allocations::{ArriveInAllocation, EndRunnersIn, GiveUpAllocation, StepAllocation};
pub use claims::{
    BeginClaim, Begun, Claim, ClaimAnswer, FinishClaim, Hear, KeptFromWork, TakeJobs, most_attempts,
};
pub use jobs::{
    AdjustJob, AssignSchedulers, CancelJob, CancelJobs, ClassifyJob, DelayJob, DisableJob,
    EnableJob, ExplainAttempt, HoldDependents, HoldJob, PrioritizeJob, RetryJob, RunAgain,
    TellAdded,
};
pub use maps::{ChangeItem, DropItems, RetryItems};
pub use reports::{EndFacts, NoteLateEnd, ReportEnd, ReportStart, Reported};
pub use runners::{
    Beat, EndRunner, Leave, NoteHoldup, OrderRunner, QuarantineRunner, RegisterRunner,
    ReleaseRunner,
};
pub use shared::{
    ExpireReservations, ReleaseReservation, RemoveLimit, RenewReservation, Reserve, SetLimit,
    TakeAttemptRow, TakeJobIds, WakeDelayed,
};
pub use workflows::{
    AddJobs, AddWorkflow, ApplyRevision, CancelWorkflow, DeleteWorkflow, Initialize,
    RepairWorkflow, Reset, Resume, SetAutoRecover, SetHandlers, Tell,
};

/// Commands that make a move of one workflow: what each has, and what it does.
macro_rules! moves {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        } -> $reply:ty = |$workflow:ident, $limits:pat_param, $now:pat_param| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $(<$life>)? crate::engine::Move for $name $(<$life>)? {
            type Reply = $reply;

            fn make(
                self,
                $workflow: &mut crate::Workflow,
                $limits: &mut crate::Limits,
                $now: i64,
            ) -> Result<$reply, crate::Refused> {
                let Self { $($field,)* } = self;
                $body
            }
        }
    )*};
}
use moves;

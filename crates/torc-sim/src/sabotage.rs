//! Deliberate defects. Each must be found by the invariants: a simulator that finds nothing proves
//! nothing.

use clap::ValueEnum;

/// A defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sabotage {
    /// A report counts for the job's live attempt whatever its token.
    TokensIgnored,
    /// The attempt that a retry queues is not written.
    RetryNotWritten,
    /// A lost attempt's end is not written: it is queued again without having ended.
    LossNotWritten,
    /// An order to cancel is not written.
    CancelNotWritten,
    /// The end of a runner is not written.
    RunnerEndNotWritten,
    /// Answers leave before the commit.
    AnswersBeforeCommit,
    /// Named limits are not counted at boot.
    LimitsForgottenAtBoot,
    /// What a person makes of a named limit is not written.
    LimitsNotWritten,
    /// Dependencies are not loaded.
    DependenciesForgotten,
    /// The budget for losses is not enforced.
    LossesUnbounded,
    /// The budget of rules is not enforced.
    RulesUnbounded,
    /// A heartbeat that does not list a process is taken as proof that it is gone.
    AbsenceIsProof,
    /// A restart forgets which scripts have not run yet.
    ScriptsForgotten,
    /// After a failed commit the engine goes on with what it had in memory.
    MemoryOutlivesRollback,
    /// A runner is given up when its lease runs out.
    LeaseKills,
    /// Every runner is given up when the server starts.
    BootKills,
    /// Silence is measured with a clock that jumps.
    WallClockLeases,
    /// A dead runner's attempts are queued again before its processes can be gone.
    EvidenceActsTooSoon,
    /// The server does not look for dead runners.
    NoSweep,
    /// A runner that is cut off lets its jobs run, and so does its guard.
    NoSelfFence,
    /// The guard of a runner that stands still lets it live.
    NoGuard,
    /// A runner gives up a claim whose answer was lost and does not look at what it was given.
    ForgottenClaims,
    /// A runner ignores orders to stop.
    OrdersIgnored,
    /// A runner that leaves or was cut off does not end what it runs.
    StopsIgnored,
    /// A runner does not tell which attempts it does not have.
    AbsencesUntold,
    /// A runner drops a report whose answer was lost.
    ReportsDropped,
    /// The trigger of an action is not written.
    TriggersNotWritten,
    /// What a dead runner was executing stays its own.
    ActionsOfTheDead,
    /// A repeated claim does not bring its actions again.
    ActionsGivenOnce,
    /// Claims do not look for reservations.
    ReservationsIgnored,
    /// Reservations outlive the server that made them.
    ReservationsOutliveBoot,
    /// Reservations end only when they are released.
    ReservationsForEver,
    /// The items that a map found are not written.
    ItemsNotWritten,
    /// That a map has found its items is not written.
    ExpansionNotWritten,
    /// A map succeeds with any number of failed items.
    AnyFailureBorne,
    /// How many items of a map may run at once is forgotten.
    MapLimitsForgotten,
    /// A runner's report from inside its allocation is not written.
    ArrivalNotWritten,
    /// Two submitters may take up the same allocation at once.
    SubmittersUnbounded,
    /// An allocation that the batch system did not list once is over.
    MissingIsOver,
    /// The batch system's word ends runners that have just spoken, also when it is an old one.
    SchedulerAlwaysRight,
    /// A look at the batch system counts also when the allocation has moved on since it began.
    LateLooksCount,
    /// A runner that died registers late, and is taken for the one that its allocation has now.
    LateArrivalsCount,
    /// A restart forgets which runners are kept from work.
    QuarantineForgottenAtBoot,
    /// Runners that are kept from work get it all the same.
    QuarantineIgnored,
    /// Runners that a person drained get work all the same.
    OrdersToRunnersIgnored,
    /// What a person asks of a runner is not written.
    OrdersToRunnersNotWritten,
    /// Attempts that a bad machine burnt are given back, and that is not written.
    RefundsNotWritten,
    /// What a retry taught is not written.
    LessonsNotWritten,
    /// A retry that was interrupted counts as one that failed.
    InterruptionsTeach,
    /// Events of steps are written whenever they are told.
    StepsToldTwice,
    /// How many events of steps are known is not written.
    StepCountNotWritten,
    /// What a job captured is not written.
    CapturesNotWritten,
}

impl Sabotage {
    /// As it is written on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// All of them.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }
}

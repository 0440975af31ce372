//! Claims: a runner asks for work. Its reports are commands of their own, which come before.
//!
//! A runner of a pool asks in three steps, because between them the pool says for each job whose turn
//! it is. Every other claim is one command of the same three.

use crate::engine::{Command, Engine, Turn};
use crate::{Claimed, Gate, GivenActions, Refused, Reservations, claim};
use torc_model::api::{Capacity, ClaimRequest};
use torc_model::ids::{ActionId, AttemptId, RunnerId, WorkflowId};
use torc_model::status::RunnerOrder;

/// Most attempts that one claim may take, so that one request cannot make a commit endless.
const MAX_CLAIM: i64 = 1000;

/// How many attempts a claim may take that asks for so many.
pub fn most_attempts(asked: i64) -> usize {
    asked.clamp(0, MAX_CLAIM) as usize
}

/// A runner says something, about this workflow or about its own: its word is noted. Answers with its
/// workflow.
#[derive(Clone, Copy, Debug)]
pub struct Hear {
    /// Who.
    pub runner: RunnerId,
    /// The workflow that it names.
    pub workflow: Option<WorkflowId>,
}

impl Command for Hear {
    type Reply = WorkflowId;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        None
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<WorkflowId, Refused> {
        let known = turn.engine.runners.hear(self.runner, self.workflow, turn.at.uptime)?;
        Ok(known.workflow)
    }
}

/// A runner asks for work: what it gets, what it has to stop, and what there is to come.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// What it asks for.
    pub request: &'a ClaimRequest,
    /// Unpredictable number; tokens are made from it.
    pub nonce: u64,
}

/// What a claim is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimAnswer {
    /// Attempts to start.
    pub attempts: Vec<Claimed>,
    /// Actions to execute.
    pub actions: Vec<ActionId>,
    /// Attempts to stop, as far as it was not told.
    pub cancel: Vec<AttemptId>,
    /// Why it gets no work although there may be some.
    pub kept: Option<KeptFromWork>,
    /// Every job is final.
    pub is_complete: bool,
    /// Nothing is to come for any runner that is there, unless a person does something.
    pub idle: bool,
    /// It was told to leave, and holds nothing.
    pub leave: bool,
    /// No other runner could take what it holds.
    pub is_alone: bool,
}

/// Why a runner gets no work although there may be some.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeptFromWork {
    /// A reservation pauses the workflow.
    Reserved {
        /// Its row.
        id: i64,
        /// Who holds it.
        by: String,
        /// It lasts this long at most.
        seconds: i64,
    },
    /// Its machine is in quarantine.
    Quarantined {
        /// For so long.
        seconds: i64,
        /// Why.
        why: String,
    },
    /// A person asked something of it, or of the pool runner that started it.
    Ordered(RunnerOrder),
    /// Others come first on its pool runner.
    OthersFirst,
}

impl KeptFromWork {
    /// A reservation pauses this workflow.
    pub fn reserved(all: &Reservations, id: WorkflowId, uptime: i64) -> Option<Self> {
        let active = all.pausing(id, uptime)?;
        let seconds = (active.until - uptime) / 1000;
        Some(Self::Reserved { id: active.id, by: active.reserved_by.clone(), seconds })
    }

    /// One sentence.
    pub fn text(&self) -> String {
        match self {
            Self::Reserved { id, by, seconds } => {
                format!("new jobs are paused by reservation {id} ({by}), at most {seconds} s more")
            }
            Self::Quarantined { seconds, why } => {
                format!("this runner gets no work for another {seconds} s: {why}")
            }
            Self::Ordered(RunnerOrder::Drain) => {
                "this runner is drained: `torc runners resume` gives it work again".into()
            }
            Self::Ordered(RunnerOrder::Remove) => {
                "this runner is removed: it leaves when it holds no job".into()
            }
            Self::OthersFirst => {
                "others come first on the pool runner that this runner belongs to".into()
            }
        }
    }
}

impl Command for Claim<'_> {
    type Reply = ClaimAnswer;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<ClaimAnswer, Refused> {
        let Self { workflow, request, nonce } = self;
        let mut begun = BeginClaim { workflow, request, pool_order: None }.carry_out(turn)?;
        if begun.may_take {
            let limit = most_attempts(request.limit);
            let prefetch = most_attempts(request.prefetch);
            let capacity = &request.capacity;
            begun.attempts =
                TakeJobs { workflow, request, limit, prefetch, capacity, nonce }.carry_out(turn)?;
        }
        FinishClaim { workflow, request, pool_order: None, begun }.carry_out(turn)
    }
}

/// What comes before jobs are chosen.
#[derive(Clone, Copy, Debug)]
pub struct BeginClaim<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// What the runner asks for.
    pub request: &'a ClaimRequest,
    /// What a person asked of the pool runner that started it.
    pub pool_order: Option<RunnerOrder>,
}

/// A claim before jobs are chosen, and after that with the jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Actions to execute.
    pub actions: Vec<ActionId>,
    /// Why it gets no work although there may be some.
    pub kept: Option<KeptFromWork>,
    /// What the claim was given before, in an answer that was lost; what it is given now where it may
    /// take more.
    pub attempts: Vec<Claimed>,
    /// It may be given more.
    pub may_take: bool,
}

impl Command for BeginClaim<'_> {
    type Reply = Begun;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Begun, Refused> {
        let Self { workflow: id, request, pool_order } = self;
        let runner = request.runner_id;
        if request.wait_seconds <= 0.0
            && let Some(known) = turn.engine.runners.get_mut(&runner)
        {
            known.asks(request.limit, request.completed.iter().map(|end| end.cause));
        }
        let actions = turn.give_actions(id, runner, &request.key)?;
        let (gate, released) = turn.engine.runners.gate(runner, turn.at.now);
        turn.record(id, released);
        let ordered = turn.ordered(runner, pool_order);
        let reserved = KeptFromWork::reserved(&turn.engine.reservations, id, turn.at.uptime);
        let quarantined = match gate {
            Gate::Closed { seconds, why } => Some(KeptFromWork::Quarantined { seconds, why }),
            Gate::Open | Gate::Over => None,
        };
        let kept = reserved.or(quarantined).or(ordered.map(KeptFromWork::Ordered));
        let attempts = turn.see(id)?.claimed_with(runner, &request.key);
        let asks = attempts.is_empty() && request.limit > 0 && kept.is_none();
        let may_take = match turn.engine.runners.get_mut(&runner).filter(|_| asks) {
            Some(known) if !known.leaving => {
                known.capacity.clone_from(&request.capacity);
                true
            }
            Some(_) | None => false,
        };
        Ok(Begun { actions, kept, attempts, may_take })
    }
}

/// Chooses jobs for a runner.
#[derive(Clone, Copy, Debug)]
pub struct TakeJobs<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// What the runner asks for.
    pub request: &'a ClaimRequest,
    /// At most so many.
    pub limit: usize,
    /// So many more may be kept for later.
    pub prefetch: usize,
    /// All that it has.
    pub capacity: &'a Capacity,
    /// Unpredictable number; tokens are made from it.
    pub nonce: u64,
}

impl Command for TakeJobs<'_> {
    type Reply = Vec<Claimed>;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<Vec<Claimed>, Refused> {
        let Self { workflow: id, request, limit, prefetch, capacity, nonce } = self;
        let uptime = turn.at.uptime;
        turn.on_beside(id, |workflow, limits, runners, now| {
            let known = runners.get(&request.runner_id).filter(|_| !workflow.canceled);
            let Some(known) = known else { return Vec::new() };
            let left = || known.stop_by.map(|stop| (stop - now) / 1000);
            let claim = claim::Claim {
                runner: request.runner_id,
                key: &request.key,
                limit,
                prefetch,
                capacity,
                time_left: request.time_left_seconds.or_else(left),
                scheduler: known.scheduler,
                strict_scheduler: request.strict_scheduler_match,
                label: known.label.as_deref(),
                now,
                nonce,
            };
            let neighbours = runners.neighbours(id, &known.host, uptime);
            workflow.claim_beside(&claim, &neighbours, limits)
        })
    }
}

/// What comes after jobs were chosen.
#[derive(Clone, Debug)]
pub struct FinishClaim<'a> {
    /// The workflow.
    pub workflow: WorkflowId,
    /// What the runner asks for.
    pub request: &'a ClaimRequest,
    /// What a person asked of the pool runner that started it.
    pub pool_order: Option<RunnerOrder>,
    /// What it gets, and why no more.
    pub begun: Begun,
}

impl Command for FinishClaim<'_> {
    type Reply = ClaimAnswer;

    fn needs(&self, _: &Engine) -> Option<WorkflowId> {
        Some(self.workflow)
    }

    fn carry_out(self, turn: &mut Turn<'_>) -> Result<ClaimAnswer, Refused> {
        let Self { workflow: id, request, pool_order, begun } = self;
        let Begun { actions, kept, attempts, may_take: _ } = begun;
        let runner = request.runner_id;
        let ordered = turn.ordered(runner, pool_order);
        let orders = turn.see(id)?.orders_for(runner);
        let cancel = match turn.engine.runners.get_mut(&runner) {
            Some(known) => known.untold(orders),
            None => orders,
        };
        let (workflow, runners) = (turn.see(id)?, &turn.engine.runners);
        let is_complete = workflow.is_complete();
        let has_none = attempts.is_empty();
        let nothing_to_come = workflow.held_count() == 0
            && workflow.next_due().is_none()
            && (!workflow.has_ready()
                || runners.no_runner_takes(workflow, runner, &request.capacity));
        Ok(ClaimAnswer {
            attempts,
            actions,
            cancel,
            is_complete,
            idle: kept.is_none() && nothing_to_come && !is_complete && has_none,
            // While it holds something it has something to tell, and hears of this then.
            leave: ordered == Some(RunnerOrder::Remove)
                && has_none
                && workflow.held_by(runner).next().is_none(),
            is_alone: runners.is_alone(id, runner),
            kept,
        })
    }
}

impl Turn<'_> {
    /// What a person asked of a runner, or of the pool runner that started it.
    fn ordered(&self, runner: RunnerId, of_pool: Option<RunnerOrder>) -> Option<RunnerOrder> {
        let known = self.engine.runners.get(&runner)?;
        known.ordered.max(of_pool)
    }

    /// The actions that the answer to a claim brings.
    fn give_actions(
        &mut self,
        id: WorkflowId,
        runner: RunnerId,
        key: &str,
    ) -> Result<Vec<ActionId>, Refused> {
        if self.see(id)?.has_no_actions() {
            return Ok(Vec::new());
        }
        let uptime = self.at.uptime;
        self.on_beside(id, |workflow, _, runners, _| {
            let Some(known) = runners.get_mut(&runner) else { return Vec::new() };
            let mut given: GivenActions = known.begin_actions(runner, workflow, key, uptime);
            workflow.give_actions(runner, &mut given);
            known.gave_actions(key, &given.ids, uptime);
            given.ids
        })
    }
}

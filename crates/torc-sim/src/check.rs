//! The invariants. They look at rows, at the witness and at what clients were told, never at the
//! engine alone.

use crate::batch::{Batch, State};
use crate::ends::STEP;
use crate::scenario::{Scenario, Sight};
use crate::server::{Server, workflow_id};
use crate::tables::{AttemptRow, ReservationRow, RunnerRow, Tables, VerdictRow, Write};
use crate::witness::Witness;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use torc_engine::{AllocationLife, Change, End, JobIx, RunnerChange, Scope, Workflow};
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::recovery::{AGENT_RETRIES, ClassificationState, Counts, RetryOutcome};
use torc_model::status::{
    ActionState, AllocationEnd, AllocationStatus, AttemptState, Cause, EndedBy, JobStatus, Origin,
    Outcome, StatusReason, Trigger,
};

/// What was promised to a client, and what is counted apart from the engine.
pub struct Checker {
    scenario: Rc<Scenario>,
    /// Completions that a runner was told have counted.
    acknowledged: BTreeMap<JobId, AttemptId>,
    /// Words from runners, by the time they were heard.
    pub heard: BTreeMap<RunnerId, i64>,
    /// When runner processes died or left, by place and process.
    pub ended: BTreeMap<(usize, u32), i64>,
    /// Retries per job since its last reset: after losses, and by each rule.
    losses: BTreeMap<(JobId, i64), u32>,
    rules: BTreeMap<(JobId, i64, usize), u32>,
    /// Retries that must be there when the commit is complete.
    promised: BTreeSet<AttemptId>,
    touched: BTreeSet<usize>,
    /// Where actions stand, as far as it was written.
    actions: BTreeMap<ActionId, (ActionState, Option<RunnerId>)>,
    /// When they were given to a runner.
    given: BTreeMap<ActionId, i64>,
    /// When runners heard that they must stop an attempt or leave, or went on after they stood still.
    pub ordered: BTreeMap<AttemptId, i64>,
    /// Attempts of a job below this number were before its last reset.
    reset_at: BTreeMap<JobId, i64>,
    /// Events of an attempt's steps that were written.
    steps: BTreeMap<AttemptId, u64>,
    /// Maps that have become final in this commit.
    gathered: BTreeSet<(usize, JobIx)>,
    /// So many may use each of the limits that people change.
    bounds: BTreeMap<String, i64>,
}

/// What really is, and what the server made of it.
#[derive(Clone, Copy)]
pub struct Truth<'a> {
    /// Committed rows.
    pub durable: &'a Tables,
    /// All processes that ran.
    pub witness: &'a Witness,
    /// The server.
    pub server: &'a Server,
    /// The batch system.
    pub batch: &'a Batch,
    /// The time of the simulation, in ms.
    pub now: i64,
}

/// A process ends within this time after its runner heard that it must: the grace it gets, and some
/// time to die with its runner.
const OBEDIENCE_MS: i64 = 8_000;

type CheckResult = Result<(), String>;

impl Checker {
    /// Nothing has happened.
    pub fn new(scenario: Rc<Scenario>) -> Self {
        Self {
            scenario,
            acknowledged: BTreeMap::new(),
            heard: BTreeMap::new(),
            ordered: BTreeMap::new(),
            ended: BTreeMap::new(),
            losses: BTreeMap::new(),
            rules: BTreeMap::new(),
            promised: BTreeSet::new(),
            touched: BTreeSet::new(),
            actions: BTreeMap::new(),
            given: BTreeMap::new(),
            reset_at: BTreeMap::new(),
            steps: BTreeMap::new(),
            gathered: BTreeSet::new(),
            bounds: BTreeMap::new(),
        }
    }

    /// A runner was told that a completion has counted. What a person has reset since may run
    /// again.
    pub fn acknowledge(&mut self, job: JobId, attempt: AttemptId) {
        if self.reset_at.get(&job).is_none_or(|first| attempt.0 >= *first) {
            self.acknowledged.insert(job, attempt);
        }
    }

    /// A runner stands still until then, and cannot obey earlier.
    pub fn stands_still(&mut self, slot: usize, until: i64, witness: &Witness) {
        for process in witness.live().filter(|process| process.slot == slot) {
            if let Some(heard) = self.ordered.get_mut(&process.attempt) {
                *heard = until.max(*heard);
            }
        }
    }

    /// So many may use a limit at once.
    fn bound(&self, name: &str) -> i64 {
        self.bounds.get(name).copied().unwrap_or_else(|| self.scenario.limit(name))
    }

    /// A process is about to start.
    pub fn on_start(
        &self,
        job: JobId,
        attempt: AttemptId,
        witness: &Witness,
        durable: &Tables,
    ) -> CheckResult {
        if let Some(other) = witness.live().find(|p| p.job == job) {
            let (other, since) = (other.attempt, other.started);
            return Err(format!(
                "overlap: job {job} starts as attempt {attempt} while attempt {other} runs (since {since})"
            ));
        }
        if witness.of(attempt).is_some() {
            return Err(format!(
                "duplicate: attempt {attempt} of job {job} is started a second time"
            ));
        }
        let row = durable.attempt(attempt);
        if row.is_none_or(|r| r.state != AttemptState::Claimed) {
            let state = row.map(|r| r.state);
            return Err(format!(
                "attempt {attempt} of job {job} starts although its row is {state:?}"
            ));
        }
        if let Some(done) = self.acknowledged.get(&job) {
            return Err(format!(
                "job {job} runs again although attempt {done} was acknowledged as completed"
            ));
        }
        let uses =
            |job: JobId| -> &[String] { durable.plan(job).map_or(&[], |plan| &plan.class.uses) };
        for name in uses(job) {
            let used = 1 + witness.live().filter(|p| uses(p.job).contains(name)).count() as i64;
            let max = self.bound(name);
            if used > max {
                return Err(format!(
                    "limit `{name}`: {used} processes use it, {max} may (job {job})"
                ));
            }
        }
        Ok(())
    }

    /// A write has become durable.
    pub fn on_write(&mut self, write: &Write, truth: Truth<'_>) -> CheckResult {
        let Truth { durable, now, .. } = truth;
        let (flow, change) = match write {
            Write::Change(_, Change::Allocation(id, life)) => {
                return on_allocation(*id as usize, life, truth);
            }
            Write::Change(flow, change) => (flow, change),
            Write::Allocation(id, row) => return on_allocation(*id, &row.life, truth),
            Write::RunnerNew(_)
            | Write::Reservation(..)
            | Write::Limit(_)
            | Write::Verdict(..)
            | Write::Memory(..) => return Ok(()),
        };
        self.touched.insert(*flow);
        match change {
            Change::Job { id, status: JobStatus::Uninitialized, .. } => {
                self.acknowledged.remove(id);
                self.reset_at.insert(*id, durable.next_attempt());
                self.losses.retain(|(job, _), _| job != id);
                self.rules.retain(|(job, _, _), _| job != id);
                Ok(())
            }
            Change::AttemptQueued(new) => {
                let before = durable
                    .attempts
                    .iter()
                    .filter(|a| a.job == new.job && a.run == new.run && a.id != new.id);
                if let Some(last) = before.map(|a| a.number).max()
                    && new.number != last + 1
                {
                    return Err(format!(
                        "attempt {} of job {} follows attempt {last}",
                        new.number, new.job
                    ));
                }
                let of = new.retry_of.and_then(|of| durable.attempt(of));
                let needs_script = of.is_some_and(|of| {
                    let by_itself =
                        matches!(new.origin, Origin::Lost | Origin::Requeued | Origin::Handler);
                    of.unrun_script().is_some() && by_itself
                });
                if needs_script && new.recovery.is_none() {
                    return Err(format!(
                        "attempt {} of job {} lost its recovery script",
                        new.number, new.job
                    ));
                }
                self.on_retry(new.job, new.run, new.origin, new.retry_of, durable)
            }
            Change::AttemptClaimed { id, .. } => self.on_claim(*flow, *id, durable, now),
            Change::AttemptEnded(id, end) => {
                if end.decision.outcome == Some(Outcome::Retried) {
                    self.promised.insert(*id);
                }
                let Some(row) = durable.attempt(*id) else { return Ok(()) };
                self.on_end(row, end, truth)
            }
            Change::Job { id, status: JobStatus::Completed | JobStatus::Failed, .. } => {
                let index = durable.flows[*flow].find(*id);
                let map = index.filter(|i| self.scenario.flows[*flow].maps.contains_key(i));
                self.gathered.extend(map.map(|index| (*flow, index)));
                Ok(())
            }
            Change::Event { kind, data, .. } if *kind == STEP => self.on_step(data),
            Change::Runner(id, RunnerChange::Ended(_)) => {
                self.check_given_up(*id, &format!("runner {id}"), truth)
            }
            Change::AttemptRefunded(id) => {
                // The rule that retried it was not used for it.
                let row = durable.attempt(*id);
                let used = row.and_then(|row| Some((row.job, row.run, row.rule()?)));
                if let Some(uses) = used.and_then(|used| self.rules.get_mut(&used)) {
                    *uses = uses.saturating_sub(1);
                }
                Ok(())
            }
            Change::Job { .. }
            | Change::AttemptExplained { .. }
            | Change::AttemptSteps(..)
            | Change::Captured(..)
            | Change::Runner(
                _,
                RunnerChange::Seen | RunnerChange::Ordered(_) | RunnerChange::Quarantine(_),
            )
            | Change::MapExpanded(..)
            | Change::ItemsAdded { .. }
            | Change::ItemChanged(..)
            | Change::JobAdjusted(..)
            | Change::JobScheduler(..)
            | Change::AdjustmentNoted(_)
            | Change::JobWaitsFor(..)
            | Change::RecoveryActionsGone
            | Change::Settings(_)
            | Change::Times { .. }
            | Change::ItemGone(..)
            | Change::JobHeld(..)
            | Change::Allocation(..)
            | Change::Limit(_)
            | Change::Reservation(_)
            | Change::JobIdsTaken(_)
            | Change::WorkflowDeleted
            | Change::JobAfterwards(..)
            | Change::AttemptStarted { .. }
            | Change::AttemptCancelRequested(_)
            | Change::AttemptDelayed { .. }
            | Change::Event { .. }
            | Change::Workflow { .. } => Ok(()),
            Change::Action { id, state, by, .. } => self.on_action(*id, *state, *by, now),
        }
    }

    fn on_retry(
        &mut self,
        job: JobId,
        run: i64,
        origin: Origin,
        of: Option<AttemptId>,
        durable: &Tables,
    ) -> CheckResult {
        let Some((flow, index)) = durable.place(job) else { return Ok(()) };
        let plan = &self.scenario.flows[flow];
        if origin == Origin::Lost {
            let losses = self.losses.entry((job, run)).or_default();
            *losses += 1;
            let most = durable.flows[flow].plan[index].max_lost;
            if *losses > most {
                return Err(format!(
                    "budget: job {job} was queued again after {losses} losses, {most} are allowed"
                ));
            }
        }
        if origin == Origin::Handler {
            let Some(rule) = of.and_then(|a| durable.attempt(a)).and_then(AttemptRow::rule) else {
                return Err(format!("job {job} was retried by a rule that is not in its handler"));
            };
            let uses = self.rules.entry((job, run, rule)).or_default();
            *uses += 1;
            let most = plan.rules[rule].max_retries;
            if *uses >= most {
                return Err(format!(
                    "budget: rule {rule} gave job {job} {uses} retries, attempts are bound to {most}"
                ));
            }
        }
        Ok(())
    }

    /// An action moves on its one way; back only to be executed by another, or with a new run.
    fn on_action(
        &mut self,
        id: ActionId,
        state: ActionState,
        by: Option<RunnerId>,
        now: i64,
    ) -> CheckResult {
        self.given.insert(id, now);
        let (before, owner) =
            self.actions.insert(id, (state, by)).unwrap_or((ActionState::Waiting, None));
        let fits = match state {
            ActionState::Waiting => true,
            ActionState::Triggered => matches!(before, ActionState::Waiting | ActionState::Claimed),
            ActionState::Claimed => before == ActionState::Triggered && by.is_some(),
            ActionState::Executed | ActionState::Failed => {
                before == ActionState::Claimed && owner == by
            }
        };
        if fits {
            Ok(())
        } else {
            Err(format!("action {id} went from {before:?} of {owner:?} to {state:?} of {by:?}"))
        }
    }

    /// In the end every trigger that has come has been noticed. Where people reset what they then
    /// cancel or disable, the new run may never have begun: there nothing can be said.
    pub fn check_triggers(&self, durable: &Tables) -> CheckResult {
        if self.scenario.faults.people > 0 {
            return Ok(());
        }
        for (flow, row) in
            self.scenario.flows.iter().zip(&durable.flows).filter(|(_, row)| row.run > 0)
        {
            for (action, (state, _)) in flow.actions.iter().zip(&row.actions) {
                // Jobs that were canceled before they were ready never will be.
                let never_ready =
                    |index: &JobIx| row.jobs[index.at()].status == JobStatus::Canceled;
                let is_moot =
                    action.trigger == Trigger::OnJobsReady && action.jobs.iter().all(never_ready);
                if *state == ActionState::Waiting && !is_moot {
                    return Err(format!(
                        "action {} was never triggered ({:?})",
                        action.id, action.trigger
                    ));
                }
            }
        }
        Ok(())
    }

    /// Actions that were given to a runner before this time and are not reported: their owners
    /// should know of them.
    pub fn given_before(&self, before: i64) -> Vec<(ActionId, RunnerId)> {
        let old = |id: &ActionId| self.given.get(id).is_some_and(|at| *at < before);
        let open = self
            .actions
            .iter()
            .filter(|(id, (state, _))| *state == ActionState::Claimed && old(id));
        open.filter_map(|(id, (_, by))| Some((*id, (*by)?))).collect()
    }

    /// No reservation goes on after its time, give or take a sweep.
    pub fn check_reservations(&self, server: &Server, before: i64) -> CheckResult {
        let late = |r: &ReservationRow| r.is_active && r.until < before && server.booted < before;
        match server.durable.reservations.iter().find(|r| late(r)) {
            Some(row) => Err(format!("reservation: {row:?} outlives its time")),
            None => Ok(()),
        }
    }

    /// No reservation outlives the server that made it.
    pub fn check_boot(&self, server: &Server) -> CheckResult {
        match server.durable.reservations.iter().find(|r| r.is_active && r.epoch < server.epoch) {
            Some(row) => Err(format!("reservation: {row:?} outlives its server")),
            None => Ok(()),
        }
    }

    fn on_claim(&self, flow: usize, id: AttemptId, durable: &Tables, now: i64) -> CheckResult {
        let Some(row) = durable.attempt(id) else {
            return Err(format!("attempt {id} was claimed but not written"));
        };
        let Some((_, index)) = durable.place(row.job) else { return Ok(()) };
        let of = &durable.flows[flow];
        let job = &of.plan[index];
        let at = JobIx::new(index);
        if of.gathers(&self.scenario.flows[flow], at) {
            return Err(format!("map: job {} was claimed while it waits for its items", row.job));
        }
        if let Some(item) = of.items.get(&at)
            && (item.is_gone || !of.gathers(&self.scenario.flows[flow], item.map))
        {
            return Err(format!("map: job {} was claimed, an item that is not there", row.job));
        }
        let runner = row.runner().and_then(|id| durable.runner(id));
        let kept = runner.and_then(|runner| runner.quarantine.as_ref());
        if kept.is_some_and(|kept| row.claim.as_ref().is_some_and(|claim| claim.at < kept.until)) {
            return Err(format!(
                "quarantine: job {} was given to a runner that is kept from work",
                row.job
            ));
        }
        if runner.is_some_and(|runner| runner.ordered.is_some()) {
            return Err(format!("order: job {} was given to a runner that is drained", row.job));
        }
        let uses = |limit: &String| job.class.uses.contains(limit);
        let pauses = |r: &&ReservationRow| {
            let covers = match &r.scope {
                Scope::All => true,
                Scope::Workflow(other) => *other == workflow_id(flow),
                Scope::Limit(limit) => uses(limit) && durable.limits.contains_key(limit),
            };
            covers && r.is_active && r.until > now
        };
        if let Some(reserved) = durable.reservations.iter().find(pauses) {
            return Err(format!(
                "reservation: job {} was claimed in spite of {reserved:?}",
                row.job
            ));
        }
        let jobs = &durable.flows[flow].jobs;
        for parent in &job.parents {
            let status = jobs[parent.at()].status;
            let careless = !job.cancel_on_failure;
            if !(status.satisfies() || (status.is_bad_end() && careless)) {
                return Err(format!(
                    "order: job {} was claimed while its parent {parent} is {status}",
                    row.job
                ));
            }
        }
        if jobs[index].held || durable.flows[flow].canceled {
            return Err(format!("job {} was claimed although it is held back", row.job));
        }
        Ok(())
    }

    fn on_end(&self, row: &AttemptRow, end: &End, truth: Truth<'_>) -> CheckResult {
        let witness = truth.witness;
        let Some(runner) = row.runner() else { return Ok(()) };
        if witness.lives(row.id) {
            return Err(format!(
                "residue: attempt {} of job {} was ended by {} while its process runs",
                row.id, row.job, end.by
            ));
        }
        if let (Some(heard), Some(process)) = (self.ordered.get(&row.id), witness.of(row.id))
            && let Some(ended) = process.ended
            && ended - heard > OBEDIENCE_MS
        {
            return Err(format!(
                "obedience: attempt {} ran on for {} s after its runner had heard that it must stop it",
                row.id,
                (ended - heard) / 1000
            ));
        }
        if end.by == EndedBy::Recovery {
            return self.check_given_up(runner, &format!("attempt {}", row.id), truth);
        }
        if row.state == AttemptState::Completed {
            let success = witness.of(row.id).is_some_and(|p| p.result == Some(Ok(())));
            if !success {
                return Err(format!(
                    "fencing: attempt {} of job {} counts as completed but never did",
                    row.id, row.job
                ));
            }
        }
        Ok(())
    }

    /// A runner, or what it has, is given up only when it is gone, or cannot be seen and was silent
    /// for the disown deadline.
    fn check_given_up(&self, runner: RunnerId, what: &str, truth: Truth<'_>) -> CheckResult {
        let Truth { durable, server, now, .. } = truth;
        let Some(owner) = durable.runner(runner) else {
            return Err(format!("runner {runner} has no row"));
        };
        let is_gone = self.ended.contains_key(&(owner.slot, owner.incarnation));
        let heard = self.heard.get(&runner).copied().unwrap_or(0).max(server.booted);
        let disown = self.scenario.flows[owner.flow].disown();
        let is_blind = self.scenario.slots[owner.slot].sight == Sight::Remote;
        if is_gone || is_blind && now - heard >= disown {
            return Ok(());
        }
        let silent = (now - heard) / 1000;
        Err(format!("unknown is not dead: {what} was given up after {silent} s of silence"))
    }

    /// A commit is complete.
    pub fn on_commit(&mut self, durable: &Tables) -> CheckResult {
        for (state, by) in durable.flows.iter().flat_map(|f| &f.actions) {
            let is_dead = by.is_some_and(|r| durable.runner(r).is_some_and(|row| row.ended));
            if *state == ActionState::Claimed && is_dead {
                return Err(format!(
                    "ghost: an action is still claimed by {by:?}, which has ended"
                ));
            }
        }
        for id in std::mem::take(&mut self.promised) {
            if !durable.attempts.iter().rev().any(|a| a.retry_of == Some(id)) {
                return Err(format!(
                    "lost retry: attempt {id} is said to be retried but nothing is queued"
                ));
            }
        }
        let mut used: BTreeMap<&str, i64> = BTreeMap::new();
        for row in durable
            .attempts
            .iter()
            .filter(|a| matches!(a.state, AttemptState::Claimed | AttemptState::Running))
        {
            if let Some(plan) = durable.plan(row.job) {
                for name in &plan.class.uses {
                    *used.entry(name).or_default() += 1;
                }
            }
        }
        // Where a person lowered a limit, what has it goes on and nothing more gets it.
        for name in self.scenario.limits.keys() {
            let max = durable.limits.get(name).copied().unwrap_or(i64::MAX);
            let used = used.get(name.as_str()).copied().unwrap_or(0);
            let bound = self.bounds.entry(name.clone()).or_insert(max);
            *bound = max.max(used.min(*bound));
        }
        if let Some((name, used)) = used.iter().find(|(name, used)| self.bound(name) < **used) {
            return Err(format!("limit `{name}`: {used} attempts have it"));
        }
        for flow in std::mem::take(&mut self.touched) {
            self.check_flow(flow, durable)?;
        }
        for (flow, map) in std::mem::take(&mut self.gathered) {
            self.check_map(flow, map, durable)?;
        }
        let inside = |row: &&RunnerRow| !row.ended && row.inside.is_some();
        for row in durable.runners.iter().filter(inside) {
            let Some(inside) = row.inside else { continue };
            let life = &durable.allocations[inside.allocation].life;
            if life.status != AllocationStatus::Active {
                return Err(format!("allocation: a runner lives in one that is {}", life.status));
            }
            if life.job != Some(inside.job.to_string()) {
                return Err(format!(
                    "allocation: batch job {} is served beside {:?}",
                    inside.job, life.job
                ));
            }
        }
        self.check_agents(durable)
    }

    /// Each event of an attempt's steps is written once, in order.
    fn on_step(&mut self, data: &serde_json::Value) -> CheckResult {
        let (Some(attempt), Some(number)) = (data["attempt"].as_i64(), data["number"].as_u64())
        else {
            return Err(format!("steps: an event says nothing: {data}"));
        };
        let next = self.steps.entry(AttemptId(attempt)).or_default();
        if number != *next {
            return Err(format!(
                "steps: event {number} of attempt {attempt} comes after {next} others"
            ));
        }
        *next += 1;
        Ok(())
    }

    /// A map that has become final by its items has what its tolerance says.
    fn check_map(&self, flow: usize, map: JobIx, durable: &Tables) -> CheckResult {
        let (plan, row) = (&self.scenario.flows[flow], &durable.flows[flow]);
        let (status, reason) = (row.jobs[map.at()].status, row.jobs[map.at()].reason);
        let is_by_items = match status {
            JobStatus::Completed => true,
            JobStatus::Failed => reason == Some(StatusReason::TooManyItemsFailed),
            _ => false,
        };
        if !is_by_items {
            return Ok(());
        }
        let of = |item: JobIx| row.jobs[item.at()].status;
        let items: Vec<JobStatus> =
            row.items_of(map).map(of).filter(|s| *s != JobStatus::Disabled).collect();
        let failed = items.iter().filter(|s| s.is_bad_end()).count() as u64;
        let is_borne = plan.maps[&map].tolerate.bears(failed, items.len() as u64);
        let is_open = items.iter().any(|s| !s.is_final());
        if is_open || is_borne != (status == JobStatus::Completed) || !row.gathers(plan, map) {
            return Err(format!(
                "map: job {map} of workflow {flow} is {status} with items {items:?}"
            ));
        }
        Ok(())
    }

    /// Agents have a job tried again only so often in a run.
    fn check_agents(&self, durable: &Tables) -> CheckResult {
        let mut retries: BTreeMap<(JobId, i64), i64> = BTreeMap::new();
        let counts =
            |v: &&VerdictRow| v.is_retry && v.is_agents && v.state == ClassificationState::Applied;
        for verdict in durable.verdicts.iter().filter(counts) {
            let count = retries.entry((verdict.job, verdict.awaited.run)).or_default();
            *count += 1;
            if *count > AGENT_RETRIES {
                return Err(format!("agents: job {} was tried again {count} times", verdict.job));
            }
        }
        Ok(())
    }

    /// What is remembered of verdicts is what came of them, followed here from row to row.
    pub fn check_memory(&self, durable: &Tables) -> CheckResult {
        let mut memory: BTreeMap<String, Counts> = BTreeMap::new();
        for (at, verdict) in durable.verdicts.iter().enumerate() {
            if verdict.is_retry && verdict.state == ClassificationState::Applied {
                // A retry that was dropped before it ran teaches nothing, written or not.
                let teaches = |outcome: &RetryOutcome| *outcome != RetryOutcome::Canceled;
                let came = outcome_of(at, durable).filter(teaches);
                if came != verdict.outcome.filter(teaches) {
                    return Err(format!(
                        "memory: of verdict {at} on job {} came {came:?}, written is {:?}",
                        verdict.job, verdict.outcome
                    ));
                }
            }
            if let Some(outcome) = verdict.outcome {
                memory.entry(verdict.awaited.fingerprint.clone()).or_default().add(outcome);
            }
        }
        if memory == durable.memory {
            Ok(())
        } else {
            Err(format!("memory: {:?} is remembered, {memory:?} happened", durable.memory))
        }
    }

    /// What a completed job captured is there.
    fn check_captures(&self, flow: usize, durable: &Tables) -> CheckResult {
        if !self.scenario.has_steps {
            return Ok(());
        }
        let row = &durable.flows[flow];
        for (plan, job) in row.plan.iter().zip(&row.jobs) {
            let Some(last) = durable.last_ended(plan.id) else { continue };
            let is_done =
                job.status == JobStatus::Completed && last.state == AttemptState::Completed;
            if is_done && row.captured.get(&plan.id) != Some(&last.id.0.into()) {
                return Err(format!("captures: job {} completed and left nothing", plan.id));
            }
        }
        Ok(())
    }

    /// Every job has exactly what its status says, and nothing waits for what has already happened.
    fn check_flow(&self, flow: usize, durable: &Tables) -> CheckResult {
        self.check_captures(flow, durable)?;
        let scenario = &self.scenario.flows[flow];
        let row = &durable.flows[flow];
        let (plan, jobs) = (&row.plan, &row.jobs);
        let mut live: Vec<Option<AttemptState>> = vec![None; jobs.len()];
        for row in durable.attempts.iter().filter(|a| a.state.is_live()) {
            if let Some(index) = durable.flows[flow].find(row.job) {
                live[index.at()] = Some(row.state);
            }
        }
        for (index, job) in jobs.iter().enumerate() {
            let wanted = match job.status {
                JobStatus::Ready => Some(AttemptState::Queued),
                JobStatus::Pending => Some(AttemptState::Claimed),
                JobStatus::Running => Some(AttemptState::Running),
                _ => None,
            };
            let id = plan[index].id;
            if live[index] != wanted {
                return Err(format!(
                    "lost job: job {id} is {} but its attempt is {:?}",
                    job.status, live[index]
                ));
            }
            if job.status == JobStatus::Blocked {
                let careless = !plan[index].cancel_on_failure;
                let of = |p: &JobIx| jobs[p.at()].status;
                let dead = !careless && plan[index].parents.iter().any(|p| of(p).is_bad_end());
                let met = |s: JobStatus| s.satisfies() || (s.is_bad_end() && careless);
                let at = JobIx::new(index);
                let waits_for_items =
                    row.gathers(scenario, at) && row.items_of(at).any(|item| !of(&item).is_final());
                let is_met = plan[index].parents.iter().all(|p| met(of(p))) && !waits_for_items;
                if dead || is_met {
                    return Err(format!("lost job: job {id} is blocked for ever"));
                }
            }
        }
        let complete = jobs.iter().all(|j| j.status.is_final());
        if complete != durable.flows[flow].complete {
            return Err(format!(
                "workflow {flow} is said to be complete: {}",
                durable.flows[flow].complete
            ));
        }
        Ok(())
    }

    /// What was acknowledged is still so in these rows.
    pub fn check_acknowledged(&self, durable: &Tables) -> CheckResult {
        for (job, attempt) in &self.acknowledged {
            let state = durable.attempt(*attempt).map(|a| a.state);
            if state != Some(AttemptState::Completed) {
                return Err(format!(
                    "acknowledged completion of job {job} (attempt {attempt}) is now {state:?}"
                ));
            }
        }
        Ok(())
    }

    /// No runner has an attempt for long after its death.
    pub fn check_ghosts(
        &self,
        server: &Server,
        now: i64,
        bound: impl Fn(usize, i64) -> i64,
    ) -> CheckResult {
        for row in server
            .durable
            .attempts
            .iter()
            .filter(|a| matches!(a.state, AttemptState::Claimed | AttemptState::Running))
        {
            let Some(runner) = row.runner() else { continue };
            let Some(owner) = server.durable.runner(runner) else { continue };
            let Some(died) = self.ended.get(&(owner.slot, owner.incarnation)) else { continue };
            let heard = self.heard.get(&runner).copied().unwrap_or(0);
            let since = now - (*died).max(server.booted).max(heard);
            if since > bound(owner.slot, self.scenario.flows[owner.flow].disown()) {
                let since = since / 1000;
                return Err(format!(
                    "ghost: attempt {} belongs to a runner that is dead for {since} s",
                    row.id
                ));
            }
        }
        Ok(())
    }
}

/// How the retry that a verdict asked for went, as the rows of attempts say: the first attempt after
/// the failure that was not interrupted tells.
fn outcome_of(at: usize, durable: &Tables) -> Option<RetryOutcome> {
    let verdict = &durable.verdicts[at];
    let mut after = verdict.failed;
    loop {
        let next = durable.attempts.iter().find(|a| a.retry_of == Some(after))?;
        if next.state.is_live() {
            return None;
        }
        let is_interrupted =
            next.cause().is_some_and(|c| c.is_loss() || c.is_stop() || c == Cause::Checkpoint);
        if is_interrupted {
            // Another verdict may have been given on the interrupted attempt: it waits instead.
            if durable.verdicts[at + 1..].iter().any(|later| later.failed == next.id) {
                return verdict.outcome;
            }
            after = next.id;
            continue;
        }
        return Some(match next.state {
            AttemptState::Completed => RetryOutcome::Succeeded,
            AttemptState::Canceled => RetryOutcome::Canceled,
            _ if next.fingerprint() == verdict.awaited.fingerprint => RetryOutcome::FailedSame,
            _ => RetryOutcome::FailedOther,
        });
    }
}

/// An allocation is over by the word of the batch system only when no process of it runs.
fn on_allocation(id: usize, life: &AllocationLife, truth: Truth<'_>) -> CheckResult {
    let by_word =
        |how: AllocationEnd| matches!(how, AllocationEnd::Reported | AllocationEnd::Vanished);
    let is_over =
        life.status == AllocationStatus::Complete && life.end.is_some_and(|(_, how)| by_word(how));
    let own = |job: i64| life.job.as_ref().is_none_or(|own| *own == job.to_string());
    let runs =
        truth.batch.of(id).any(|(job, of)| own(job) && matches!(of.state, State::Running(_)));
    if is_over && runs {
        return Err(format!(
            "unknown is not dead: allocation {id} is over while its batch job runs"
        ));
    }
    Ok(())
}

/// Which runners are kept from work is the same in memory and in the rows.
pub fn same_runners(server: &Server) -> CheckResult {
    for (id, known) in server.engine.runners().iter() {
        let Some(row) = server.working.runner(*id).filter(|row| !row.ended) else {
            return Err(format!("runner {id} has ended and is still known"));
        };
        if (known.conduct.quarantine(), known.ordered) != (row.quarantine.as_ref(), row.ordered) {
            return Err(format!("memory and rows differ about what keeps runner {id} from work"));
        }
    }
    Ok(())
}

/// The engine in memory and the engine that a restart would make must be the same.
pub fn same(memory: &Workflow, restored: &Workflow) -> CheckResult {
    memory.difference(restored).map_or(Ok(()), Err)
}

/// What is counted as used of the named limits is what is used.
pub fn same_limits(server: &Server) -> CheckResult {
    let (counted, mut fresh) = (server.engine.limits(), server.durable.named_limits());
    // Those of maps are added with the workflows, and no person reserves them.
    fresh.values_mut().for_each(|limit| limit.paused = server.is_limit_reserved());
    server.engine.workflows().values().for_each(|f| f.count_limits(&mut fresh));
    if &fresh == counted {
        Ok(())
    } else {
        Err(format!("limits are counted as {counted:?} but are {fresh:?}"))
    }
}

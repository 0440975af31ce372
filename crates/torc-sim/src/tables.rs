//! The database of the simulation: the rows that the engine's changes imply, with the constraints
//! of the schema.

use crate::scenario::{Flow, Scenario};
use crate::wire::RunnerPlace;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use torc_engine::{
    AllocationLife, AwaitedRetry, Change, Clocks, EndedRow, FamilyTime, Held, JobIx, JobRow,
    LimitChange, LimitUse, Limits, LiveRow, MapJob, NewAction, NewItem, NewJob, Quarantine,
    ReservationChange, Rows, RunnerChange, Scope, Tries, Workflow, limit_name,
};
use torc_model::api::RecoveryScript;
use torc_model::ids::{AttemptId, JobId, RunnerId};
use torc_model::recovery::{ClassificationState, Counts, RetryOutcome};
use torc_model::status::{
    ActionState, AllocationStatus, AttemptState, Cause, EndedBy, JobStatus, Origin, Outcome,
    RunnerOrder, StatusReason,
};

/// A row of `attempt`.
#[derive(Clone, PartialEq, Debug)]
pub struct AttemptRow {
    /// Its id.
    pub id: AttemptId,
    /// Its job.
    pub job: JobId,
    /// The run.
    pub run: i64,
    /// Its number.
    pub number: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// Where it came from.
    pub origin: Origin,
    /// The attempt it retries.
    pub retry_of: Option<AttemptId>,
    /// Not before this time.
    pub not_before: Option<i64>,
    /// The script that runs before it.
    pub recovery: Option<RecoveryScript>,
    /// The claim that took it.
    pub claim: Option<ClaimColumns>,
    /// Its runner must stop it.
    pub cancel_requested: bool,
    /// When it started.
    pub started_at: Option<i64>,
    /// How it ended.
    pub end: Option<EndColumns>,
    /// A machine burnt it: the rule that retried it was not used for it.
    pub is_refunded: bool,
    /// Events of its steps that are written.
    pub steps: u64,
}

/// The columns of `attempt` that a claim fills.
#[derive(Clone, PartialEq, Debug)]
pub struct ClaimColumns {
    /// Who took it.
    pub runner: RunnerId,
    /// Fencing token.
    pub token: String,
    /// The request that took it.
    pub key: String,
    /// When it was claimed.
    pub at: i64,
}

/// The columns of `attempt` that its end fills.
#[derive(Clone, PartialEq, Debug)]
pub struct EndColumns {
    /// Why it ended badly.
    pub cause: Option<Cause>,
    /// What its process returned.
    pub return_code: Option<i64>,
    /// How long it took, in ms, if it succeeded.
    pub took_ms: Option<u32>,
    /// Its recovery script has run, its report said.
    pub script_ran: bool,
    /// What the rules decided.
    pub outcome: Option<Outcome>,
    /// The rule that matched.
    pub rule: Option<usize>,
    /// Who or what ended it.
    pub by: EndedBy,
}

impl AttemptRow {
    /// Who took it.
    pub fn runner(&self) -> Option<RunnerId> {
        self.claim.as_ref().map(|claim| claim.runner)
    }

    /// Why it ended badly.
    pub fn cause(&self) -> Option<Cause> {
        self.end.as_ref()?.cause
    }

    /// What the rules decided.
    pub fn outcome(&self) -> Option<Outcome> {
        self.end.as_ref()?.outcome
    }

    /// The rule that matched.
    pub fn rule(&self) -> Option<usize> {
        self.end.as_ref()?.rule
    }

    /// Its recovery script, if it ended without having run it.
    pub fn unrun_script(&self) -> Option<&RecoveryScript> {
        let has_run = self.end.as_ref().is_some_and(|end| end.script_ran);
        self.recovery.as_ref().filter(|_| !has_run)
    }

    /// What makes its failure like others.
    pub fn fingerprint(&self) -> String {
        let code = self.end.as_ref().and_then(|end| end.return_code);
        format!("{:?} {code:?}", self.cause())
    }
}

/// An item of a map.
#[derive(Clone, PartialEq, Debug)]
pub struct ItemRow {
    /// Its map.
    pub map: JobIx,
    /// What identifies it.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// It no longer exists.
    pub is_gone: bool,
}

/// A row of `scheduled_compute_node`.
#[derive(Clone, PartialEq, Debug)]
pub struct AllocationRow {
    /// Its workflow.
    pub flow: usize,
    /// Where its runner lives.
    pub slot: usize,
    /// Where it stands.
    pub life: AllocationLife,
}

impl AllocationRow {
    /// It has not begun and is not marked as unneeded.
    pub fn waits(&self) -> bool {
        let is_early =
            matches!(self.life.status, AllocationStatus::Planned | AllocationStatus::Pending);
        is_early && self.life.unneeded_since.is_none()
    }
}

/// A row of `classification`.
#[derive(Clone, PartialEq, Debug)]
pub struct VerdictRow {
    /// The workflow.
    pub flow: usize,
    /// The job.
    pub job: JobId,
    /// The attempt that failed.
    pub failed: AttemptId,
    /// The retry that is awaited.
    pub awaited: AwaitedRetry,
    /// What to do.
    pub is_retry: bool,
    /// An agent gave it.
    pub is_agents: bool,
    /// Where it stands.
    pub state: ClassificationState,
    /// How the retry went.
    pub outcome: Option<RetryOutcome>,
}

/// The columns of `job` that change.
#[derive(Clone, PartialEq, Debug)]
pub struct JobColumns {
    /// Where it stands.
    pub status: JobStatus,
    /// Canceled because of a dependency.
    pub reason: Option<StatusReason>,
    /// Its attempts.
    pub tries: Tries,
    /// Held back.
    pub held: bool,
    /// Own memory.
    pub memory: Option<u64>,
    /// Own priority.
    pub priority: Option<i64>,
    /// Own time.
    pub own_ms: Option<u32>,
}

/// A row of `workflow`, with its jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowRow {
    /// The run.
    pub run: i64,
    /// A user canceled it.
    pub canceled: bool,
    /// Every job is final.
    pub complete: bool,
    /// What is assumed of jobs about whose time nothing is known.
    pub typical_ms: Option<u32>,
    /// The times of its families.
    pub families: Vec<FamilyTime>,
    /// What its jobs are made from, ordered by id.
    pub plan: Vec<Rc<NewJob>>,
    /// Its jobs.
    pub jobs: Vec<JobColumns>,
    /// Maps that have found their items.
    pub expanded: BTreeSet<JobIx>,
    /// Items of maps.
    pub items: BTreeMap<JobIx, ItemRow>,
    /// What jobs captured.
    pub captured: BTreeMap<JobId, Value>,
    /// Its actions: where each stands, and who has it.
    pub actions: Vec<(ActionState, Option<RunnerId>)>,
}

impl FlowRow {
    /// The index of a job.
    pub fn find(&self, job: JobId) -> Option<JobIx> {
        self.plan.binary_search_by_key(&job, |plan| plan.id).ok().map(JobIx::new)
    }

    /// The items of a map that exist.
    pub fn items_of(&self, map: JobIx) -> impl Iterator<Item = JobIx> {
        let is_its = move |item: &ItemRow| item.map == map && !item.is_gone;
        self.items.iter().filter(move |(_, item)| is_its(item)).map(|(index, _)| *index)
    }

    /// A map waits for its items, and does not run itself.
    pub fn gathers(&self, plan: &Flow, map: JobIx) -> bool {
        plan.maps.get(&map).is_some_and(|m| !m.is_dynamic || self.expanded.contains(&map))
    }

    /// Nothing is left to do for a runner.
    pub fn is_over(&self) -> bool {
        let is_open =
            |state: &ActionState| matches!(state, ActionState::Triggered | ActionState::Claimed);
        self.complete && !self.actions.iter().any(|(state, _)| is_open(state))
    }
}

/// A row of `reservation`.
#[derive(Clone, PartialEq, Debug)]
pub struct ReservationRow {
    /// What it pauses.
    pub scope: Scope,
    /// Who holds it, by the hash of the token.
    pub token_hash: String,
    /// It ends at this time by itself, by the clock that never jumps.
    pub until: i64,
    /// The same by the server's wall clock when it was made: this is what the row says.
    pub expires: i64,
    /// It has not ended.
    pub is_active: bool,
    /// The server process that made it.
    pub epoch: u32,
}

/// A row of `compute_node`.
#[derive(Clone, PartialEq, Debug)]
pub struct RunnerRow {
    /// Its workflow.
    pub flow: usize,
    /// Where it lives.
    pub slot: usize,
    /// Which process of that place.
    pub incarnation: u32,
    /// It registered with this word.
    pub key: u64,
    /// It has ended.
    pub ended: bool,
    /// The allocation that it lives in.
    pub inside: Option<RunnerPlace>,
    /// It gets no work for now.
    pub quarantine: Option<Quarantine>,
    /// What a person asked of it.
    pub ordered: Option<RunnerOrder>,
}

/// One write.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Of the engine, for this workflow.
    Change(usize, Change),
    /// A new runner; its id is the next one.
    RunnerNew(RunnerRow),
    /// An allocation as it stands now; the next number makes a new one.
    Allocation(usize, Box<AllocationRow>),
    /// A verdict as it stands now; the next number makes a new one.
    Verdict(usize, Box<VerdictRow>),
    /// What retries of a failure have taught.
    Memory(String, Counts),
    /// Something happened to a reservation, at this time of this server process.
    Reservation(ReservationChange, Clocks, u32),
    /// The named limit is another.
    Limit(LimitChange),
}

/// All rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Rows of `workflow`, each with its jobs.
    pub flows: Vec<FlowRow>,
    /// Attempts, ordered by id.
    pub attempts: Vec<AttemptRow>,
    /// Runners; the id is the index plus one.
    pub runners: Vec<RunnerRow>,
    /// Named limits.
    pub limits: BTreeMap<String, i64>,
    /// Reservations; the id is the index plus one.
    pub reservations: Vec<ReservationRow>,
    /// Allocations; the id is the index.
    pub allocations: Vec<AllocationRow>,
    /// Verdicts; the id is the index.
    pub verdicts: Vec<VerdictRow>,
    /// What is remembered of failures.
    pub memory: BTreeMap<String, Counts>,
}

impl Tables {
    /// What creation wrote.
    pub fn new(scenario: &Scenario) -> Self {
        let job = JobColumns {
            status: JobStatus::Uninitialized,
            reason: None,
            tries: Tries { number: 1, ..Tries::none(1) },
            held: false,
            memory: None,
            priority: None,
            own_ms: None,
        };
        let flows = scenario
            .flows
            .iter()
            .map(|f| FlowRow {
                run: 0,
                canceled: false,
                complete: false,
                typical_ms: Some(torc_engine::UNKNOWN_MS),
                families: vec![FamilyTime::default(); 3],
                plan: f.jobs.iter().map(|job| Rc::new(job.clone())).collect(),
                jobs: vec![job.clone(); f.jobs.len()],
                expanded: BTreeSet::new(),
                items: f.items.iter().map(|(item, map)| (*item, first_item(*item, *map))).collect(),
                captured: BTreeMap::new(),
                actions: vec![(ActionState::Waiting, None); f.actions.len()],
            })
            .collect();
        Self {
            flows,
            attempts: Vec::new(),
            runners: Vec::new(),
            limits: scenario.limits.iter().map(|(name, limit)| (name.clone(), limit.max)).collect(),
            reservations: Vec::new(),
            allocations: Vec::new(),
            verdicts: Vec::new(),
            memory: BTreeMap::new(),
        }
    }

    /// The workflow and the index of a job.
    pub fn place(&self, job: JobId) -> Option<(usize, usize)> {
        let at = |(flow, row): (usize, &FlowRow)| Some((flow, row.find(job)?.at()));
        self.flows.iter().enumerate().find_map(at)
    }

    /// What a job is made from.
    pub fn plan(&self, job: JobId) -> Option<&NewJob> {
        self.place(job).map(|(flow, index)| &*self.flows[flow].plan[index])
    }

    /// First free number of a job.
    pub fn next_job(&self) -> i64 {
        let last = |flow: &FlowRow| flow.plan.last().map(|job| job.id.0);
        self.flows.iter().filter_map(last).max().unwrap_or(0) + 1
    }

    /// The newest ended attempt of a job.
    pub fn last_ended(&self, job: JobId) -> Option<&AttemptRow> {
        self.attempts.iter().rev().find(|a| a.job == job && !a.state.is_live())
    }

    /// Runners of an allocation that have not ended.
    pub fn runners_in(&self, allocation: usize) -> Vec<RunnerId> {
        let lives =
            |row: &RunnerRow| !row.ended && row.inside.is_some_and(|i| i.allocation == allocation);
        let rows = self.runners.iter().enumerate().filter(|(_, row)| lives(row));
        rows.map(|(at, _)| RunnerId(at as i64 + 1)).collect()
    }

    /// Some job ran in an allocation.
    pub fn did_work(&self, allocation: usize) -> bool {
        let inside = |runner| self.runner(runner).and_then(|row| row.inside);
        let its = |a: &AttemptRow| a.runner().and_then(inside).map(|i| i.allocation);
        self.attempts.iter().any(|a| its(a) == Some(allocation))
    }

    /// A row of `attempt`.
    pub fn attempt(&self, id: AttemptId) -> Option<&AttemptRow> {
        self.attempts.binary_search_by_key(&id, |a| a.id).ok().map(|i| &self.attempts[i])
    }

    /// A row of `compute_node`.
    pub fn runner(&self, id: RunnerId) -> Option<&RunnerRow> {
        self.runners.get(usize::try_from(id.0 - 1).ok()?)
    }

    /// The live attempt of a job.
    pub fn live(&self, job: JobId) -> Option<&AttemptRow> {
        self.attempts.iter().rev().find(|a| a.job == job && a.state.is_live())
    }

    /// First free row number.
    pub fn next_attempt(&self) -> i64 {
        self.attempts.last().map_or(1, |a| a.id.0 + 1)
    }

    fn live_mut(&mut self, id: AttemptId) -> Result<&mut AttemptRow, String> {
        let at = self
            .attempts
            .binary_search_by_key(&id, |a| a.id)
            .map_err(|_| format!("there is no attempt {id}"))?;
        let row = &mut self.attempts[at];
        if row.state.is_live() {
            Ok(row)
        } else {
            Err(format!("attempt {id} has ended and must never change"))
        }
    }

    /// The named limits, nothing used.
    pub fn named_limits(&self) -> Limits {
        let unused = |max: &i64| LimitUse { max: *max, ..LimitUse::default() };
        self.limits.iter().map(|(name, max)| (name.clone(), unused(max))).collect()
    }

    /// Writes; an error is what the schema would have refused.
    pub fn write(&mut self, scenario: &Scenario, write: &Write) -> Result<(), String> {
        match write {
            Write::Change(flow, change) => self.change(scenario, *flow, change)?,
            Write::RunnerNew(row) => {
                if self.runners.iter().any(|r| r.key == row.key) {
                    return Err(format!("two runners registered with key {}", row.key));
                }
                self.runners.push(row.clone());
            }
            Write::Allocation(id, row) => put_row(&mut self.allocations, *id, row)?,
            Write::Verdict(id, row) => put_row(&mut self.verdicts, *id, row)?,
            Write::Memory(fingerprint, counts) => {
                self.memory.insert(fingerprint.clone(), *counts);
            }
            Write::Reservation(change, clocks, epoch) => {
                self.reservation(change, *clocks, *epoch)?;
            }
            Write::Limit(LimitChange::Set { name, max }) => {
                self.limits.insert(name.clone(), *max);
            }
            Write::Limit(LimitChange::Removed(name)) => {
                self.limits.remove(name);
            }
        }
        Ok(())
    }

    fn reservation(
        &mut self,
        change: &ReservationChange,
        clocks: Clocks,
        epoch: u32,
    ) -> Result<(), String> {
        let until = |expires: i64| clocks.uptime + expires - clocks.now;
        let (ReservationChange::Began { id, .. }
        | ReservationChange::Renewed { id, .. }
        | ReservationChange::Ended { id, .. }) = change;
        let known = usize::try_from(*id - 1).ok().and_then(|at| self.reservations.get_mut(at));
        match (change, known) {
            (ReservationChange::Began { scope, token_hash, expires, .. }, None) => {
                if self.reservations.iter().any(|r| r.is_active && r.scope == *scope) {
                    return Err(format!("two reservations of {scope:?} are active"));
                }
                self.reservations.push(ReservationRow {
                    scope: scope.clone(),
                    token_hash: token_hash.clone(),
                    until: until(*expires),
                    expires: *expires,
                    is_active: true,
                    epoch,
                });
            }
            (ReservationChange::Renewed { expires, .. }, Some(row)) => {
                (row.until, row.expires) = (until(*expires), *expires);
            }
            (ReservationChange::Ended { .. }, Some(row)) => row.is_active = false,
            (change, _) => return Err(format!("{change:?} does not fit its row")),
        }
        Ok(())
    }

    fn change(&mut self, scenario: &Scenario, flow: usize, change: &Change) -> Result<(), String> {
        let ids = &self.flows[flow];
        let found = |job: JobId| {
            ids.find(job).ok_or_else(|| format!("job {job} is not of workflow {flow}"))
        };
        // Of the changes that name a job, where it is.
        let at = match change {
            Change::Job { id, .. }
            | Change::MapExpanded(id, _)
            | Change::ItemGone(id, _)
            | Change::ItemsAdded { map: id, .. }
            | Change::ItemChanged(id, _)
            | Change::JobAdjusted(id, _)
            | Change::JobHeld(id, _)
            | Change::Captured(id, _) => found(*id)?,
            Change::AttemptQueued(new) => found(new.job)?,
            _ => JobIx::new(0),
        };
        match change {
            Change::Job { status, reason, tries, own_ms, .. } => {
                let job = &mut self.flows[flow].jobs[at.at()];
                job.own_ms = *own_ms;
                job.status = *status;
                job.reason = *reason;
                job.tries = *tries;
            }
            Change::Times { typical_ms, families } => {
                let row = &mut self.flows[flow];
                row.typical_ms = Some(*typical_ms);
                for (number, time) in families {
                    row.families[*number as usize] = *time;
                }
            }
            Change::MapExpanded(_, true) => drop(self.flows[flow].expanded.insert(at)),
            Change::MapExpanded(_, false) => drop(self.flows[flow].expanded.remove(&at)),
            Change::ItemGone(_, is_gone) => {
                if let Some(item) = self.flows[flow].items.get_mut(&at) {
                    item.is_gone = *is_gone;
                }
            }
            Change::ItemsAdded { first, items, .. } => {
                self.add_items(scenario, flow, at, *first, items)
            }
            Change::ItemChanged(_, value) => {
                if let Some(item) = self.flows[flow].items.get_mut(&at) {
                    item.value = value.as_deref().map_or(Value::Null, |text| text.into());
                }
            }
            Change::Captured(job, values) => {
                for (_, value) in values {
                    self.flows[flow].captured.insert(*job, value.clone());
                }
            }
            Change::AttemptRefunded(id) => {
                if let Ok(at) = self.attempts.binary_search_by_key(id, |a| a.id) {
                    self.attempts[at].is_refunded = true;
                }
            }
            Change::Allocation(id, life) => {
                let at = usize::try_from(*id).ok();
                let row = at.and_then(|at| self.allocations.get_mut(at));
                row.ok_or_else(|| format!("there is no allocation {id}"))?.life = *life.clone();
            }
            Change::AttemptSteps(id, count) => self.live_mut(*id)?.steps = *count,
            Change::Runner(id, change) => self.change_runner(*id, change),
            // No simulated job has a scheduler or is taken out, no end is explained later, and limits,
            // reservations and numbers of jobs are written by themselves.
            Change::JobScheduler(..)
            | Change::JobAfterwards(..)
            | Change::AdjustmentNoted(_)
            | Change::JobWaitsFor(..)
            | Change::RecoveryActionsGone
            | Change::Settings(_)
            | Change::Limit(_)
            | Change::Reservation(_)
            | Change::JobIdsTaken(_)
            | Change::WorkflowDeleted
            | Change::AttemptExplained { .. } => {}
            Change::JobAdjusted(_, by) => {
                let job = &mut self.flows[flow].jobs[at.at()];
                job.memory = by.memory.or(job.memory);
                job.priority = by.priority.or(job.priority);
            }
            Change::JobHeld(_, held) => self.flows[flow].jobs[at.at()].held = *held,
            Change::AttemptQueued(new) => {
                if let Some(live) = self.live(new.job) {
                    return Err(format!(
                        "attempts {} and {} of job {} are both live",
                        live.id, new.id, new.job
                    ));
                }
                for other in self.attempts.iter().filter(|a| a.job == new.job) {
                    if (other.run, other.number) == (new.run, new.number) {
                        return Err(format!(
                            "attempt {} of job {} in run {} exists twice",
                            new.number, new.job, new.run
                        ));
                    }
                    if other.retry_of.is_some() && other.retry_of == new.retry_of {
                        return Err(format!(
                            "attempt {:?} of job {} was retried twice",
                            new.retry_of, new.job
                        ));
                    }
                }
                let before = self.attempts.iter().filter(|a| (a.job, a.run) == (new.job, new.run));
                if before.count() + 1 != new.number as usize {
                    return Err(format!(
                        "attempt {} of job {} in run {} leaves a gap",
                        new.number, new.job, new.run
                    ));
                }
                if self.attempts.last().is_some_and(|a| a.id >= new.id) {
                    return Err(format!("attempt {} does not get a new row", new.id));
                }
                self.attempts.push(AttemptRow {
                    id: new.id,
                    job: new.job,
                    run: new.run,
                    number: new.number,
                    state: AttemptState::Queued,
                    origin: new.origin,
                    retry_of: new.retry_of,
                    not_before: new.not_before,
                    recovery: new.recovery.clone(),
                    claim: None,
                    cancel_requested: false,
                    started_at: None,
                    end: None,
                    is_refunded: false,
                    steps: 0,
                });
            }
            Change::AttemptClaimed { id, runner, token, key, at, .. } => {
                let row = self.live_mut(*id)?;
                if row.state != AttemptState::Queued {
                    return Err(format!("attempt {id} was claimed while {}", row.state));
                }
                row.state = AttemptState::Claimed;
                row.claim = Some(ClaimColumns {
                    runner: *runner,
                    token: token.clone(),
                    key: key.clone(),
                    at: *at,
                });
            }
            Change::AttemptStarted { id, at, .. } => {
                let row = self.live_mut(*id)?;
                (row.state, row.started_at) = (AttemptState::Running, Some(*at));
            }
            Change::AttemptDelayed { id, not_before } => {
                self.live_mut(*id)?.not_before = *not_before;
            }
            Change::AttemptCancelRequested(id) => self.live_mut(*id)?.cancel_requested = true,
            Change::AttemptEnded(id, end) => {
                let row = self.live_mut(*id)?;
                row.state = end
                    .state
                    .filter(|s| !s.is_live())
                    .ok_or_else(|| format!("attempt {id} ended as live"))?;
                row.started_at = row.started_at.or(end.started_at);
                let took = end.usage.exec_seconds.filter(|_| end.ending.cause.is_none());
                row.end = Some(EndColumns {
                    cause: end.ending.cause,
                    return_code: end.ending.return_code,
                    took_ms: took.map(|seconds| (seconds * 1000.0).round() as u32),
                    script_ran: end.script.is_some(),
                    outcome: end.decision.outcome,
                    rule: end.decision.rule,
                    by: end.by,
                });
            }
            Change::Action { id, state, by, .. } => {
                let found = scenario.place_of_action(*id).filter(|(f, _)| *f == flow);
                let Some((_, index)) = found else {
                    return Err(format!("action {id} is not of workflow {flow}"));
                };
                self.flows[flow].actions[index] = (*state, *by);
            }
            Change::Event { .. } => {}
            Change::Workflow { run, canceled, complete, .. } => {
                let row = &mut self.flows[flow];
                (row.run, row.canceled, row.complete) = (*run, *canceled, *complete);
            }
        }
        Ok(())
    }

    /// New items are copies of their map.
    fn add_items(
        &mut self,
        scenario: &Scenario,
        flow: usize,
        map: JobIx,
        first: JobId,
        items: &[NewItem],
    ) {
        let is_bounded =
            scenario.flows[flow].maps.get(&map).is_some_and(|m| m.max_parallel.is_some());
        let row = &mut self.flows[flow];
        let of = row.plan[map.at()].clone();
        let columns = row.jobs[map.at()].clone();
        for (nth, item) in items.iter().enumerate() {
            let mut job = NewJob {
                id: JobId(first.0 + nth as i64),
                own_ms: None,
                parents: Vec::new(),
                ..(*of).clone()
            };
            if is_bounded {
                job.class.uses.push(limit_name(of.id));
            }
            let index = JobIx::new(row.plan.len());
            row.plan.push(Rc::new(job));
            row.jobs.push(JobColumns {
                status: JobStatus::Uninitialized,
                reason: None,
                tries: Tries { number: 1, ..Tries::none(1) },
                held: false,
                own_ms: None,
                ..columns.clone()
            });
            let value = item.extra.as_deref().map_or(Value::Null, |text| text.into());
            row.items.insert(index, ItemRow { map, key: item.name.clone(), value, is_gone: false });
        }
    }

    fn change_runner(&mut self, id: RunnerId, change: &RunnerChange) {
        let Some(row) = self.runners.get_mut((id.0 - 1) as usize) else { return };
        match change {
            RunnerChange::Ended(_) => row.ended = true,
            RunnerChange::Quarantine(quarantine) => row.quarantine.clone_from(quarantine),
            RunnerChange::Ordered(ordered) => row.ordered = *ordered,
            RunnerChange::Seen => {}
        }
    }

    /// The engine of one workflow, as a restart makes it.
    pub fn restore(&self, scenario: &Scenario, flow: usize, rows: Rows) -> Workflow {
        let mut workflow = rows.restore();
        let (plan, row) = (&scenario.flows[flow], &self.flows[flow]);
        if plan.maps.is_empty() {
            return workflow;
        }
        for (index, map) in &plan.maps {
            let is_expanded = row.expanded.contains(index);
            workflow.set_map(*index, MapJob { is_expanded, ..map.clone() });
        }
        for (index, item) in &row.items {
            workflow.set_item(*index, item.map, item.is_gone);
        }
        // Dependencies were counted without knowing of items.
        workflow.settle();
        workflow
    }

    /// What a restart reads of one workflow, as the store does.
    pub fn rows(&self, scenario: &Scenario, flow: usize) -> Rows {
        let plan = &scenario.flows[flow];
        let row = &self.flows[flow];
        let jobs = row.plan.iter().zip(&row.jobs).enumerate().map(|(at, (job, columns))| {
            let mut job = NewJob::clone(job);
            if plan.maps.contains_key(&JobIx::new(at)) {
                let its = row.items.iter().filter(|(_, item)| item.map.at() == at);
                job.parents.extend(its.map(|(index, _)| *index));
            }
            job.priority = columns.priority.unwrap_or(job.priority);
            job.class.memory = columns.memory.or(job.class.memory);
            job.own_ms = columns.own_ms;
            JobRow {
                job,
                status: columns.status,
                tries: columns.tries,
                held_back: columns.held,
                reason: columns.reason,
                afterwards: None,
            }
        });
        let mine: Vec<&AttemptRow> =
            self.attempts.iter().filter(|a| row.find(a.job).is_some()).collect();
        let status = |a: &AttemptRow| row.find(a.job).map(|index| row.jobs[index.at()].status);
        let ended = mine
            .iter()
            .filter(|a| {
                !a.state.is_live() && a.run == row.run && status(a) != Some(JobStatus::Completed)
            })
            .map(|a| {
                let script = a.unrun_script().cloned().map(Box::new);
                let rule = a.rule().filter(|_| !a.is_refunded);
                EndedRow {
                    id: a.id,
                    job: a.job,
                    number: a.number,
                    outcome: a.outcome(),
                    rule,
                    script,
                }
            });
        let end = |a: &&AttemptRow| {
            let index = row.find(a.job)?;
            Some((
                row.plan[index.at()].family,
                a.end.as_ref()?.took_ms.filter(|_| a.run == row.run)?,
            ))
        };
        Rows {
            typical_ms: row.typical_ms,
            families: row.families.clone(),
            ends: mine.iter().filter_map(end).collect(),
            id: crate::server::workflow_id(flow),
            run: row.run,
            canceled: row.canceled,
            settings: plan.settings.clone(),
            handlers: plan.handlers.clone(),
            jobs: jobs.collect(),
            live: mine.iter().filter(|a| a.state.is_live()).map(|a| live_row(a)).collect(),
            ended: ended.collect(),
            actions: plan
                .actions
                .iter()
                .zip(&row.actions)
                .map(|(new, (state, by))| NewAction { state: *state, by: *by, ..new.clone() })
                .collect(),
        }
    }
}

fn first_item(item: JobIx, map: JobIx) -> ItemRow {
    ItemRow { map, key: item.to_string(), value: Value::Null, is_gone: false }
}

fn put_row<T: Clone>(rows: &mut Vec<T>, id: usize, row: &T) -> Result<(), String> {
    match rows.len().checked_sub(id) {
        Some(0) => rows.push(row.clone()),
        Some(_) => rows[id] = row.clone(),
        None => return Err(format!("row {id} comes before row {}", rows.len())),
    }
    Ok(())
}

fn live_row(a: &AttemptRow) -> LiveRow {
    let held = match (a.state, &a.claim) {
        (AttemptState::Claimed | AttemptState::Running, Some(claim)) => Some(Held {
            attempt: a.id,
            runner: claim.runner,
            token: claim.token.clone(),
            key: claim.key.clone(),
            state: a.state,
            cancel_requested: a.cancel_requested,
            claimed_at: claim.at,
            started_at: a.started_at,
        }),
        _ => None,
    };
    LiveRow {
        id: a.id,
        job: a.job,
        number: a.number,
        not_before: a.not_before,
        held,
        recovery: a.recovery.clone(),
    }
}

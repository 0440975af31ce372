//! The database of the simulation: the rows that the engine's changes imply, with the constraints
//! of the schema.

use crate::scenario::Scenario;
use crate::wire::Scope;
use torc_engine::{Change, EndedRow, FamilyTime, Held, JobRow, LiveRow, NewAction, Rows, Tries};
use torc_model::api::RecoveryScript;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::status::{
    ActionState, AttemptState, Cause, EndedBy, JobStatus, Origin, Outcome, StatusReason,
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
    /// That script has run, its report said.
    pub script_ran: bool,
    /// Who took it.
    pub runner: Option<RunnerId>,
    /// Fencing token.
    pub token: Option<String>,
    /// The claim that took it.
    pub key: Option<String>,
    /// Its runner must stop it.
    pub cancel_requested: bool,
    /// When it was claimed.
    pub claimed_at: Option<i64>,
    /// When it started.
    pub started_at: Option<i64>,
    /// How long it took, in ms, if it succeeded.
    pub took_ms: Option<u32>,
    /// Why it ended badly.
    pub cause: Option<Cause>,
    /// What the rules decided.
    pub outcome: Option<Outcome>,
    /// The rule that matched.
    pub rule: Option<usize>,
    /// Who or what ended it.
    pub ended_by: Option<EndedBy>,
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
    /// Canceled.
    pub canceled: bool,
    /// Complete.
    pub complete: bool,
    /// What is assumed of jobs about whose time nothing is known.
    pub typical_ms: Option<u32>,
    /// The times of its families.
    pub families: Vec<FamilyTime>,
    /// Its jobs.
    pub jobs: Vec<JobColumns>,
    /// Its actions: where each stands, and who has it.
    pub actions: Vec<(ActionState, Option<RunnerId>)>,
}

impl FlowRow {
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
    /// It ends at this time by itself, by the clock that never jumps.
    pub until: i64,
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
}

/// One write.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Of the engine, for this workflow.
    Change(usize, Change),
    /// A new runner; its id is the next one.
    RunnerNew(RunnerRow),
    /// A runner has ended.
    RunnerEnded(RunnerId),
    /// A new reservation; its id is the next one.
    ReservationNew(ReservationRow),
    /// A reservation has ended: released or expired.
    ReservationEnded(usize),
}

/// All rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Workflows.
    pub flows: Vec<FlowRow>,
    /// Attempts, ordered by id.
    pub attempts: Vec<AttemptRow>,
    /// Runners; the id is the index plus one.
    pub runners: Vec<RunnerRow>,
    /// Reservations; the id is the index.
    pub reservations: Vec<ReservationRow>,
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
                jobs: vec![job.clone(); f.jobs.len()],
                actions: vec![(ActionState::Waiting, None); f.actions.len()],
            })
            .collect();
        Self { flows, attempts: Vec::new(), runners: Vec::new(), reservations: Vec::new() }
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
            Write::RunnerEnded(id) => {
                if let Some(row) = self.runners.get_mut((id.0 - 1) as usize) {
                    row.ended = true;
                }
            }
            Write::ReservationNew(row) => {
                if self.reservations.iter().any(|r| r.is_active && r.scope == row.scope) {
                    return Err(format!("two reservations of {:?} are active", row.scope));
                }
                self.reservations.push(row.clone());
            }
            Write::ReservationEnded(id) => self.reservations[*id].is_active = false,
        }
        Ok(())
    }

    fn change(&mut self, scenario: &Scenario, flow: usize, change: &Change) -> Result<(), String> {
        let place = |job: JobId| match scenario.place(job) {
            Some((f, index)) if f == flow => Ok(index),
            _ => Err(format!("job {job} is not of workflow {flow}")),
        };
        match change {
            Change::Job { id, status, reason, tries, own_ms } => {
                let job = &mut self.flows[flow].jobs[place(*id)?];
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
            // The simulated workflows have no maps and no schedulers.
            Change::MapExpanded(..)
            | Change::ItemsAdded { .. }
            | Change::ItemChanged(..)
            | Change::ItemGone(..)
            | Change::JobScheduler(..)
            | Change::JobAfterwards(..) => {}
            Change::JobAdjusted(id, by) => {
                let job = &mut self.flows[flow].jobs[place(*id)?];
                job.memory = by.memory.or(job.memory);
                job.priority = by.priority.or(job.priority);
            }
            Change::JobHeld(id, held) => self.flows[flow].jobs[place(*id)?].held = *held,
            Change::AttemptQueued(new) => {
                place(new.job)?;
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
                    script_ran: false,
                    runner: None,
                    token: None,
                    key: None,
                    cancel_requested: false,
                    claimed_at: None,
                    started_at: None,
                    took_ms: None,
                    cause: None,
                    outcome: None,
                    rule: None,
                    ended_by: None,
                });
            }
            Change::AttemptClaimed { id, runner, token, key, at, .. } => {
                let row = self.live_mut(*id)?;
                if row.state != AttemptState::Queued {
                    return Err(format!("attempt {id} was claimed while {}", row.state));
                }
                row.state = AttemptState::Claimed;
                row.runner = Some(*runner);
                row.token = Some(token.clone());
                row.key = Some(key.clone());
                row.claimed_at = Some(*at);
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
                row.cause = end.ending.cause;
                row.started_at = row.started_at.or(end.started_at);
                let took = end.usage.exec_seconds.filter(|_| end.ending.cause.is_none());
                row.took_ms = took.map(|seconds| (seconds * 1000.0).round() as u32);
                row.script_ran = end.script.is_some();
                row.outcome = end.decision.outcome;
                row.rule = end.decision.rule;
                row.ended_by = Some(end.by);
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

    /// What a restart reads of one workflow, as the store does.
    pub fn rows(&self, scenario: &Scenario, flow: usize) -> Rows {
        let plan = &scenario.flows[flow];
        let row = &self.flows[flow];
        let jobs = plan.jobs.iter().zip(&row.jobs).map(|(job, columns)| {
            let mut job = job.clone();
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
        let mine: Vec<&AttemptRow> = self
            .attempts
            .iter()
            .filter(|a| scenario.place(a.job).is_some_and(|(f, _)| f == flow))
            .collect();
        let status =
            |a: &AttemptRow| scenario.place(a.job).map(|(_, index)| row.jobs[index].status);
        let ended = mine
            .iter()
            .filter(|a| {
                !a.state.is_live() && a.run == row.run && status(a) != Some(JobStatus::Completed)
            })
            .map(|a| {
                let script = a.recovery.clone().filter(|_| !a.script_ran).map(Box::new);
                EndedRow { id: a.id, job: a.job, outcome: a.outcome, rule: a.rule, script }
            });
        let end = |a: &&AttemptRow| {
            let (_, index) = scenario.place(a.job)?;
            Some((plan.jobs[index].family, a.took_ms.filter(|_| a.run == row.run)?))
        };
        Rows {
            typical_ms: row.typical_ms,
            families: row.families.clone(),
            ends: mine.iter().filter_map(end).collect(),
            id: WorkflowId(flow as i64 + 1),
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

fn live_row(a: &AttemptRow) -> LiveRow {
    let held = match (a.state, a.runner) {
        (AttemptState::Claimed | AttemptState::Running, Some(runner)) => Some(Held {
            attempt: a.id,
            runner,
            token: a.token.clone().unwrap_or_default(),
            key: a.key.clone().unwrap_or_default(),
            state: a.state,
            cancel_requested: a.cancel_requested,
            claimed_at: a.claimed_at.unwrap_or(0),
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

//! The invariants. They look at rows, at the witness and at what clients were told, never at the
//! engine alone.

use crate::scenario::{Scenario, Sight};
use crate::server::Server;
use crate::tables::{AttemptRow, ReservationRow, Tables, Write};
use crate::wire::Scope;
use crate::witness::Witness;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use torc_engine::{Change, End, JobIx, Workflow};
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId};
use torc_model::status::{ActionState, AttemptState, EndedBy, JobStatus, Origin, Outcome};

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
    /// When runners heard that they must stop an attempt.
    pub ordered: BTreeMap<AttemptId, i64>,
    /// Attempts of a job below this number were before its last reset.
    reset_at: BTreeMap<JobId, i64>,
}

/// A process ends within this time after its runner heard that it must: the grace it gets, and the
/// time for which a runner may be stopped itself.
const OBEDIENCE_MS: i64 = 60_000;

type Verdict = Result<(), String>;

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
        }
    }

    /// A runner was told that a completion has counted. What a person has reset since may run
    /// again.
    pub fn acknowledge(&mut self, job: JobId, attempt: AttemptId) {
        if self.reset_at.get(&job).is_none_or(|first| attempt.0 >= *first) {
            self.acknowledged.insert(job, attempt);
        }
    }

    /// A process is about to start.
    pub fn on_start(
        &self,
        job: JobId,
        attempt: AttemptId,
        witness: &Witness,
        durable: &Tables,
    ) -> Verdict {
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
        let uses = |job: JobId| -> &[String] {
            self.scenario
                .place(job)
                .map_or(&[], |(flow, index)| &self.scenario.flows[flow].jobs[index].class.uses)
        };
        for name in uses(job) {
            let used = 1 + witness.live().filter(|p| uses(p.job).contains(name)).count() as i64;
            let max = self.scenario.limits[name].max;
            if used > max {
                return Err(format!(
                    "limit `{name}`: {used} processes use it, {max} may (job {job})"
                ));
            }
        }
        Ok(())
    }

    /// A write has become durable.
    pub fn on_write(
        &mut self,
        write: &Write,
        durable: &Tables,
        witness: &Witness,
        server: &Server,
        now: i64,
    ) -> Verdict {
        let Write::Change(flow, change) = write else { return Ok(()) };
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
                    of.recovery.is_some() && !of.script_ran && by_itself
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
                self.on_end(row, end, durable, witness, server, now)
            }
            Change::Job { .. }
            | Change::MapExpanded(..)
            | Change::ItemsAdded { .. }
            | Change::ItemChanged(..)
            | Change::JobAdjusted(..)
            | Change::JobScheduler(..)
            | Change::Times { .. }
            | Change::ItemGone(..)
            | Change::JobHeld(..)
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
    ) -> Verdict {
        let Some((flow, index)) = self.scenario.place(job) else { return Ok(()) };
        let plan = &self.scenario.flows[flow];
        if origin == Origin::Lost {
            let losses = self.losses.entry((job, run)).or_default();
            *losses += 1;
            let most = plan.jobs[index].max_lost;
            if *losses > most {
                return Err(format!(
                    "budget: job {job} was queued again after {losses} losses, {most} are allowed"
                ));
            }
        }
        if origin == Origin::Handler {
            let Some(rule) = of.and_then(|a| durable.attempt(a)).and_then(|a| a.rule) else {
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
    ) -> Verdict {
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
    pub fn check_triggers(&self, durable: &Tables) -> Verdict {
        if self.scenario.faults.people > 0 {
            return Ok(());
        }
        for (flow, row) in
            self.scenario.flows.iter().zip(&durable.flows).filter(|(_, row)| row.run > 0)
        {
            for (action, (state, _)) in flow.actions.iter().zip(&row.actions) {
                if *state == ActionState::Waiting {
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
    pub fn check_reservations(&self, server: &Server, before: i64) -> Verdict {
        let late = |r: &ReservationRow| r.is_active && r.until < before && server.booted < before;
        match server.durable.reservations.iter().find(|r| late(r)) {
            Some(row) => Err(format!("reservation: {row:?} outlives its time")),
            None => Ok(()),
        }
    }

    /// No reservation outlives the server that made it.
    pub fn check_boot(&self, server: &Server) -> Verdict {
        match server.durable.reservations.iter().find(|r| r.is_active && r.epoch < server.epoch) {
            Some(row) => Err(format!("reservation: {row:?} outlives its server")),
            None => Ok(()),
        }
    }

    fn on_claim(&self, flow: usize, id: AttemptId, durable: &Tables, now: i64) -> Verdict {
        let Some(row) = durable.attempt(id) else {
            return Err(format!("attempt {id} was claimed but not written"));
        };
        let Some((_, index)) = self.scenario.place(row.job) else { return Ok(()) };
        let uses_limit = !self.scenario.flows[flow].jobs[index].class.uses.is_empty();
        let pauses = |r: &&ReservationRow| {
            let covers = match r.scope {
                Scope::All => true,
                Scope::Flow(other) => other == flow,
                Scope::Limit => uses_limit,
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
        for parent in &self.scenario.flows[flow].jobs[index].parents {
            let status = jobs[parent.at()].status;
            let careless = !self.scenario.flows[flow].jobs[index].cancel_on_failure;
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

    fn on_end(
        &self,
        row: &AttemptRow,
        end: &End,
        durable: &Tables,
        witness: &Witness,
        server: &Server,
        now: i64,
    ) -> Verdict {
        let Some(runner) = row.runner else { return Ok(()) };
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
                "obedience: attempt {} ran on for {} s after its runner had heard that it must stop",
                row.id,
                (ended - heard) / 1000
            ));
        }
        if end.by == EndedBy::Recovery {
            let Some(owner) = durable.runner(runner) else {
                return Err(format!("runner {runner} has no row"));
            };
            let is_gone = self.ended.contains_key(&(owner.slot, owner.incarnation));
            let heard = self.heard.get(&runner).copied().unwrap_or(0).max(server.booted);
            let disown = self.scenario.flows[owner.flow].disown();
            let is_blind = self.scenario.slots[owner.slot].sight == Sight::Remote;
            if !(is_gone || is_blind && now - heard >= disown) {
                let silent = (now - heard) / 1000;
                return Err(format!(
                    "unknown is not dead: attempt {} was given up after {silent} s of silence",
                    row.id
                ));
            }
        } else if row.state == AttemptState::Completed {
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

    /// A commit is complete.
    pub fn on_commit(&mut self, durable: &Tables) -> Verdict {
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
            if let Some((flow, index)) = self.scenario.place(row.job) {
                for name in &self.scenario.flows[flow].jobs[index].class.uses {
                    *used.entry(name).or_default() += 1;
                }
            }
        }
        if let Some((name, used)) =
            used.iter().find(|(name, used)| self.scenario.limits[**name].max < **used)
        {
            return Err(format!("limit `{name}`: {used} attempts have it"));
        }
        for flow in std::mem::take(&mut self.touched) {
            self.check_flow(flow, durable)?;
        }
        Ok(())
    }

    /// Every job has exactly what its status says, and nothing waits for what has already happened.
    fn check_flow(&self, flow: usize, durable: &Tables) -> Verdict {
        let plan = &self.scenario.flows[flow];
        let jobs = &durable.flows[flow].jobs;
        let mut live: Vec<Option<AttemptState>> = vec![None; jobs.len()];
        for row in durable.attempts.iter().filter(|a| a.state.is_live()) {
            if let Some((f, index)) = self.scenario.place(row.job)
                && f == flow
            {
                live[index] = Some(row.state);
            }
        }
        for (index, job) in jobs.iter().enumerate() {
            let wanted = match job.status {
                JobStatus::Ready => Some(AttemptState::Queued),
                JobStatus::Pending => Some(AttemptState::Claimed),
                JobStatus::Running => Some(AttemptState::Running),
                _ => None,
            };
            let id = plan.jobs[index].id;
            if live[index] != wanted {
                return Err(format!(
                    "lost job: job {id} is {} but its attempt is {:?}",
                    job.status, live[index]
                ));
            }
            if job.status == JobStatus::Blocked {
                let careless = !plan.jobs[index].cancel_on_failure;
                let of = |p: &JobIx| jobs[p.at()].status;
                let dead = !careless && plan.jobs[index].parents.iter().any(|p| of(p).is_bad_end());
                let met = |s: JobStatus| s.satisfies() || (s.is_bad_end() && careless);
                if dead || plan.jobs[index].parents.iter().all(|p| met(of(p))) {
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
    pub fn check_acknowledged(&self, durable: &Tables) -> Verdict {
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
    ) -> Verdict {
        for row in server
            .durable
            .attempts
            .iter()
            .filter(|a| matches!(a.state, AttemptState::Claimed | AttemptState::Running))
        {
            let Some(runner) = row.runner else { continue };
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

/// The engine in memory and the engine that a restart would make must be the same.
pub fn same(memory: &Workflow, restored: &Workflow) -> Verdict {
    memory.difference(restored).map_or(Ok(()), Err)
}

/// What is counted as used of the named limits is what is used.
pub fn same_limits(server: &Server, scenario: &Scenario) -> Verdict {
    let (counted, mut fresh) = (&server.limits, scenario.limits.clone());
    fresh.values_mut().for_each(|limit| limit.paused = server.is_limit_reserved());
    server.flows.iter().for_each(|f| f.count_limits(&mut fresh));
    if &fresh == counted {
        Ok(())
    } else {
        Err(format!("limits are counted as {counted:?} but are {fresh:?}"))
    }
}

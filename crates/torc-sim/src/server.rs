//! The simulated server: the real engine between simulated tables, with the protocol of the store
//! around it.
//!
//! Requests are carried out in memory when they arrive and share the next commit; answers leave
//! after it. A crash loses the engine and whatever was not committed.

use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::tables::{RunnerRow, Tables, Write};
use crate::wire::{Answer, Inside, Request, Wish};
use std::collections::BTreeMap;
use std::rc::Rc;
use torc_engine::{
    Change, Claim, Clocks, End, KnownEnd, KnownRunner, Limits, Lost, MapJob, Refused, Reservation,
    ReservationChange, Reservations, RunnerChange, RunnerEvent, Runners, Scope, Workflow,
    remove_limit, set_limit,
};
use torc_model::api::{
    ActionPacket, AttemptPacket, Capacity, ClaimRequest, ClaimResponse, CompletionReport,
    ErrorCode, Evidence, Heartbeat, ReportResult, ReportVerdict,
};
use torc_model::attempt::{Ending, Usage};
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::ActionKind;
use torc_model::status::{ActionState, Cause, EndedBy, EvidenceSource, JobStatus, RunnerOrder};
use torc_model::steps::Tolerate;

/// The named limit that people reserve.
pub const LICENCE: &str = "licence";

/// The id of a workflow.
pub fn workflow_id(flow: usize) -> WorkflowId {
    WorkflowId(flow as i64 + 1)
}

/// A row was written that the schema forbids.
pub type Broken = String;

/// The server.
pub struct Server {
    pub(crate) scenario: Rc<Scenario>,
    pub(crate) sabotage: Option<Sabotage>,
    /// It runs.
    pub is_up: bool,
    /// Its process, counted.
    pub epoch: u32,
    /// When it began to listen.
    pub booted: i64,
    /// What its wall clock is ahead.
    pub clock_offset: i64,
    /// Committed rows.
    pub durable: Tables,
    /// Rows with what is not committed yet.
    pub(crate) working: Tables,
    /// Written but not committed.
    pub pending: Vec<Write>,
    /// The engine.
    pub flows: Vec<Workflow>,
    /// Named limits.
    pub limits: Limits,
    /// Runners that have not ended.
    pub runners: Runners,
    /// Last word from each, by the wall clock.
    heard_wall: BTreeMap<RunnerId, i64>,
    next_attempt: i64,
    next_job: i64,
    reservations: Reservations,
    /// The verdict of each job whose retry has not told yet how it went.
    pub(crate) judged: BTreeMap<JobId, usize>,
}

impl Server {
    /// A server whose creation of the workflows was acknowledged.
    pub fn new(scenario: Rc<Scenario>, sabotage: Option<Sabotage>) -> Self {
        let tables = Tables::new(&scenario);
        let mut server = Self {
            sabotage,
            is_up: true,
            epoch: 1,
            booted: 0,
            clock_offset: 0,
            durable: tables.clone(),
            working: tables,
            pending: Vec::new(),
            flows: Vec::new(),
            limits: Limits::default(),
            runners: Runners::default(),
            heard_wall: BTreeMap::new(),
            next_attempt: 1,
            next_job: 1,
            reservations: Reservations::default(),
            judged: BTreeMap::new(),
            scenario,
        };
        server.load(0);
        server
    }

    /// The process dies.
    pub fn crash(&mut self) {
        self.is_up = false;
        self.pending.clear();
    }

    /// A new process reads the rows.
    pub fn boot(&mut self, now: i64) {
        self.is_up = true;
        self.epoch += 1;
        self.booted = now;
        self.working = self.durable.clone();
        self.runners = Runners::default();
        self.heard_wall.clear();
        self.reservations = Reservations::default();
        self.load(now);
        self.load_runners(now);
    }

    /// Another process that starts from the same rows.
    pub fn twin(&self, now: i64) -> Self {
        let mut twin = Self::new(self.scenario.clone(), self.sabotage);
        twin.durable = self.durable.clone();
        twin.clock_offset = self.clock_offset;
        twin.boot(now);
        twin
    }

    fn load_runners(&mut self, now: i64) {
        let forgets = self.sabotage == Some(Sabotage::QuarantineForgottenAtBoot);
        let mut rows = Runners::default();
        for (i, row) in self.working.runners.iter().enumerate().filter(|(_, r)| !r.ended) {
            let kept = row.quarantine.clone().filter(|_| !forgets);
            let known = KnownRunner { heard: Some(now), ..known_runner(row) };
            rows.insert(RunnerId(i as i64 + 1), known.restored(kept, row.ordered));
        }
        self.runners = std::mem::take(&mut self.runners).reread(rows);
    }

    /// A runner was last heard at this time by the wall clock.
    pub fn heard_wall(&self, runner: RunnerId) -> i64 {
        self.heard_wall.get(&runner).copied().unwrap_or(self.booted + self.clock_offset)
    }

    /// What the batch of writes so far is on disk.
    pub fn committed(&mut self) {
        self.runners.committed();
    }

    /// The engine, as the working rows say.
    fn load(&mut self, now: i64) {
        self.flows =
            (0..self.scenario.flows.len()).map(|f| self.restored(&self.working, f)).collect();
        self.limits = self.working.named_limits();
        if self.sabotage != Some(Sabotage::LimitsForgottenAtBoot) {
            for flow in &self.flows {
                flow.count_limits(&mut self.limits);
            }
        }
        self.next_attempt = self.working.next_attempt();
        self.next_job = self.working.next_job();
        self.load_verdicts();
        let clocks = self.clocks(now);
        let rows = self.working.reservations.iter().enumerate().filter(|(_, row)| row.is_active);
        let active = rows.map(|(at, row)| {
            let reservation = Reservation {
                id: at as i64 + 1,
                reserved_by: String::new(),
                token_hash: row.token_hash.clone(),
                until: clocks.uptime + (row.expires - clocks.now).max(0),
                expires: row.expires,
            };
            (row.scope.clone(), reservation)
        });
        let next = self.working.reservations.len() as i64 + 1;
        let fresh = Reservations::new(active, next);
        self.reservations = fresh.with_times_of(&self.reservations);
        self.pause_limits();
    }

    /// The time of a request. For reservations that never end it stands still.
    fn clocks(&self, now: i64) -> Clocks {
        let stands = self.sabotage == Some(Sabotage::ReservationsForEver);
        Clocks { now: now + self.clock_offset, uptime: if stands { 0 } else { now } }
    }

    fn pause_limits(&mut self) {
        if self.sabotage != Some(Sabotage::ReservationsIgnored) {
            self.reservations.pause_limits(&mut self.limits);
        }
    }

    /// A user reserved the named limit.
    pub fn is_limit_reserved(&self) -> bool {
        self.reservations.pauses_limit(LICENCE)
            && self.sabotage != Some(Sabotage::ReservationsIgnored)
    }

    /// Claims of this workflow are paused.
    fn is_paused(&self, flow: usize, now: i64) -> bool {
        let uptime = self.clocks(now).uptime;
        self.reservations.pausing(workflow_id(flow), uptime).is_some()
            && self.sabotage != Some(Sabotage::ReservationsIgnored)
    }

    /// Changes reservations in memory and in their rows.
    fn change_reservations(
        &mut self,
        now: i64,
        change: impl FnOnce(&mut Reservations, Clocks) -> Result<Vec<ReservationChange>, Refused>,
    ) -> Result<Answer, Broken> {
        let clocks = self.clocks(now);
        let changes = match change(&mut self.reservations, clocks) {
            Ok(changes) => changes,
            Err(refused) => return Ok(Answer::Refused(refused.code)),
        };
        self.pause_limits();
        let (real, epoch) = (Clocks { uptime: now, ..clocks }, self.epoch);
        for change in changes {
            self.put(Write::Reservation(change, real, epoch))?;
        }
        Ok(Answer::Done)
    }

    fn reserve(&mut self, scope: &Scope, ttl: i64, now: i64) -> Result<Answer, Broken> {
        if matches!(scope, Scope::Limit(name) if !self.limits.contains_key(name)) {
            return Ok(Answer::Refused(ErrorCode::NotFound));
        }
        let scope = scope.clone();
        self.change_reservations(now, |all, clocks| {
            all.begin(scope, ("a person", "token".to_owned()), ttl, clocks)
        })
    }

    /// Sets or removes the named limit.
    fn set_limit(&mut self, max: Option<i64>) -> Result<Answer, Broken> {
        let (limits, flows) = (&mut self.limits, self.flows.iter());
        let change = match max {
            Some(max) => Some(set_limit(limits, &self.reservations, flows, LICENCE, max)),
            None => remove_limit(limits, flows, LICENCE),
        };
        self.pause_limits();
        match change {
            Some(change) => self.put(Write::Limit(change)).map(|()| Answer::Done),
            None => Ok(Answer::Refused(ErrorCode::NotFound)),
        }
    }

    /// Ends the reservations whose time has come; at boot all of them. Tells whether there were
    /// any.
    pub fn expire(&mut self, at_boot: bool, now: i64) -> Result<bool, Broken> {
        if at_boot && self.sabotage == Some(Sabotage::ReservationsOutliveBoot) {
            return Ok(false);
        }
        let any = !self.reservations.due(self.clocks(now).uptime, at_boot).is_empty();
        self.change_reservations(now, |all, clocks| Ok(all.expire(clocks, at_boot)))?;
        Ok(any)
    }

    /// A workflow out of these rows.
    pub fn restored(&self, tables: &Tables, flow: usize) -> Workflow {
        let mut rows = tables.rows(&self.scenario, flow);
        match self.sabotage {
            Some(Sabotage::DependenciesForgotten) => {
                rows.jobs.iter_mut().for_each(|j| j.job.parents.clear())
            }
            Some(Sabotage::LossesUnbounded) => {
                rows.jobs.iter_mut().for_each(|j| j.job.max_lost = 1000)
            }
            Some(Sabotage::RulesUnbounded) => {
                rows.jobs.iter_mut().for_each(|j| j.tries.refunds = 1000)
            }
            Some(Sabotage::ScriptsForgotten) => {
                rows.live.iter_mut().for_each(|a| a.recovery = None)
            }
            _ => {}
        }
        let mut workflow = tables.restore(&self.scenario, flow, rows);
        for index in self.scenario.flows[flow].maps.keys() {
            let Some(map) = workflow.map(*index).cloned() else { continue };
            let sabotaged = match self.sabotage {
                Some(Sabotage::AnyFailureBorne) => {
                    MapJob { tolerate: Tolerate::Percent(100.0), ..map }
                }
                Some(Sabotage::MapLimitsForgotten) => MapJob { max_parallel: None, ..map },
                _ => continue,
            };
            workflow.set_map(*index, sabotaged);
        }
        workflow
    }

    /// The database failed: the engine's copies are thrown away and read again.
    pub fn forget(&mut self, now: i64) {
        self.working = self.durable.clone();
        self.pending.clear();
        self.reload(now);
    }

    fn reload(&mut self, now: i64) {
        if self.sabotage == Some(Sabotage::MemoryOutlivesRollback) {
            return;
        }
        self.load(now);
        self.load_runners(now);
    }

    pub(crate) fn put(&mut self, write: Write) -> Result<(), Broken> {
        let forgotten = match (&write, self.sabotage) {
            (Write::Change(_, Change::AttemptQueued(new)), Some(Sabotage::RetryNotWritten)) => {
                new.retry_of.is_some()
            }
            (
                Write::Change(_, Change::AttemptCancelRequested(_)),
                Some(Sabotage::CancelNotWritten),
            ) => true,
            (Write::Change(_, Change::AttemptEnded(..)), Some(Sabotage::LossNotWritten)) => {
                matches!(&write, Write::Change(_, Change::AttemptEnded(_, e)) if e.ending.cause == Some(Cause::Lost))
            }
            (Write::Memory(..), Some(Sabotage::LessonsNotWritten)) => true,
            (Write::Limit(_), Some(Sabotage::LimitsNotWritten)) => true,
            (Write::Change(_, change), Some(sabotage)) if is_dropped(change, sabotage) => true,
            (
                Write::Change(_, Change::Action { id, state: ActionState::Triggered, .. }),
                Some(sabotage),
            ) => {
                let before = self
                    .scenario
                    .place_of_action(*id)
                    .map(|(f, i)| self.working.flows[f].actions[i].0);
                match before {
                    Some(ActionState::Claimed) => sabotage == Sabotage::ActionsOfTheDead,
                    _ => sabotage == Sabotage::TriggersNotWritten,
                }
            }
            _ => false,
        };
        if !forgotten {
            self.working.write(&self.scenario, &write)?;
            self.pending.push(write);
        }
        Ok(())
    }

    /// Runs a move of the engine and writes down what it did.
    pub(crate) fn apply<T>(
        &mut self,
        flow: usize,
        now: i64,
        step: impl FnOnce(&mut Workflow, &mut Limits, i64) -> T,
    ) -> Result<T, Broken> {
        let wall = now + self.clock_offset;
        let workflow = &mut self.flows[flow];
        workflow.set_next_attempt(self.next_attempt);
        let result = step(workflow, &mut self.limits, wall);
        let changes = workflow.take_changes();
        self.next_attempt = workflow.next_attempt();
        for change in changes {
            let told = match &change {
                Change::Event { kind, job: Some(job), .. } => Some((*kind, *job)),
                _ => None,
            };
            self.put(Write::Change(flow, change))?;
            if let Some((kind, job)) = told {
                self.observe(kind, job)?;
            }
        }
        Ok(result)
    }

    /// Takes so many numbers for new jobs; answers with the first.
    pub(crate) fn take_job_ids(&mut self, count: usize) -> i64 {
        let first = self.next_job;
        self.next_job += count as i64;
        first
    }

    /// Writes what did not come from a workflow of the engine.
    pub(crate) fn write(&mut self, flow: usize, change: Change) -> Result<(), Broken> {
        self.put(Write::Change(flow, change))
    }

    /// Carries a request out. With `fails` its part of the transaction is rolled back.
    pub fn handle(
        &mut self,
        request: &Request,
        now: i64,
        nonce: u64,
        fails: bool,
    ) -> Result<Answer, Broken> {
        if !fails {
            return self.carry_out(request, now, nonce);
        }
        let (saved, length) = (self.working.clone(), self.pending.len());
        self.carry_out(request, now, nonce)?;
        self.working = saved;
        self.pending.truncate(length);
        self.reload(now);
        Ok(Answer::Broken)
    }

    fn carry_out(&mut self, request: &Request, now: i64, nonce: u64) -> Result<Answer, Broken> {
        match request {
            Request::Register { slot, incarnation, key, inside } => {
                self.register(*slot, *incarnation, *key, *inside, now)
            }
            Request::Claim(request, is_woken) => {
                let flow = match is_woken {
                    // The runner has said nothing new.
                    true => self.runners.get(&request.runner_id).map(flow_of),
                    false => self.hear(request.runner_id, now),
                };
                let Some(flow) = flow else { return Ok(Answer::RunnerEnded) };
                self.claim(flow, request, now, nonce)
            }
            Request::Heartbeat(body) => {
                let Some(flow) = self.hear(body.runner_id, now) else {
                    return Ok(Answer::RunnerEnded);
                };
                self.heartbeat(flow, body, now)
            }
            Request::ActionDone(runner, action) => {
                let Some(flow) = self.hear(*runner, now) else { return Ok(Answer::RunnerEnded) };
                self.apply(flow, now, |w, _, _| w.action_done(*action, *runner, None))?;
                Ok(Answer::ActionKnown(*action))
            }
            Request::Goodbye(runner) => {
                if self.runners.contains_key(runner) {
                    let lost = lost(Cause::Lost, "its runner left");
                    self.end_runner(*runner, &lost, now)?;
                    self.runner_left(*runner, now)?;
                }
                Ok(Answer::Done)
            }
            Request::Begin(submitter) => self.begin_submission(submitter, now),
            Request::Submitted { submitter, allocation, outcome } => {
                self.submitted(submitter, *allocation, *outcome, now)
            }
            Request::Observed(seen) => self.observed(seen, now),
            Request::Person(flow, wish) => self.person(*flow, wish, now),
        }
    }

    fn hear(&mut self, runner: RunnerId, now: i64) -> Option<usize> {
        let known = self.runners.hear(runner, None, now).ok()?;
        let flow = flow_of(known);
        self.heard_wall.insert(runner, now + self.clock_offset);
        Some(flow)
    }

    fn register(
        &mut self,
        slot: usize,
        incarnation: u32,
        key: u64,
        inside: Option<Inside>,
        now: i64,
    ) -> Result<Answer, Broken> {
        if let Some(at) = self.working.runners.iter().position(|r| r.key == key) {
            return Ok(Answer::Registered(RunnerId(at as i64 + 1)));
        }
        let flow = self.scenario.slots[slot].flow;
        if let Some(inside) = inside
            && !self.runner_arrived(inside, now)?
        {
            return Ok(Answer::Refused(ErrorCode::DuplicateAllocation));
        }
        let row = RunnerRow {
            flow,
            slot,
            incarnation,
            key,
            ended: false,
            inside,
            quarantine: None,
            ordered: None,
        };
        let known = KnownRunner { heard: Some(now), ..known_runner(&row) };
        self.put(Write::RunnerNew(row))?;
        let id = RunnerId(self.working.runners.len() as i64);
        self.heard_wall.insert(id, now + self.clock_offset);
        let (changes, _) = self.runners.come(id, known);
        for change in changes {
            self.write(flow, change)?;
        }
        Ok(Answer::Registered(id))
    }

    fn claim(
        &mut self,
        flow: usize,
        request: &ClaimRequest,
        now: i64,
        nonce: u64,
    ) -> Result<Answer, Broken> {
        let runner = request.runner_id;
        for report in &request.started {
            let attempt = &report.attempt;
            if let Some(index) = self.flows[flow].may_report(attempt.id, runner, &attempt.token) {
                self.apply(flow, now, |w, _, at| w.started(index, 1, at))?;
            }
        }
        let mut completed = Vec::new();
        for report in &request.completed {
            completed.push(self.complete(flow, runner, report, now)?);
        }
        let actions = self.claim_actions(flow, runner, &request.key, now)?;
        let known = self.flows[flow].claimed_with(runner, &request.key);
        let mut attempts: Vec<AttemptPacket> =
            known.into_iter().map(|c| self.packet(flow, c.job, c.attempt, c.token)).collect();
        let is_kept = self.is_kept_from_work(flow, runner, now)?;
        let may_claim = request.limit > 0
            && !is_kept
            && !self.is_ordered_away(runner)
            && !self.flows[flow].canceled
            && !self.is_paused(flow, now);
        if attempts.is_empty() && may_claim {
            let claim = |now| Claim {
                runner,
                key: &request.key,
                limit: usize::try_from(request.limit).unwrap_or(0),
                prefetch: usize::try_from(request.prefetch).unwrap_or(0),
                capacity: &request.capacity,
                time_left: None,
                scheduler: None,
                strict_scheduler: false,
                label: None,
                now,
                nonce,
            };
            let claimed = self.apply(flow, now, |w, limits, at| w.claim(&claim(at), limits))?;
            attempts =
                claimed.into_iter().map(|c| self.packet(flow, c.job, c.attempt, c.token)).collect();
        }
        let orders = self.flows[flow].orders_for(runner);
        let is_alone = self.runners.is_alone(workflow_id(flow), runner);
        let cancel = match self.runners.get_mut(&runner) {
            Some(known) => known.untold(orders),
            None => orders,
        };
        Ok(Answer::Claimed(Box::new(ClaimResponse {
            attempts,
            actions,
            cancel,
            completed,
            workflow_complete: self.flows[flow].is_complete(),
            is_alone,
            ..ClaimResponse::default()
        })))
    }

    /// What a runner needs to know of an attempt.
    fn packet(&self, flow: usize, job_id: JobId, id: AttemptId, token: String) -> AttemptPacket {
        let class = self.working.plan(job_id).map(|job| &job.class);
        AttemptPacket {
            id,
            token,
            job_id,
            job_name: String::new(),
            run_id: self.flows[flow].run,
            attempt_id: 1,
            command: String::new(),
            invocation_script: None,
            steps: None,
            env: BTreeMap::new(),
            num_cpus: class.map_or(1, |class| i64::from(class.cpus)),
            num_gpus: 0,
            num_nodes: 1,
            memory_bytes: None,
            time_limit_seconds: None,
            is_limited_by_runtime: false,
            stdio: None,
            output_files: Vec::new(),
            lists: Vec::new(),
            strictness: Default::default(),
            recovery: self.working.attempt(id).and_then(|row| row.recovery.clone()),
        }
    }

    /// What is triggered, and what a lost answer had already brought.
    fn claim_actions(
        &mut self,
        flow: usize,
        runner: RunnerId,
        key: &str,
        now: i64,
    ) -> Result<Vec<ActionPacket>, Broken> {
        if self.scenario.flows[flow].actions.is_empty() {
            return Ok(Vec::new());
        }
        let Some(known) = self.runners.get_mut(&runner) else { return Ok(Vec::new()) };
        let mut given = known.begin_actions(runner, &self.flows[flow], key, now);
        if self.sabotage == Some(Sabotage::ActionsGivenOnce) {
            given.ids.clear();
        }
        self.apply(flow, now, |w, _, _| w.give_actions(runner, &mut given))?;
        if let Some(known) = self.runners.get_mut(&runner) {
            known.gave_actions(key, &given.ids, now);
        }
        let ids = given.ids;
        let trigger_of = |id: ActionId| {
            let (flow, index) = self.scenario.place_of_action(id)?;
            Some(self.scenario.flows[flow].actions[index].trigger)
        };
        let packet = |id: ActionId| {
            let what = ActionKind::RunCommands { commands: Vec::new() };
            Some(ActionPacket { id, trigger: trigger_of(id)?, what })
        };
        Ok(ids.into_iter().filter_map(packet).collect())
    }

    fn complete(
        &mut self,
        flow: usize,
        runner: RunnerId,
        report: &CompletionReport,
        now: i64,
    ) -> Result<ReportResult, Broken> {
        let id = report.attempt.id;
        let mut right = self.flows[flow].may_report(id, runner, &report.attempt.token);
        if self.sabotage == Some(Sabotage::TokensIgnored) && right.is_none() {
            let job = self.working.attempt(id).map(|row| row.job);
            let index = job.and_then(|job| self.flows[flow].find(job));
            right = index.filter(|i| self.flows[flow].job(*i).held().is_some());
        }
        let Some(index) = right else { return Ok(self.late(runner, report)) };
        let mut end = End {
            at: now + self.clock_offset,
            ending: Ending {
                return_code: Some(report.return_code),
                cause: report.cause,
                ..Ending::default()
            },
            // Different jobs take different times, so that ranks are made anew on the way.
            usage: Usage { exec_seconds: Some((id.0 % 7 + 1) as f64), ..Usage::default() },
            script: report.script.clone(),
            steps: report.steps.clone(),
            ..End::new(EndedBy::Runner, now)
        };
        self.before_end(flow, index, &mut end, now)?;
        let job = self.flows[flow].job(index).id();
        self.after_steps(flow, job, id, report)?;
        let ended = self.apply(flow, now, |w, limits, _| w.ended(index, end, limits))?;
        let cause =
            if ended.status == JobStatus::Canceled { Some(Cause::Canceled) } else { report.cause };
        self.judge_machine(flow, runner, (job, id), (cause, report.exec_seconds), now)?;
        let (result, job_status) = (ReportVerdict::Accepted, Some(ended.status));
        Ok(ReportResult { id, result, outcome: None, job_status })
    }

    /// A report about an attempt that is no longer the runner's: known already, or too late.
    fn late(&self, runner: RunnerId, report: &CompletionReport) -> ReportResult {
        let id = report.attempt.id;
        let known = self.working.attempt(id).map(|row| KnownEnd {
            token: row.claim.as_ref().map(|claim| claim.token.clone()),
            runner: row.runner(),
            state: row.state,
            ended_by: row.end.as_ref().map(|end| end.by),
        });
        let result =
            known.map_or(ReportVerdict::Late, |known| known.verdict(&report.attempt, runner));
        ReportResult { id, result, outcome: None, job_status: None }
    }

    fn heartbeat(&mut self, flow: usize, body: &Heartbeat, now: i64) -> Result<Answer, Broken> {
        let runner = body.runner_id;
        self.steps_told(flow, runner, &body.step_events)?;
        for change in self.runners.step(runner, RunnerEvent::Beat) {
            self.write(flow, change)?;
        }
        let silence_is_proof = self.sabotage == Some(Sabotage::AbsenceIsProof);
        self.apply(flow, now, |w, limits, at| {
            if silence_is_proof {
                let is_listed = |id: &AttemptId| body.held.iter().any(|held| held.id == *id);
                let held: Vec<_> = w.held_by(runner).filter_map(|i| w.job(i).live()).collect();
                for id in held.iter().filter(|id| !is_listed(id)) {
                    w.never_arrived(runner, *id, limits, at);
                }
            }
            Answer::Beat(w.heartbeat(body, limits, at))
        })
    }

    /// A runner is gone: its attempts end, its row is closed.
    pub fn end_runner(&mut self, runner: RunnerId, lost: &Lost, now: i64) -> Result<(), Broken> {
        let Some(flow) = self.runners.get(&runner).map(flow_of) else { return Ok(()) };
        let ended =
            self.apply(flow, now, |w, limits, at| w.runner_lost(runner, lost, limits, at))?;
        let reason = lost.evidence.text.clone();
        for change in self.runners.step(runner, RunnerEvent::Ended(reason, ended)) {
            self.write(flow, change)?;
        }
        Ok(())
    }

    /// A person keeps a runner from work.
    fn is_ordered_away(&self, runner: RunnerId) -> bool {
        let ordered = self.runners.get(&runner).and_then(|known| known.ordered);
        ordered.is_some() && self.sabotage != Some(Sabotage::OrdersToRunnersIgnored)
    }

    /// A person drains a runner, or lets it work again.
    fn order(&mut self, runner: RunnerId, drain: bool) -> Result<Answer, Broken> {
        let Some(flow) = self.runners.get(&runner).map(flow_of) else {
            return Ok(Answer::Refused(ErrorCode::RunnerEnded));
        };
        let ordered = drain.then_some(RunnerOrder::Drain);
        for change in self.runners.step(runner, RunnerEvent::Ordered(ordered)) {
            self.write(flow, change)?;
        }
        Ok(Answer::Done)
    }

    fn person(&mut self, flow: usize, wish: &Wish, now: i64) -> Result<Answer, Broken> {
        let done = match wish {
            Wish::Reserve(scope, ttl) => return self.reserve(scope, *ttl, now),
            Wish::Renew(id, ttl) => {
                return self.change_reservations(now, |all, clocks| {
                    all.renew(*id, "token", *ttl, clocks).map(|change| vec![change])
                });
            }
            Wish::Release(id) => {
                return self.change_reservations(now, |all, clocks| {
                    all.release(*id, Some("token"), clocks).map(|change| vec![change])
                });
            }
            Wish::Limit(max) => return self.set_limit(*max),
            Wish::Order(runner, drain) => return self.order(*runner, *drain),
            Wish::Initialize => {
                let open = self.flows[flow].counts()[JobStatus::Uninitialized as usize] > 0;
                if !open && self.flows[flow].run > 0 {
                    return Ok(Answer::Refused(ErrorCode::AlreadyInitialized));
                }
                self.apply(flow, now, |w, _, at| w.initialize(at))?;
                Ok(())
            }
            Wish::Reset(seeds) => match self.flows[flow].plan_reset(seeds) {
                Ok(chosen) if chosen.is_empty() => Ok(()),
                Ok(chosen) => {
                    self.apply(flow, now, |w, _, at| w.reset(&chosen, at))?;
                    Ok(())
                }
                Err(refused) => Err(refused),
            },
            Wish::Retry { index, run, max } => {
                self.apply(flow, now, |w, _, at| w.retry(*index, *run, *max, at))?
            }
            Wish::Verdict { index, retry, confidence } => {
                return self.verdict(flow, *index, *retry, *confidence, now);
            }
            Wish::Settle(row, accept) => return self.settle_verdict(*row, *accept, now),
            Wish::FromMemory => return self.decide_from_memory(flow, now),
            Wish::Items(map, retry) => self.run_or_drop_items(flow, *map, *retry, now)?,
            Wish::Schedule(slot) => return self.schedule(*slot),
            Wish::Cancel => {
                self.apply(flow, now, |w, _, at| w.cancel(at))?;
                Ok(())
            }
            Wish::CancelJob(index) => self.apply(flow, now, |w, _, at| w.cancel_job(*index, at))?,
            Wish::Hold(index, held) => {
                self.apply(flow, now, |w, _, _| w.hold(*index, *held))?;
                Ok(())
            }
            Wish::Disable(index) => self.apply(flow, now, |w, _, at| w.disable(*index, at))?,
            Wish::Adjust(index, memory, priority) => {
                self.apply(flow, now, |w, _, _| {
                    w.adjust(
                        *index,
                        torc_engine::Adjustment {
                            memory: Some(*memory),
                            priority: Some(*priority),
                            ..Default::default()
                        },
                    )
                })?;
                Ok(())
            }
        };
        Ok(match done {
            Ok(()) => Answer::Done,
            Err(Refused { code, .. }) => Answer::Refused(code),
        })
    }
}

/// The workflow of a runner.
pub fn flow_of(known: &KnownRunner) -> usize {
    known.workflow.0 as usize - 1
}

/// A runner, as its row says. Each place is a host of its own.
fn known_runner(row: &RunnerRow) -> KnownRunner {
    let host = format!("host{}", row.slot);
    let pid = i64::from(row.incarnation);
    KnownRunner::new(workflow_id(row.flow), host, pid, Capacity::default())
}

/// Changes that a defect loses.
fn is_dropped(change: &Change, sabotage: Sabotage) -> bool {
    match change {
        Change::Runner(_, RunnerChange::Ended(_)) => sabotage == Sabotage::RunnerEndNotWritten,
        Change::Runner(_, RunnerChange::Ordered(_)) => {
            sabotage == Sabotage::OrdersToRunnersNotWritten
        }
        Change::ItemsAdded { .. } => sabotage == Sabotage::ItemsNotWritten,
        Change::MapExpanded(_, true) => sabotage == Sabotage::ExpansionNotWritten,
        Change::AttemptRefunded(_) => sabotage == Sabotage::RefundsNotWritten,
        Change::AttemptSteps(..) => sabotage == Sabotage::StepCountNotWritten,
        Change::Captured(..) => sabotage == Sabotage::CapturesNotWritten,
        _ => false,
    }
}

/// A loss, in words.
pub fn lost(cause: Cause, text: &str) -> Lost {
    Lost { cause, evidence: Evidence { source: EvidenceSource::Journal, text: text.into() } }
}

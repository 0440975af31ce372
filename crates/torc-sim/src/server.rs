//! The simulated server: the real engine between simulated tables, with the protocol of the store
//! around it.
//!
//! Requests are carried out in memory when they arrive and share the next commit; answers leave
//! after it. A crash loses the engine and whatever was not committed.

use crate::sabotage::Sabotage;
use crate::scenario::Scenario;
use crate::tables::{RunnerRow, Tables, Write};
use crate::wire::{Answer, Request, RunnerPlace, Wish};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use torc_engine::commands::{
    AdjustJob, Beat, CancelJob, CancelWorkflow, Claim, ClaimAnswer, DisableJob, EndFacts,
    EndRunner, ExpireReservations, Hear, HoldJob, Initialize, Leave, NoteLateEnd, OrderRunner,
    PrioritizeJob, RegisterRunner, ReleaseReservation, ReleaseRunner, RemoveLimit,
    RenewReservation, ReportAction, ReportEnd, ReportStart, Reported, Reserve, Reset, RetryJob,
    SetLimit,
};
use torc_engine::{
    Because, Change, Claimed, Clocks, Command, Done, Engine, KnownEnd, KnownRunner, Loaded, Lost,
    MapJob, On, Refused, Reservation, Reservations, RunnerChange, Runners, Scope, Workflow,
};
use torc_model::api::{
    ActionPacket, AttemptPacket, AttemptRef, Capacity, ClaimRequest, ClaimResponse,
    CompletionReport, ErrorCode, Heartbeat, ReportResult, ReportVerdict,
};
use torc_model::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::ActionKind;
use torc_model::recovery::Change as Adjusted;
use torc_model::status::{
    ActionState, Adjustable, AllocationStatus, Cause, JobStatus, RunnerOrder,
};
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
    pub engine: Engine,
    /// Last word from each, by the wall clock.
    heard_wall: BTreeMap<RunnerId, i64>,
    /// Actions that answers have brought.
    told_actions: BTreeSet<(RunnerId, ActionId)>,
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
            engine: Engine::default(),
            heard_wall: BTreeMap::new(),
            told_actions: BTreeSet::new(),
            judged: BTreeMap::new(),
            scenario,
        };
        server.engine = server.loaded(0);
        server.load_verdicts();
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
        self.heard_wall.clear();
        self.engine = self.loaded(now);
        self.load_verdicts();
    }

    /// Another process that starts from the same rows.
    pub fn twin(&self, now: i64) -> Self {
        let mut twin = Self::new(self.scenario.clone(), self.sabotage);
        twin.durable = self.durable.clone();
        twin.clock_offset = self.clock_offset;
        twin.boot(now);
        twin
    }

    fn runner_rows(&self, now: i64) -> Runners {
        let forgets = self.sabotage == Some(Sabotage::QuarantineForgottenAtBoot);
        let mut rows = Runners::default();
        for (i, row) in self.working.runners.iter().enumerate().filter(|(_, r)| !r.ended) {
            let kept = row.quarantine.clone().filter(|_| !forgets);
            let known = KnownRunner { heard: Some(now), ..known_runner(row) };
            rows.insert(RunnerId(i as i64 + 1), known.restored(kept, row.ordered));
        }
        rows
    }

    /// A workflow.
    pub fn flow(&self, flow: usize) -> &Workflow {
        &self.engine.workflows()[&workflow_id(flow)]
    }

    /// A runner was last heard at this time by the wall clock.
    pub fn heard_wall(&self, runner: RunnerId) -> i64 {
        self.heard_wall.get(&runner).copied().unwrap_or(self.booted + self.clock_offset)
    }

    /// What the batch of writes so far is on disk.
    pub fn committed(&mut self) {
        self.engine.committed();
    }

    /// The engine, as the working rows say.
    fn loaded(&self, now: i64) -> Engine {
        let flows = (0..self.scenario.flows.len()).map(|f| self.restored(&self.working, f));
        let flows: Vec<Workflow> = flows.collect();
        let mut limits = self.working.named_limits();
        if self.sabotage == Some(Sabotage::LimitsForgottenAtBoot) {
            // What they use is counted when they are loaded.
            for flow in &flows {
                flow.add_map_limits(&mut limits);
                flow.discount_limits(&mut limits);
            }
        }
        let clocks = self.reservation_clocks(now);
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
        let mut engine = Engine::restored(Loaded {
            runners: self.runner_rows(now),
            limits,
            reservations: Reservations::new(active, next),
            next_attempt: self.working.next_attempt(),
            next_job: self.working.next_job(),
        });
        flows.into_iter().for_each(|flow| engine.load(flow));
        engine
    }

    /// The time of a request.
    fn clocks(&self, now: i64) -> Clocks {
        Clocks { now: now + self.clock_offset, uptime: now }
    }

    /// The time of a request. For reservations that never end it stands still.
    fn reservation_clocks(&self, now: i64) -> Clocks {
        let stands = self.sabotage == Some(Sabotage::ReservationsForEver);
        Clocks { now: now + self.clock_offset, uptime: if stands { 0 } else { now } }
    }

    /// A user reserved the named limit.
    pub fn is_limit_reserved(&self) -> bool {
        self.engine.reservations().pauses_limit(LICENCE)
    }

    fn reserve(&mut self, scope: &Scope, ttl: i64, now: i64) -> Result<Answer, Broken> {
        let limits = self.engine.limits();
        if matches!(scope, Scope::Limit(name) if !limits.contains_key(name)) {
            return Ok(Answer::Refused(ErrorCode::NotFound));
        }
        let token_hash = "token".to_owned();
        let reserve = Reserve { scope: scope.clone(), by: "a person", token_hash, ttl_ms: ttl };
        self.about_reservations(reserve, now).map(answer)
    }

    /// Sets or removes the named limit.
    fn set_limit(&mut self, max: Option<i64>, now: i64) -> Result<Answer, Broken> {
        let is_known = match max {
            Some(max) => self.handle(SetLimit { name: LICENCE, max }, now)?.map(|()| true),
            None => self.handle(RemoveLimit { name: LICENCE }, now)?,
        };
        Ok(match is_known {
            Ok(false) => Answer::Refused(ErrorCode::NotFound),
            known => answer(known),
        })
    }

    /// Ends the reservations whose time has come; at boot all of them. Tells whether there were
    /// any.
    pub fn expire(&mut self, at_boot: bool, now: i64) -> Result<bool, Broken> {
        if at_boot && self.sabotage == Some(Sabotage::ReservationsOutliveBoot) {
            return Ok(false);
        }
        let uptime = self.reservation_clocks(now).uptime;
        let any = !self.engine.reservations().due(uptime, at_boot).is_empty();
        let done = self.about_reservations(ExpireReservations { all: at_boot }, now)?;
        done.map(|()| any).map_err(|refused| refused.message)
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
        self.reread(now);
    }

    /// What rows say, and of runners what only memory knows.
    fn reread(&mut self, now: i64) {
        let rows = self.loaded(now);
        self.engine.reread(rows);
        self.load_verdicts();
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

    /// Has the engine carry out a command and writes down what that changed.
    pub(crate) fn handle<C: Command>(
        &mut self,
        command: C,
        now: i64,
    ) -> Result<Result<C::Reply, Refused>, Broken> {
        let done = self.engine.handle(command, self.clocks(now));
        self.write(done, now)
    }

    /// The same with the clock of reservations.
    fn about_reservations<C: Command>(
        &mut self,
        command: C,
        now: i64,
    ) -> Result<Result<C::Reply, Refused>, Broken> {
        let done = self.engine.handle(command, self.reservation_clocks(now));
        self.write(done, now)
    }

    fn write<T>(&mut self, done: Done<T>, now: i64) -> Result<Result<T, Refused>, Broken> {
        let Done { reply, about, changes, .. } = done;
        let flow = about.map_or(0, flow_number);
        for change in changes {
            let told = match &change {
                Change::Event { kind, job: Some(job), .. } => Some((*kind, *job)),
                _ => None,
            };
            self.put(match change {
                Change::Limit(change) => Write::Limit(change),
                Change::Reservation(change) => {
                    Write::Reservation(change, self.clocks(now), self.epoch)
                }
                change => Write::Change(flow, change),
            })?;
            if let Some((kind, job)) = told {
                self.observe(kind, job)?;
            }
        }
        Ok(reply)
    }

    /// Carries a request out. With `fails` its part of the transaction is rolled back.
    pub fn on_request(
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
                    true => self.engine.runners().get(&request.runner_id).map(flow_of),
                    false => self.hear(request.runner_id, now),
                };
                let Some(flow) = flow else { return Ok(Answer::RunnerEnded) };
                self.claim(flow, request, now, nonce)
            }
            Request::Heartbeat(body) => {
                if self.hear(body.runner_id, now).is_none() {
                    return Ok(Answer::RunnerEnded);
                }
                self.heartbeat(body, now)
            }
            Request::ActionDone(runner, action) => {
                let Some(flow) = self.hear(*runner, now) else { return Ok(Answer::RunnerEnded) };
                let done = ReportAction { action: *action, runner: *runner, error: None };
                let known = self.handle(On(workflow_id(flow), done), now)?;
                Ok(known.map_or_else(refused, |()| Answer::ActionKnown(*action)))
            }
            Request::Goodbye(runner) => {
                if let Some(known) = self.engine.runners().get(runner) {
                    let (runner, workflow) = (*runner, known.workflow);
                    let left = self.handle(Leave { runner, workflow, reason: "it leaves" }, now)?;
                    left.map_err(|refused| refused.message)?;
                    self.runner_left(runner, now)?;
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
        let heard = Hear { runner, workflow: None };
        let flow = flow_number(self.engine.handle(heard, self.clocks(now)).reply.ok()?);
        self.heard_wall.insert(runner, now + self.clock_offset);
        Some(flow)
    }

    fn register(
        &mut self,
        slot: usize,
        incarnation: u32,
        key: u64,
        inside: Option<RunnerPlace>,
        now: i64,
    ) -> Result<Answer, Broken> {
        if let Some(at) = self.working.runners.iter().position(|r| r.key == key) {
            return Ok(Answer::Registered(RunnerId(at as i64 + 1)));
        }
        let flow = self.scenario.slots[slot].flow;
        if let Some(inside) = inside
            && let Err(code) = self.runner_arrived(inside, now)?
        {
            return Ok(Answer::Refused(code));
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
        let come = self.handle(RegisterRunner { id, runner: known }, now)?;
        Ok(come.map_or_else(refused, |()| Answer::Registered(id)))
    }

    fn claim(
        &mut self,
        flow: usize,
        request: &ClaimRequest,
        now: i64,
        nonce: u64,
    ) -> Result<Answer, Broken> {
        let (workflow, runner) = (workflow_id(flow), request.runner_id);
        let ended: BTreeSet<AttemptId> =
            request.completed.iter().map(|end| end.attempt.id).collect();
        let mut starts = BTreeMap::new();
        for report in &request.started {
            let is_followed = ended.contains(&report.attempt.id);
            let start = ReportStart { runner, report, is_followed };
            let status = self.handle(On(workflow, start), now)?;
            if is_followed && status.is_ok_and(|status| status.is_some()) {
                starts.insert(report.attempt.id, report.pid);
            }
        }
        let mut completed = Vec::new();
        for report in &request.completed {
            let started = starts.remove(&report.attempt.id);
            completed.push(self.complete(flow, runner, report, started, now)?);
        }
        let is_blind = self.look_away(runner, now);
        let given = self.handle(Claim { workflow, request, nonce }, now)?;
        if is_blind {
            self.reread(now);
        }
        let ClaimAnswer { attempts, actions, cancel, is_complete, is_alone, .. } = match given {
            Ok(given) => given,
            Err(why) => return Ok(refused(why)),
        };
        Ok(Answer::Claimed(Box::new(ClaimResponse {
            attempts: attempts.into_iter().map(|c| self.packet(flow, c)).collect(),
            actions: self.action_packets(runner, actions),
            cancel,
            completed,
            workflow_complete: is_complete,
            is_alone,
            ..ClaimResponse::default()
        })))
    }

    /// The engine forgets for one claim what keeps a runner from work. False: nothing does.
    fn look_away(&mut self, runner: RunnerId, now: i64) -> bool {
        let clocks = self.clocks(now);
        let Some(known) = self.engine.runners().get(&runner) else { return false };
        match self.sabotage {
            Some(Sabotage::ReservationsIgnored) => {
                let all = ExpireReservations { all: true };
                let is_any = !self.engine.reservations().due(0, true).is_empty();
                is_any && self.engine.handle(all, clocks).reply.is_ok()
            }
            Some(Sabotage::QuarantineIgnored) => {
                let is_kept = known.conduct.quarantine().is_some();
                is_kept && self.engine.handle(ReleaseRunner(runner), clocks).reply.is_ok()
            }
            Some(Sabotage::OrdersToRunnersIgnored) => {
                let works = OrderRunner { runner, ordered: None };
                known.ordered.is_some() && self.engine.handle(works, clocks).reply.is_ok()
            }
            _ => false,
        }
    }

    /// What a runner needs to know of an attempt.
    fn packet(&self, flow: usize, claimed: Claimed) -> AttemptPacket {
        let Claimed { job: job_id, attempt: id, token, .. } = claimed;
        let class = self.working.plan(job_id).map(|job| &job.class);
        AttemptPacket {
            id,
            token,
            job_id,
            job_name: String::new(),
            run_id: self.flow(flow).run,
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

    fn action_packets(&mut self, runner: RunnerId, mut ids: Vec<ActionId>) -> Vec<ActionPacket> {
        if self.sabotage == Some(Sabotage::ActionsGivenOnce) {
            ids.retain(|id| self.told_actions.insert((runner, *id)));
        }
        let trigger_of = |id: ActionId| {
            let (flow, index) = self.scenario.place_of_action(id)?;
            Some(self.scenario.flows[flow].actions[index].trigger)
        };
        let packet = |id: ActionId| {
            let what = ActionKind::RunCommands { commands: Vec::new() };
            Some(ActionPacket { id, trigger: trigger_of(id)?, what })
        };
        ids.into_iter().filter_map(packet).collect()
    }

    fn complete(
        &mut self,
        flow: usize,
        runner: RunnerId,
        report: &CompletionReport,
        started: Option<i64>,
        now: i64,
    ) -> Result<ReportResult, Broken> {
        let workflow = workflow_id(flow);
        let (runner, report) = self.forged(flow, runner, report);
        let report = &*report;
        let attempt = &report.attempt;
        let facts = match self.flow(flow).may_report(attempt.id, runner, &attempt.token) {
            None => EndFacts::default(),
            Some(index) => EndFacts {
                found: self.found_items(flow, index, report)?,
                judged: None,
                steps_written: self.steps_known(attempt.id),
            },
        };
        let end = ReportEnd { workflow, runner, report, started, facts };
        let ended = match self.handle(end, now)?.map_err(|refused| refused.message)? {
            Some(Reported { ended, burnt }) => {
                if let Some(burnt) = burnt {
                    self.quarantine(workflow, runner, burnt, now)?;
                }
                ended
            }
            None => return self.late(workflow, runner, report, now),
        };
        let (result, job_status) = (ReportVerdict::Accepted, Some(ended.status));
        Ok(ReportResult { id: attempt.id, result, outcome: ended.outcome, job_status })
    }

    /// The report, or one that speaks for the live attempt of the same job.
    fn forged<'a>(
        &self,
        flow: usize,
        runner: RunnerId,
        report: &'a CompletionReport,
    ) -> (RunnerId, Cow<'a, CompletionReport>) {
        let (workflow, attempt) = (self.flow(flow), &report.attempt);
        let is_its = workflow.may_report(attempt.id, runner, &attempt.token).is_some();
        if self.sabotage == Some(Sabotage::TokensIgnored) && !is_its {
            let job = self.working.attempt(attempt.id).map(|row| row.job);
            let index = job.and_then(|job| workflow.find(job));
            if let Some(held) = index.and_then(|index| workflow.job(index).held()) {
                let attempt = AttemptRef { id: held.attempt, token: held.token.clone() };
                return (held.runner, Cow::Owned(CompletionReport { attempt, ..report.clone() }));
            }
        }
        (runner, Cow::Borrowed(report))
    }

    /// A report about an attempt that is no longer the runner's: known already, or too late.
    fn late(
        &mut self,
        workflow: WorkflowId,
        runner: RunnerId,
        report: &CompletionReport,
        now: i64,
    ) -> Result<ReportResult, Broken> {
        let id = report.attempt.id;
        let known = self.working.attempt(id).map(|row| KnownEnd {
            token: row.claim.as_ref().map(|claim| claim.token.clone()),
            runner: row.runner(),
            state: row.state,
            ended_by: row.end.as_ref().map(|end| end.by),
        });
        let result =
            known.map_or(ReportVerdict::Late, |known| known.verdict(&report.attempt, runner));
        if result == ReportVerdict::Late {
            let noted = self.handle(On(workflow, NoteLateEnd { runner, report }), now)?;
            noted.map_err(|refused| refused.message)?;
        }
        Ok(ReportResult { id, result, outcome: None, job_status: None })
    }

    fn heartbeat(&mut self, body: &Heartbeat, now: i64) -> Result<Answer, Broken> {
        let mut beat = Cow::Borrowed(body);
        if self.sabotage == Some(Sabotage::AbsenceIsProof)
            && let Some(known) = self.engine.runners().get(&body.runner_id)
        {
            let workflow = self.flow(flow_of(known));
            let held = workflow.held_by(body.runner_id).filter_map(|i| workflow.job(i).live());
            let is_listed = |id: &AttemptId| body.held.iter().any(|held| held.id == *id);
            let absent: Vec<AttemptId> = held.filter(|id| !is_listed(id)).collect();
            beat.to_mut().gone.extend(absent);
        }
        let told = body.step_events.iter();
        let written: Vec<u64> = told.map(|told| self.steps_known(told.attempt.id)).collect();
        let answer = self.handle(Beat { beat: &beat, written: &written }, now)?;
        Ok(answer.map_or_else(refused, Answer::Beat))
    }

    /// A runner is gone: its attempts end, its row is closed.
    pub fn end_runner(&mut self, runner: RunnerId, lost: &Lost, now: i64) -> Result<(), Broken> {
        let Some(workflow) = self.engine.runners().get(&runner).map(|known| known.workflow) else {
            return Ok(());
        };
        let reason = &lost.evidence.text;
        let gone = EndRunner { runner, workflow, lost, reason, unbegun: &[] };
        self.handle(gone, now)?.map(drop).map_err(|refused| refused.message)
    }

    fn person(&mut self, flow: usize, wish: &Wish, now: i64) -> Result<Answer, Broken> {
        let id = workflow_id(flow);
        let done = match wish {
            Wish::Reserve(scope, ttl) => return self.reserve(scope, *ttl, now),
            Wish::Renew(id, ttl) => {
                let renew = RenewReservation { id: *id, token_hash: "token", ttl_ms: *ttl };
                self.about_reservations(renew, now)?
            }
            Wish::Release(id) => {
                let release = ReleaseReservation { id: *id, token_hash: Some("token") };
                self.about_reservations(release, now)?
            }
            Wish::Limit(max) => return self.set_limit(*max, now),
            Wish::Order(runner, drain) => {
                let ordered = drain.then_some(RunnerOrder::Drain);
                self.handle(OrderRunner { runner: *runner, ordered }, now)?
            }
            Wish::Initialize => {
                let open = self.flow(flow).counts()[JobStatus::Uninitialized as usize] > 0;
                if !open && self.flow(flow).run > 0 {
                    return Ok(Answer::Refused(ErrorCode::AlreadyInitialized));
                }
                self.handle(On(id, Initialize {}), now)?
            }
            Wish::Reset(seeds) => match self.flow(flow).plan_reset(seeds) {
                Ok(chosen) if chosen.is_empty() => Ok(()),
                Ok(chosen) => self.handle(On(id, Reset { chosen: &chosen }), now)?,
                Err(refused) => Err(refused),
            },
            Wish::Retry { index, run, max } => {
                self.handle(On(id, RetryJob { job: *index, run: *run, max: *max }), now)?
            }
            Wish::Verdict { index, retry, confidence } => {
                return self.verdict(flow, *index, *retry, *confidence, now);
            }
            Wish::Settle(row, accept) => return self.settle_verdict(*row, *accept, now),
            Wish::FromMemory => return self.decide_from_memory(flow, now),
            Wish::Items(map, retry) => self.run_or_drop_items(flow, *map, *retry, now)?,
            Wish::Schedule(slot) => return self.schedule(*slot),
            Wish::GiveUp(id) => return self.give_up(*id, now),
            Wish::Cancel => self.handle(On(id, CancelWorkflow {}), now)?,
            Wish::CancelJob(job) => self.handle(On(id, CancelJob { job: *job }), now)?,
            Wish::Hold(job, held) => {
                self.handle(On(id, HoldJob { job: *job, held: *held }), now)?
            }
            Wish::Disable(job) => self.handle(On(id, DisableJob { job: *job }), now)?,
            Wish::Adjust(job, memory, priority) => {
                let because = Because { attempt: 1, why: "a person says so", by: "a person" };
                let changes = [Adjusted::new(Adjustable::Memory, None, *memory)];
                let adjust = AdjustJob { job: *job, changes: &changes, because };
                let adjusted = self.handle(On(id, adjust), now)?;
                let (job, priority) = (*job, *priority);
                let (why, by) = (None, None);
                adjusted.and(self.handle(On(id, PrioritizeJob { job, priority, why, by }), now)?)
            }
        };
        Ok(answer(done))
    }
}

pub(crate) fn answer<T>(done: Result<T, Refused>) -> Answer {
    done.map_or_else(refused, |_| Answer::Done)
}

fn refused(refused: Refused) -> Answer {
    Answer::Refused(refused.code)
}

fn flow_number(id: WorkflowId) -> usize {
    id.0 as usize - 1
}

/// The workflow of a runner.
pub fn flow_of(known: &KnownRunner) -> usize {
    flow_number(known.workflow)
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
        Change::Allocation(_, life) => {
            sabotage == Sabotage::ArrivalNotWritten && life.status == AllocationStatus::Active
        }
        _ => false,
    }
}

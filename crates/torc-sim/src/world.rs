//! The world: one queue of events, one clock, one stream of chance. No threads, no real time.

use crate::batch::Batch;
use crate::check::{Checker, Truth, same, same_limits, same_runners};
use crate::runner::{Lane, Runner, Tick};
use crate::sabotage::Sabotage;
use crate::scenario::{FaultRates, Scenario, Sight};
use crate::server::{Server, flow_of};
use crate::tables::{FlowRow, Write};
use crate::wire::{Answer, Request};
use crate::witness::Witness;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use torc_engine::{Change, KnownRunner, LEASE_MS, Life, Process, RunnerLife};
use torc_model::api::ClaimRequest;
use torc_model::chance::Rng;
use torc_model::ids::RunnerId;
use torc_model::status::{ActionState, JobStatus};

/// A batch system that does not always answer has told of an end within this time.
const BATCH_TELLS: i64 = 20 * 60_000;

/// Between two looks at the runners.
const SWEEP: i64 = 10_000;

/// A process that was seen gone is taken for dead after this long: until then its children may
/// still be dying.
pub const GUARD: i64 = 5_000;

/// A client gives a call up after this long.
pub const PATIENCE: i64 = 10_000;

/// After faults have stopped, everything must have ended within this time.
const END_WITHIN: i64 = 6 * 3_600_000;

/// Stalls that are longer than the lease and most deadlines, per mille.
const LONG_STALLS: u32 = 150;

/// More events than any honest history has.
const MOST_EVENTS: u64 = 400_000;

/// Who made a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// A runner process, on one of its lanes.
    Runner(usize, u32, Lane),
    /// A user.
    Person,
    /// A program that sends allocations to the batch system.
    Submitter(usize),
    /// A program that looks at the batch system.
    Looker,
}

/// Something that will happen.
#[derive(Debug)]
pub enum Event {
    /// A request reaches the server.
    Arrive(Client, u64, Rc<Request>),
    /// An answer reaches its client.
    Answered(Client, u64, Box<Answer>),
    /// A call failed: refused, broken off or given up.
    Failed(Client, u64),
    /// A claim that waits at the server has waited long enough.
    WaitOver(u64),
    /// A transaction reaches the disk.
    Commit(u32),
    /// The server looks for dead runners.
    Sweep(u32),
    /// The server process starts.
    ServerUp,
    /// A runner's own events.
    Runner(usize, u32, Tick),
    /// The processes of a dead runner are gone.
    Orphans(usize, u32),
    /// The guard of a runner looks at its clock.
    Guard(usize, u32),
    /// A runner process starts.
    RunnerUp(usize),
    /// The server dies.
    ServerCrash,
    /// A runner dies.
    RunnerCrash,
    /// A runner's network is cut.
    Cut,
    /// The server's clock jumps.
    ClockJump,
    /// A runner stands still for a while.
    Stall,
    /// A runner leaves.
    Leave,
    /// A user intervenes.
    People,
    /// A submitter asks what waits to be sent.
    Submitter(usize),
    /// The batch system gets an allocation.
    Sbatch(Client, String, usize),
    /// The batch system may start a job.
    BatchStart(i64),
    /// The node of a batch job fails.
    NodeFails(usize, u32),
    /// A client looks at the batch system.
    Look,
    /// It tells the server what it saw.
    Looked(Rc<Request>),
    /// A user looks after what waits for people.
    Tend,
    /// Faults stop.
    Calm,
}

struct Scheduled {
    at: i64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// What a history consisted of.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Events that happened.
    pub events: u64,
    /// Simulated ms.
    pub time: i64,
    /// Processes that ran.
    pub processes: u64,
    /// Deaths of the server.
    pub server_crashes: u64,
    /// Deaths of runners.
    pub runner_crashes: u64,
    /// Messages that were lost, repeated or late.
    pub messages_hurt: u64,
    /// Commits that failed.
    pub failed_commits: u64,
    /// Interventions of people.
    pub wishes: u64,
}

impl Stats {
    /// Adds another history.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.time += other.time;
        self.processes += other.processes;
        self.server_crashes += other.server_crashes;
        self.runner_crashes += other.runner_crashes;
        self.messages_hurt += other.messages_hurt;
        self.failed_commits += other.failed_commits;
        self.wishes += other.wishes;
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} events in {:.2} simulated years; {} processes, {} server crashes, {} runner crashes, {} messages lost, \
             repeated or late, {} failed commits, {} interventions",
            self.events,
            self.time as f64 / (365.25 * 86_400_000.0),
            self.processes,
            self.server_crashes,
            self.runner_crashes,
            self.messages_hurt,
            self.failed_commits,
            self.wishes,
        )
    }
}

/// A simulated world: server, runners, batch system, network and time.
pub struct World {
    pub(crate) scenario: Rc<Scenario>,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) rng: Rng,
    pub(crate) now: i64,
    pub(crate) server: Server,
    pub(crate) runners: Vec<Runner>,
    pub(crate) witness: Witness,
    pub(crate) batch: Batch,
    pub(crate) checker: Checker,
    pub(crate) record: HistoryRecord,
    /// Faults have stopped.
    pub(crate) is_calm: bool,
    schedule: EventSchedule,
    calls: CallLog,
    commits: GroupCommit,
    /// The beginning of time, for parts that count in instants.
    epoch: Instant,
}

/// What is kept of a history.
pub(crate) struct HistoryRecord {
    pub stats: Stats,
    /// The first rule that was broken.
    violation: Option<String>,
    /// None unless one is wanted.
    trace: Option<Vec<String>>,
}

/// What happens next. Events of the same time happen in the order in which they were planned.
#[derive(Default)]
struct EventSchedule {
    queue: BinaryHeap<Scheduled>,
    order: u64,
}

impl EventSchedule {
    fn push(&mut self, at: i64, event: Event) {
        self.order += 1;
        self.queue.push(Scheduled { at, order: self.order, event });
    }
}

/// Calls that were sent.
#[derive(Default)]
struct CallLog {
    /// How many: each is named by its number.
    count: u64,
    /// Claims that wait at the server for work.
    waiting: Vec<Waiting>,
}

/// The server's group commit: answers go out when what they tell is on disk.
#[derive(Default)]
struct GroupCommit {
    count: u64,
    is_planned: bool,
    replies: Vec<(Client, u64, Answer)>,
}

/// A claim that waits at the server.
struct Waiting {
    client: Client,
    call: u64,
    request: Arc<ClaimRequest>,
    answer: Answer,
}

impl World {
    /// The beginning of the history of this seed.
    pub fn new(seed: u64, sabotage: Option<Sabotage>, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let scenario = Rc::new(Scenario::draw(&mut rng, seed % 4 == 3));
        let mut world = Self {
            sabotage,
            now: 0,
            server: Server::new(scenario.clone(), sabotage),
            runners: scenario.slots.iter().map(|_| Runner::default()).collect(),
            witness: Witness::default(),
            batch: Batch::default(),
            checker: Checker::new(scenario.clone()),
            record: HistoryRecord {
                stats: Stats::default(),
                violation: None,
                trace: trace.then(Vec::new),
            },
            is_calm: false,
            schedule: EventSchedule::default(),
            calls: CallLog::default(),
            commits: GroupCommit::default(),
            epoch: Instant::now(),
            rng,
            scenario,
        };
        world.note(|w| format!("{:#?}", w.scenario));
        world.begin();
        world
    }

    fn begin(&mut self) {
        for slot in 0..self.runners.len() {
            let at = self.rng.range(0, 2_000);
            if self.scenario.slots[slot].sight != Sight::Slurm {
                self.plan(at, Event::RunnerUp(slot));
            }
        }
        self.plan(0, Event::Tend);
        self.begin_batch();
        self.plan(SWEEP, Event::Sweep(1));
        self.plan(self.scenario.faults.until, Event::Calm);
        let scenario = self.scenario.clone();
        let faults = &scenario.faults;
        let kinds = [
            (faults.server_crash, Event::ServerCrash),
            (faults.runner_crash, Event::RunnerCrash),
            (faults.cut, Event::Cut),
            (faults.clock_jump, Event::ClockJump),
            (faults.stall, Event::Stall),
            (faults.leave, Event::Leave),
            (faults.people, Event::People),
        ];
        for (mean, event) in kinds {
            self.plan_fault(mean, event);
        }
    }

    /// Plays until the end. An error is a violation with its trace.
    pub fn play(mut self) -> (Stats, Result<(), String>, Vec<String>) {
        let end = self.scenario.faults.until + END_WITHIN;
        while self.record.violation.is_none() && !self.is_over() {
            let Some(next) = self.schedule.queue.pop() else {
                self.fail("nothing happens any more".into());
                break;
            };
            self.now = next.at;
            self.record.stats.events += 1;
            if self.now > end || self.record.stats.events > MOST_EVENTS {
                self.fail(self.unfinished());
                break;
            }
            self.happen(next.event);
        }
        if self.record.violation.is_none() {
            let last = self.checker.check_acknowledged(&self.server.durable);
            self.demand(last);
            let triggered = self.checker.check_triggers(&self.server.durable);
            self.demand(triggered);
            let learned = self.checker.check_memory(&self.server.durable);
            self.demand(learned);
        }
        self.record.stats.time = self.now;
        self.record.stats.processes = self.witness.processes.len() as u64;
        let HistoryRecord { stats, violation, trace } = self.record;
        (stats, violation.map_or(Ok(()), Err), trace.unwrap_or_default())
    }

    fn is_over(&self) -> bool {
        self.is_calm && self.server.is_up && self.server.pending.is_empty() && self.all_complete()
    }

    fn all_complete(&self) -> bool {
        self.server.durable.flows.iter().all(FlowRow::is_over)
    }

    fn unfinished(&self) -> String {
        let mut stuck = Vec::new();
        for (flow, row) in
            self.server.durable.flows.iter().enumerate().filter(|(_, f)| !f.is_over())
        {
            if row.complete {
                stuck.push(format!(
                    "workflow {flow} has actions that no runner executes: {:?}",
                    row.actions
                ));
            }
            for (index, job) in row.jobs.iter().enumerate().filter(|(_, j)| !j.status.is_final()) {
                let id = row.plan[index].id;
                let live = self.server.durable.live(id);
                let live = live.map(|row| (row.id, row.state, row.not_before));
                stuck.push(format!("job {id} is {} with {live:?}", job.status));
            }
        }
        let limits = self.server.engine.limits();
        let stuck = stuck.join("; ");
        format!("lost job: faults have stopped but the workflows do not end: {stuck}; {limits:?}")
    }

    // ------------------------------------------------------------------------------------------
    // tools

    /// Something happens at this time.
    pub(crate) fn plan(&mut self, at: i64, event: Event) {
        self.schedule.push(at.max(self.now), event);
    }

    fn plan_fault(&mut self, mean: i64, event: Event) {
        if mean > 0 && !self.is_calm {
            let at = self.now + self.rng.wait(mean);
            self.plan(at, event);
        }
    }

    /// Now, for parts that count in instants.
    pub(crate) fn instant(&self) -> Instant {
        self.epoch + Duration::from_millis(self.now.unsigned_abs())
    }

    /// The first millisecond at which this instant has come.
    pub(crate) fn millis(&self, at: Instant) -> i64 {
        let time = at.saturating_duration_since(self.epoch);
        i64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i64::MAX)
    }

    /// Writes a line of the trace, if one is wanted.
    pub(crate) fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.record.trace.is_some() {
            let text = format!("{:>10.3} {}", self.now as f64 / 1000.0, line(self));
            self.record.trace.get_or_insert_default().push(text);
        }
    }

    pub(crate) fn fail(&mut self, what: String) {
        self.note(|_| format!("VIOLATION {what}"));
        self.record.violation.get_or_insert(what);
    }

    pub(crate) fn demand(&mut self, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.fail(what);
        }
    }

    /// Chance of a fault; none once faults have stopped.
    pub(crate) fn hits(&mut self, rate: fn(&FaultRates) -> u32) -> bool {
        !self.is_calm && self.rng.chance(rate(&self.scenario.faults))
    }

    // ------------------------------------------------------------------------------------------
    // network

    /// Sends a request; the number names the call.
    pub(crate) fn send(&mut self, client: Client, request: Rc<Request>) -> u64 {
        self.calls.count += 1;
        let call = self.calls.count;
        self.note(|_| format!("{client:?} #{call} sends {request:?}"));
        if self.is_cut(client) || self.hits(|f| f.drop) {
            self.record.stats.messages_hurt += 1;
            self.note(|_| format!("#{call} is lost"));
            self.plan(self.now + PATIENCE, Event::Failed(client, call));
            return call;
        }
        let at = self.arrival(client, call);
        self.plan(at, Event::Arrive(client, call, request.clone()));
        if self.hits(|f| f.repeat) {
            self.record.stats.messages_hurt += 1;
            let again = self.arrival(client, call);
            self.plan(again, Event::Arrive(client, call, request));
        }
        call
    }

    /// When a message arrives; a client does not wait longer than it has patience.
    fn arrival(&mut self, client: Client, call: u64) -> i64 {
        let mut delay = self.rng.range(1, 20);
        if self.hits(|f| f.late) {
            self.record.stats.messages_hurt += 1;
            delay = self.rng.pick(&[500, 3_000, 20_000, 90_000]);
            if delay >= PATIENCE {
                self.plan(self.now + PATIENCE, Event::Failed(client, call));
            }
        }
        self.now + delay
    }

    fn is_cut(&self, client: Client) -> bool {
        match client {
            Client::Runner(slot, ..) => self.runners[slot].trouble.cut_until > self.now,
            Client::Person | Client::Submitter(_) | Client::Looker => false,
        }
    }

    fn reply(&mut self, client: Client, call: u64, answer: Answer) {
        if self.is_cut(client) || self.hits(|f| f.drop) {
            self.record.stats.messages_hurt += 1;
            self.note(|_| format!("the answer to #{call} is lost"));
            self.plan(self.now + PATIENCE, Event::Failed(client, call));
            return;
        }
        let at = self.arrival(client, call);
        self.plan(at, Event::Answered(client, call, Box::new(answer)));
    }

    // ------------------------------------------------------------------------------------------
    // events

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(client, call, request) => self.on_arrival(client, call, &request),
            Event::Answered(client, call, answer) => match client {
                Client::Runner(..) => self.on_answer(client, call, *answer),
                Client::Submitter(_) => self.on_orders(client, call, *answer),
                Client::Person | Client::Looker => {
                    self.note(|_| format!("#{call} is answered {answer:?}"));
                }
            },
            Event::Failed(client, call) => {
                self.batch.submitters.remove(&call);
                self.on_failed_call(client, call);
            }
            Event::Submitter(submitter) => self.on_submitter(submitter),
            Event::Sbatch(client, name, allocation) => self.on_sbatch(client, &name, allocation),
            Event::BatchStart(job) => self.on_batch_start(job),
            Event::NodeFails(slot, incarnation) => {
                if self.runners[slot].incarnation == incarnation {
                    self.crash_runner(slot);
                }
            }
            Event::Look => self.on_look(),
            Event::Looked(request) => drop(self.send(Client::Looker, request)),
            Event::WaitOver(call) => {
                if let Some(at) = self.calls.waiting.iter().position(|waiting| waiting.call == call)
                {
                    let Waiting { client, answer, .. } = self.calls.waiting.swap_remove(at);
                    self.reply(client, call, answer);
                }
            }
            Event::Commit(epoch) => self.on_commit(epoch),
            Event::Sweep(epoch) => self.on_sweep(epoch),
            Event::ServerUp => self.on_server_up(),
            Event::Runner(slot, incarnation, tick) => self.on_tick(slot, incarnation, tick),
            Event::Orphans(slot, incarnation) => self.witness.end_all(slot, incarnation, self.now),
            Event::Guard(slot, incarnation) => self.on_guard(slot, incarnation),
            Event::RunnerUp(slot) => self.on_runner_up(slot),
            Event::Calm => self.on_calm(),
            Event::Tend => self.tend(),
            Event::ServerCrash
            | Event::RunnerCrash
            | Event::Cut
            | Event::ClockJump
            | Event::Stall
            | Event::Leave
            | Event::People => self.on_fault(event),
        }
    }

    fn on_fault(&mut self, event: Event) {
        if self.is_calm {
            return;
        }
        let slot = self.rng.below(self.runners.len() as u64) as usize;
        let faults = self.scenario.clone();
        let faults = &faults.faults;
        let mean = match event {
            Event::ServerCrash => {
                self.crash_server();
                faults.server_crash
            }
            Event::RunnerCrash => {
                self.crash_runner(slot);
                faults.runner_crash
            }
            Event::Cut => {
                let length = self.rng.pick(&[2_000, 15_000, 45_000, 120_000, 200_000]);
                self.note(|_| format!("the network of slot {slot} is cut for {} s", length / 1000));
                self.runners[slot].trouble.cut_until = self.now + length;
                faults.cut
            }
            Event::ClockJump => {
                let jump = self
                    .rng
                    .pick(&[-3_600_000, -60_000, -2_000, 1_000, 90_000, 3_600_000, 7_200_000]);
                self.note(|_| format!("the server's clock jumps by {} s", jump / 1000));
                self.server.clock_offset += jump;
                faults.clock_jump
            }
            Event::Stall => {
                let long = self.rng.chance(LONG_STALLS);
                let length = if long { 60_000..240_000 } else { 100..30_000 };
                let length = self.rng.range(length.start, length.end);
                self.note(|_| format!("slot {slot} stands still for {length} ms"));
                let until = &mut self.runners[slot].trouble.stalled_until;
                *until = (*until).max((self.now + length).min(faults.until));
                self.checker.stands_still(slot, *until, &self.witness);
                faults.stall
            }
            Event::Leave => {
                self.tick(slot, 0, Tick::Leave);
                faults.leave
            }
            Event::People => {
                self.intervene();
                faults.people
            }
            _ => return,
        };
        self.plan_fault(mean, event);
    }

    fn on_calm(&mut self) {
        self.note(|_| "faults stop".into());
        self.is_calm = true;
        for runner in &mut self.runners {
            runner.trouble.cut_until = 0;
        }
    }

    // ------------------------------------------------------------------------------------------
    // server

    fn crash_server(&mut self) {
        if !self.server.is_up {
            return;
        }
        self.note(|w| format!("the server dies with {} writes pending", w.server.pending.len()));
        self.record.stats.server_crashes += 1;
        self.server.crash();
        self.commits.is_planned = false;
        for (client, call, _) in std::mem::take(&mut self.commits.replies) {
            self.plan(self.now + 5, Event::Failed(client, call));
        }
        for Waiting { client, call, .. } in std::mem::take(&mut self.calls.waiting) {
            self.plan(self.now + 5, Event::Failed(client, call));
        }
        let down = self.rng.pick(&[50, 1_000, 5_000, 30_000, 120_000]);
        self.plan(self.now + down, Event::ServerUp);
    }

    fn on_arrival(&mut self, client: Client, call: u64, request: &Request) {
        if !self.server.is_up {
            self.plan(self.now + 5, Event::Failed(client, call));
            return;
        }
        let fails = self.hits(|f| f.savepoint);
        let nonce = self.rng.word();
        let heard = match request {
            Request::Claim(request, is_woken) => (!is_woken).then_some(request.runner_id),
            Request::Heartbeat(body) => Some(body.runner_id),
            Request::ActionDone(runner, _) => Some(*runner),
            Request::Register { .. }
            | Request::Goodbye(_)
            | Request::Person(..)
            | Request::Begin(_)
            | Request::Submitted { .. }
            | Request::Observed(_) => None,
        };
        if let Some(runner) = heard.filter(|r| self.server.engine.runners().contains_key(r)) {
            self.checker.heard.insert(runner, self.now);
        }
        let answer = match self.server.on_request(request, self.now, nonce, fails) {
            Ok(answer) => answer,
            Err(what) => return self.fail(format!("schema: {what}")),
        };
        self.note(|_| format!("the server takes #{call}: {answer:?}"));
        if let (Request::Claim(request, _), Answer::Claimed(given)) = (request, &answer)
            && request.wait_seconds > 0.0
            && given.attempts.is_empty()
            && given.actions.is_empty()
            && given.cancel.is_empty()
            && !given.workflow_complete
            && request.is_alone == Some(given.is_alone)
        {
            let request = request.clone();
            let wait = (request.wait_seconds * 1000.0) as i64;
            self.calls.waiting.push(Waiting { client, call, request, answer });
            self.plan(self.now + wait, Event::WaitOver(call));
        } else if self.sabotage == Some(Sabotage::AnswersBeforeCommit) {
            self.reply(client, call, answer);
        } else {
            self.commits.replies.push((client, call, answer));
        }
        self.plan_commit();
    }

    fn plan_commit(&mut self) {
        if !self.commits.is_planned {
            self.commits.is_planned = true;
            let at = self.now + self.rng.range(1, 15);
            self.plan(at, Event::Commit(self.server.epoch));
        }
    }

    fn on_commit(&mut self, epoch: u32) {
        if !self.server.is_up || epoch != self.server.epoch {
            return;
        }
        self.commits.is_planned = false;
        if self.hits(|f| f.crash_at_commit) {
            if self.rng.chance(500) {
                self.commit();
            }
            return self.crash_server();
        }
        if self.hits(|f| f.commit) {
            self.note(|_| "the commit fails".into());
            self.record.stats.failed_commits += 1;
            self.server.forget(self.now);
            for (client, call, _) in std::mem::take(&mut self.commits.replies) {
                self.reply(client, call, Answer::Broken);
            }
            return;
        }
        let ready = self.commit();
        for (client, call, answer) in std::mem::take(&mut self.commits.replies) {
            self.reply(client, call, answer);
        }
        if ready {
            self.wake();
        }
    }

    /// Something happened that claims wait for: they are looked at again.
    fn wake(&mut self) {
        for Waiting { client, call, request, .. } in std::mem::take(&mut self.calls.waiting) {
            let at = self.now + self.rng.range(1, 5);
            self.plan(at, Event::Arrive(client, call, Rc::new(Request::Claim(request, true))));
        }
    }

    /// Writes to disk and checks what became durable. Tells whether a job became ready.
    fn commit(&mut self) -> bool {
        let mut ready = false;
        let writes = std::mem::take(&mut self.server.pending);
        for write in &writes {
            if let Err(what) = self.server.durable.write(&self.scenario, write) {
                self.fail(format!("schema: {what}"));
                return false;
            }
            ready |= matches!(
                write,
                Write::Change(
                    _,
                    Change::Job { status: JobStatus::Ready, .. }
                        | Change::AttemptCancelRequested(_)
                        | Change::Action { state: ActionState::Triggered, .. }
                )
            );
            let truth = Truth {
                durable: &self.server.durable,
                witness: &self.witness,
                server: &self.server,
                batch: &self.batch,
                now: self.now,
            };
            let verdict = self.checker.on_write(write, truth);
            self.demand(verdict);
        }
        self.server.committed();
        if !writes.is_empty() {
            let verdict = self.checker.on_commit(&self.server.durable);
            self.demand(verdict);
        }
        self.commits.count += 1;
        if self.commits.count.is_multiple_of(8) {
            self.compare();
        }
        ready
    }

    /// The engine must be what a restart would make of the rows.
    fn compare(&mut self) {
        for flow in 0..self.scenario.flows.len() {
            let restored = self.server.restored(&self.server.durable, flow);
            let verdict = same(self.server.flow(flow), &restored);
            self.demand(verdict);
        }
        let verdict = same_limits(&self.server);
        self.demand(verdict);
        let verdict = same_runners(&self.server);
        self.demand(verdict);
    }

    fn on_server_up(&mut self) {
        self.server.boot(self.now);
        self.note(|w| format!("the server starts, process {}", w.server.epoch));
        let verdict = self.checker.check_acknowledged(&self.server.durable);
        self.demand(verdict);
        // One transaction per runner; the server may die between two of them.
        for (runner, life) in self.judged(&self.server, true) {
            let Life::Dead(lost) = life else { continue };
            self.note(|_| format!("recovery ends runner {runner}: {}", lost.evidence.text));
            if let Err(what) = self.server.end_runner(runner, &lost, self.now) {
                return self.fail(format!("schema: {what}"));
            }
            self.commit();
            if self.hits(|f| f.crash_at_commit) {
                return self.crash_server();
            }
        }
        match self.server.expire(true, self.now) {
            Ok(_) => {
                self.commit();
            }
            Err(what) => return self.fail(format!("schema: {what}")),
        }
        let verdict = self.checker.check_boot(&self.server);
        self.demand(verdict);
        self.recover_again();
        self.compare();
        self.plan(self.now + SWEEP, Event::Sweep(self.server.epoch));
    }

    /// A second recovery, from the rows that the first one left, finds nothing to do.
    fn recover_again(&mut self) {
        let again = self.server.twin(self.now);
        for (runner, life) in self.judged(&again, true) {
            if let Life::Dead(lost) = life {
                let what = lost.evidence.text;
                return self.fail(format!(
                    "recovery is not idempotent: it would end runner {runner} again: {what}"
                ));
            }
        }
    }

    fn on_sweep(&mut self, epoch: u32) {
        if !self.server.is_up || epoch != self.server.epoch {
            return;
        }
        for (runner, life) in self.judged(&self.server, false) {
            let Life::Dead(lost) = life else { continue };
            self.note(|_| format!("the sweep ends runner {runner}: {}", lost.evidence.text));
            if let Err(what) = self.server.end_runner(runner, &lost, self.now) {
                return self.fail(format!("schema: {what}"));
            }
            self.plan_commit();
        }
        match self.server.expire(false, self.now) {
            Ok(true) => self.plan_commit(),
            Ok(false) => {}
            Err(what) => return self.fail(format!("schema: {what}")),
        }
        if self.is_calm && self.now > self.scenario.faults.until + 120_000 {
            self.check_actions();
        }
        // Commits may fail a few times in a row.
        let verdict = self.checker.check_reservations(&self.server, self.now - 8 * SWEEP);
        self.demand(verdict);
        let slots = self.scenario.clone();
        let verdict = self.checker.check_ghosts(&self.server, self.now, |slot, disown| match slots
            .slots[slot]
            .sight
        {
            Sight::Local => GUARD + 8 * SWEEP,
            Sight::Remote => disown + 8 * SWEEP,
            Sight::Slurm => BATCH_TELLS,
        });
        self.demand(verdict);
        self.plan(self.now + SWEEP, Event::Sweep(epoch));
    }

    /// What the server thinks of its runners.
    fn judged(&self, server: &Server, at_boot: bool) -> Vec<(RunnerId, Life)> {
        if self.sabotage == Some(Sabotage::NoSweep) {
            return Vec::new();
        }
        let judge = |(id, known): (&RunnerId, &KnownRunner)| {
            let (flow, Some(row)) = (flow_of(known), server.working.runner(*id)) else {
                return (*id, Life::Alive);
            };
            let by_wall = self.sabotage == Some(Sabotage::WallClockLeases);
            let died = self.checker.ended.get(&(row.slot, row.incarnation));
            let guard =
                if self.sabotage == Some(Sabotage::EvidenceActsTooSoon) { 0 } else { GUARD };
            let gone_for = died.map(|at| self.now - at);
            let sight = self.scenario.slots[row.slot].sight;
            let process = match (sight, gone_for) {
                (Sight::Local, Some(ms)) if ms >= guard => Process::Gone,
                (Sight::Local, _) => Process::Alive,
                (Sight::Remote | Sight::Slurm, _) => Process::Unknown,
            };
            let disown = self.scenario.flows[flow].disown();
            let life = RunnerLife {
                host: &known.host,
                pid: known.pid,
                last_seen: match by_wall {
                    true => server.heard_wall(*id),
                    false => known.heard.unwrap_or(server.booted),
                },
                server_boot: if by_wall { 0 } else { server.booted },
                lease: LEASE_MS,
                disown: Some(match self.sabotage {
                    Some(Sabotage::LeaseKills) => LEASE_MS,
                    _ => disown,
                }),
                process: if at_boot && self.sabotage == Some(Sabotage::BootKills) {
                    Process::Gone
                } else {
                    process
                },
                in_allocation: sight == Sight::Slurm,
            };
            (*id, life.judge(if by_wall { self.now + server.clock_offset } else { self.now }))
        };
        server.engine.runners().iter().map(judge).collect()
    }
}

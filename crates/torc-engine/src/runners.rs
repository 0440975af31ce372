//! The runners that have not ended: what is known of each, what may be given to it, and what it was
//! given.
//!
//! What happens to a runner is a [`RunnerEvent`]; [`Runners::step`] changes what is known and answers
//! with the rows to write. The rest (when a runner was heard, which orders it has, which actions an
//! answer brought it) is kept in memory only: after a restart a runner may be told twice, never
//! once too few.

use super::actions::Action;
use super::change::{Change, RunnerChange};
use super::claim::{Claimed, Limits};
use super::conduct::{Burnt, Conduct, Gate, Quarantine};
use super::liveness::{Holdup, LEASE_MS};
use super::reservations::Clocks;
use super::workflow::{Refused, Workflow};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use torc_model::api::{AttemptRef, Capacity, ErrorCode, Heartbeat, HeartbeatAnswer, ReportVerdict};
use torc_model::event::EventKind;
use torc_model::ids::{ActionId, AttemptId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::status::{ActionState, AttemptState, Cause, EndedBy, RunnerOrder, Trigger};

/// A claimed attempt that its runner does not list after this long never reached it.
const FORGOTTEN_MS: i64 = 30_000;

/// An action that was not reported this long after it was given is given again.
const ACTION_FORGOTTEN_MS: i64 = 30_000;

/// Claims whose actions are remembered: a runner has two of them on the way at once.
const REMEMBERED_ACTIONS: usize = 64;

/// A runner that spoke within this time is alive, whatever a batch system thinks.
const QUIET_MS: i64 = 30_000;

/// The server executes actions that ask for nodes itself.
const SCHEDULES_NODES: bool = false;

/// A runner that has not ended.
#[derive(Clone, PartialEq, Debug)]
pub struct KnownRunner {
    /// Its workflow.
    pub workflow: WorkflowId,
    /// Host name.
    pub host: String,
    /// Its process, on its host.
    pub pid: i64,
    /// What it said it has, last time.
    pub capacity: Capacity,
    /// It must stop at this time.
    pub stop_by: Option<i64>,
    /// The scheduler of a batch system that it was started for.
    pub scheduler: Option<i64>,
    /// Its label.
    pub label: Option<String>,
    /// The pool runner that started it.
    pub pool: Option<PoolRunnerId>,
    /// This server's last word from it, by uptime.
    pub heard: Option<i64>,
    /// It gives back what it was stopped in and wants nothing more, although an earlier request of
    /// it may still wait.
    pub leaving: bool,
    /// What a person asked of it.
    pub ordered: Option<RunnerOrder>,
    /// What its latest attempts tell about its machine, and whether it gets work.
    pub conduct: Conduct,
    /// What stands in the way of an end of what it holds, as the last sweep saw it.
    pub holdup: Option<Holdup>,
    /// What answers have brought it.
    pub answers: Answers,
}

/// What answers have brought a runner.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answers {
    /// Orders to stop; a heartbeat repeats them all the same.
    told: BTreeSet<AttemptId>,
    /// It has had its `on_worker_start` actions.
    is_greeted: bool,
    /// The last actions, with the key of the claim and when: a repeat gets them again.
    given: VecDeque<(String, ActionId, i64)>,
}

impl KnownRunner {
    /// One that has just registered.
    pub fn new(workflow: WorkflowId, host: String, pid: i64, capacity: Capacity) -> Self {
        Self {
            workflow,
            host,
            pid,
            capacity,
            stop_by: None,
            scheduler: None,
            label: None,
            pool: None,
            heard: None,
            leaving: false,
            ordered: None,
            conduct: Conduct::default(),
            holdup: None,
            answers: Answers::default(),
        }
    }

    /// As its row says after a restart, which does not tell what an earlier server gave it.
    pub fn restored(
        mut self,
        quarantine: Option<Quarantine>,
        ordered: Option<RunnerOrder>,
    ) -> Self {
        self.conduct = Conduct::restored(quarantine);
        self.ordered = ordered;
        self.answers = Answers { is_greeted: true, ..Answers::default() };
        self
    }

    /// A claim that does not wait says whether it wants work. One that wants none and reports an
    /// attempt that was stopped is leaving, until it asks again.
    pub fn asks(&mut self, limit: i64, mut causes: impl Iterator<Item = Option<Cause>>) {
        let was_stopped = causes.any(|cause| cause.is_some_and(Cause::is_stop));
        self.leaving = limit <= 0 && (self.leaving || was_stopped);
    }

    /// Of these orders to stop those that no answer has brought it yet; they count as told.
    pub fn untold(&mut self, orders: Vec<AttemptId>) -> Vec<AttemptId> {
        let told = &mut self.answers.told;
        told.retain(|told| orders.contains(told));
        orders.into_iter().filter(|order| told.insert(*order)).collect()
    }

    /// Begins the actions of a claim's answer. The answer may get lost: the repeat gets the same
    /// actions again, and so does the first claim after a restart of the server, and any claim after
    /// a while, for a claim may be answered twice and only one of the answers be heard. A runner does
    /// not begin what it is executing.
    pub fn begin_actions(
        &mut self,
        id: RunnerId,
        workflow: &Workflow,
        key: &str,
        uptime: i64,
    ) -> GivenActions {
        let is_new = !std::mem::replace(&mut self.answers.is_greeted, true);
        let given = &self.answers.given;
        let is_repeated =
            |action: ActionId| given.iter().any(|(of, a, _)| of == key && *a == action);
        let is_fresh = |action: ActionId| {
            given.iter().any(|(_, a, at)| *a == action && *at > uptime - ACTION_FORGOTTEN_MS)
        };
        let again = |a: &&Action| {
            let is_its_own = a.state == ActionState::Claimed && a.by == Some(id);
            (is_its_own && !is_fresh(a.id)) || ((is_its_own || a.persistent) && is_repeated(a.id))
        };
        GivenActions { ids: workflow.actions().filter(again).map(|a| a.id).collect(), is_new }
    }

    /// Remembers what the answer of a claim brings.
    pub fn gave_actions(&mut self, key: &str, ids: &[ActionId], uptime: i64) {
        let given = &mut self.answers.given;
        given.extend(ids.iter().map(|id| (key.to_owned(), *id, uptime)));
        let surplus = given.len().saturating_sub(REMEMBERED_ACTIONS);
        given.drain(..surplus);
    }
}

/// Actions that an answer brings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GivenActions {
    /// Which.
    pub ids: Vec<ActionId>,
    /// The runner has not had any yet, so that those for a runner that begins are added.
    is_new: bool,
}

/// What happens to a runner.
#[derive(Clone, PartialEq, Debug)]
pub enum RunnerEvent {
    /// It tells that it is alive.
    Beat,
    /// A person asks something of it; None: that it works.
    Ordered(Option<RunnerOrder>),
    /// Its machine gets no work for a while. So many attempts were given back to their jobs, and so
    /// many of these are queued again.
    Quarantined(Quarantine, usize, usize),
    /// Its quarantine is over.
    Released,
    /// It has ended, for this reason, and so many attempts with it.
    Ended(String, usize),
}

/// All runners that have not ended, by id and by workflow: a claim looks at those of its own
/// workflow, however many serve others.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Runners {
    all: BTreeMap<RunnerId, KnownRunner>,
    by_workflow: BTreeMap<WorkflowId, BTreeSet<RunnerId>>,
    /// Those that have ended since the last commit. Should that be taken back, they were last heard
    /// when they were.
    ended: BTreeMap<RunnerId, KnownRunner>,
}

impl Runners {
    /// One of them.
    pub fn get(&self, id: &RunnerId) -> Option<&KnownRunner> {
        self.all.get(id)
    }

    /// One of them, to be changed; its workflow stays.
    pub fn get_mut(&mut self, id: &RunnerId) -> Option<&mut KnownRunner> {
        self.all.get_mut(id)
    }

    /// It is there.
    pub fn contains_key(&self, id: &RunnerId) -> bool {
        self.all.contains_key(id)
    }

    /// All, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&RunnerId, &KnownRunner)> {
        self.all.iter()
    }

    /// One has spoken a moment ago. A node that its batch system does not reach goes on with its jobs.
    pub fn has_just_spoken(&self, id: &RunnerId, uptime: i64) -> bool {
        let heard = self.all.get(id).and_then(|known| known.heard);
        heard.is_some_and(|heard| uptime - heard < QUIET_MS)
    }

    /// Those of a workflow, in the order in which they came.
    pub fn of(&self, id: WorkflowId) -> impl Iterator<Item = (RunnerId, &KnownRunner)> {
        let ids = self.by_workflow.get(&id).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Workflows that have a runner, in the order of their ids.
    pub fn workflows(&self) -> BTreeSet<WorkflowId> {
        self.by_workflow.keys().copied().collect()
    }

    /// One that its row tells of.
    pub fn insert(&mut self, id: RunnerId, runner: KnownRunner) {
        self.by_workflow.entry(runner.workflow).or_default().insert(id);
        self.all.insert(id, runner);
    }

    /// One has come. Answers with what to write, and whether another one that was alone should hear
    /// that it no longer is: what it holds may go to this one.
    pub fn come(&mut self, id: RunnerId, runner: KnownRunner) -> (Vec<Change>, bool) {
        let data = json!({"runner_id": id, "hostname": runner.host, "pid": runner.pid});
        let workflow = runner.workflow;
        self.insert(id, runner);
        let others = self.of(workflow).filter(|(other, known)| *other != id && !known.leaving);
        let was_alone = others.take(2).count() == 1;
        (vec![Change::Event { kind: EventKind::RunnerStarted, job: None, data }], was_alone)
    }

    /// A runner that says something about this workflow, or about its own.
    pub fn hear(
        &mut self,
        id: RunnerId,
        workflow: Option<WorkflowId>,
        uptime: i64,
    ) -> Result<&mut KnownRunner, Refused> {
        match self.all.get_mut(&id) {
            Some(runner) if workflow.is_none_or(|w| w == runner.workflow) => {
                runner.heard = Some(uptime);
                Ok(runner)
            }
            Some(_) => Err(Refused::new(
                ErrorCode::WrongWorkflow,
                format!("runner {id} works for another workflow"),
            )),
            None => Err(unknown(id)),
        }
    }

    /// One of them, or why it is not there.
    pub fn find(&self, id: RunnerId) -> Result<&KnownRunner, Refused> {
        self.all.get(&id).ok_or_else(|| unknown(id))
    }

    /// Takes in what happens to a runner; answers with what to write. To one that has ended nothing
    /// happens.
    pub fn step(&mut self, id: RunnerId, event: RunnerEvent) -> Vec<Change> {
        let Some(runner) = self.all.get_mut(&id) else { return Vec::new() };
        let row = |change| Change::Runner(id, change);
        let told = |kind, data| Change::Event { kind, job: None, data };
        match event {
            RunnerEvent::Beat => vec![row(RunnerChange::Seen)],
            RunnerEvent::Ordered(ordered) => {
                runner.ordered = ordered;
                vec![row(RunnerChange::Ordered(ordered))]
            }
            RunnerEvent::Quarantined(kept, refunded, again) => {
                runner.conduct.keep_away(kept.clone());
                let data = json!({
                    "runner_id": id, "hostname": runner.host, "why": kept.why,
                    "until_ms": kept.until, "refunded": refunded, "queued_again": again,
                });
                let kept = row(RunnerChange::Quarantine(Some(kept)));
                vec![kept, told(EventKind::RunnerQuarantined, data)]
            }
            RunnerEvent::Released => {
                if !runner.conduct.release() {
                    return Vec::new();
                }
                let data = json!({"runner_id": id, "hostname": runner.host});
                let free = row(RunnerChange::Quarantine(None));
                vec![free, told(EventKind::RunnerTriedAgain, data)]
            }
            RunnerEvent::Ended(reason, attempts) => {
                self.remove(id);
                let data = json!({"runner_id": id, "reason": reason, "attempts_ended": attempts});
                vec![row(RunnerChange::Ended(reason)), told(EventKind::RunnerEnded, data)]
            }
        }
    }

    /// One is gone with its row.
    pub fn remove(&mut self, id: RunnerId) {
        let Some(runner) = self.all.remove(&id) else { return };
        if let Some(ids) = self.by_workflow.get_mut(&runner.workflow) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_workflow.remove(&runner.workflow);
            }
        }
        self.ended.insert(id, runner);
    }

    /// What was done so far is on disk.
    pub fn committed(&mut self) {
        self.ended.clear();
    }

    /// As the rows say after something was taken back: who is there, and what keeps each from work.
    /// What only memory knows stays: when a runner was heard, and what answers have brought it.
    pub fn reread(self, rows: Self) -> Self {
        let Self { mut all, mut ended, .. } = self;
        let mut fresh = rows;
        for (id, runner) in &mut fresh.all {
            if let Some(known) = all.remove(id).or_else(|| ended.remove(id)) {
                let KnownRunner { conduct, ordered, .. } = runner.clone();
                *runner = KnownRunner { conduct, ordered, ..known };
            }
        }
        // The rows may be those of a transaction that goes on, and fails as a whole in the end.
        fresh.ended = ended;
        fresh
    }

    /// No other runner of the workflow could take what this one holds.
    pub fn is_alone(&self, id: WorkflowId, runner: RunnerId) -> bool {
        !self.of(id).any(|(other, known)| other != runner && !known.leaving)
    }

    /// None of the ready jobs is for the runner that asks with this capacity, nor for another one
    /// that is there.
    pub fn no_runner_takes(
        &self,
        workflow: &Workflow,
        asks: RunnerId,
        capacity: &Capacity,
    ) -> bool {
        let label = self.get(&asks).and_then(|runner| runner.label.as_deref());
        let is_for_others = match label {
            None => !workflow.has_ready_for(capacity, None),
            // A runner with a label was started for certain jobs and may be there before those who do
            // the rest.
            Some(_) => workflow.never_fits(capacity),
        };
        let takes_work = |(other, runner): &(RunnerId, &KnownRunner)| {
            *other != asks && !runner.leaving && runner.ordered.is_none()
        };
        is_for_others
            && self.of(workflow.id).filter(takes_work).all(|(_, runner)| {
                !workflow.has_ready_for(&runner.capacity, runner.label.as_deref())
            })
    }

    /// Runners of this workflow on other machines that are there and get work.
    fn elsewhere<'a>(
        &'a self,
        id: WorkflowId,
        host: &'a str,
        uptime: i64,
    ) -> impl Iterator<Item = &'a KnownRunner> {
        self.of(id).map(|(_, other)| other).filter(move |other| {
            let is_there = other.heard.is_some_and(|heard| heard >= uptime - LEASE_MS);
            other.host != host && other.conduct.quarantine().is_none() && is_there
        })
    }

    /// The runners on the same machine, when there are others on other machines that a retry may
    /// prefer.
    pub fn neighbours(&self, id: WorkflowId, host: &str, uptime: i64) -> Vec<RunnerId> {
        if self.elsewhere(id, host, uptime).next().is_none() {
            return Vec::new();
        }
        self.of(id).filter(|(_, other)| other.host == host).map(|(id, _)| id).collect()
    }

    /// Takes in how an attempt ended on a runner and draws the conclusion about its machine.
    pub fn judge(
        &mut self,
        runner: RunnerId,
        (job, attempt): (JobId, AttemptId),
        (cause, seconds): (Option<Cause>, f64),
        clocks: Clocks,
    ) -> Option<Burnt> {
        let known = self.all.get_mut(&runner)?;
        if !known.conduct.ended(job, attempt, cause, seconds) {
            return None;
        }
        let known = self.all.get(&runner)?;
        let others = self.elsewhere(known.workflow, &known.host, clocks.uptime);
        let successes = others.map(|other| other.conduct.successes()).sum();
        known.conduct.judge(successes, clocks.now)
    }

    /// Whether a runner may be given work as far as its machine goes. When its time is over it is
    /// tried again: the second answer is what to write.
    pub fn gate(&mut self, id: RunnerId, now: i64) -> (Gate, Vec<Change>) {
        match self.get(&id).map_or(Gate::Open, |known| known.conduct.gate(now)) {
            Gate::Over => (Gate::Open, self.step(id, RunnerEvent::Released)),
            gate => (gate, Vec::new()),
        }
    }
}

fn unknown(id: RunnerId) -> Refused {
    let message = format!("runner {id} is not known or has ended");
    Refused::new(ErrorCode::RunnerEnded, message).hint("register again")
}

impl Workflow {
    /// The rest of the actions that the answer to a runner's claim brings: what is triggered goes to
    /// the runner that asks first.
    pub fn give_actions(&mut self, runner: RunnerId, given: &mut GivenActions) {
        if !given.is_new && !self.has_triggered_action(SCHEDULES_NODES) {
            return;
        }
        given.ids.extend(self.claim_actions(runner, SCHEDULES_NODES));
        if given.is_new {
            let starts = self.worker_actions(runner, Trigger::OnWorkerStart, SCHEDULES_NODES);
            given.ids.extend(starts);
        }
    }

    /// Actions that a runner executes before it leaves.
    pub fn last_actions(&mut self, runner: RunnerId) -> Vec<ActionId> {
        self.worker_actions(runner, Trigger::OnWorkerComplete, SCHEDULES_NODES)
    }

    /// What a claim was given whose answer was lost.
    pub fn claimed_with(&self, runner: RunnerId, key: &str) -> Vec<Claimed> {
        let of_key = |index| {
            let job = self.job(index);
            let held = job.held().filter(|held| held.key == key)?;
            Some(Claimed {
                index,
                job: job.id(),
                attempt: held.attempt,
                number: job.attempt(),
                token: held.token.clone(),
            })
        };
        self.held_by(runner).filter_map(of_key).collect()
    }

    /// What a runner lists, against what it was given. What never reached it is queued again once it
    /// has said so itself.
    pub fn heartbeat(
        &mut self,
        beat: &Heartbeat,
        limits: &mut Limits,
        now: i64,
    ) -> HeartbeatAnswer {
        let runner = beat.runner_id;
        for attempt in &beat.gone {
            self.never_arrived(runner, *attempt, limits, now);
        }
        let is_its = |a: &AttemptRef| self.may_report(a.id, runner, &a.token).is_some();
        let is_listed = |id: &AttemptId| beat.held.iter().any(|a| a.id == *id);
        let forgotten = self.claimed_before(runner, now - FORGOTTEN_MS);
        HeartbeatAnswer {
            cancel: self.orders_for(runner),
            not_yours: beat.held.iter().filter(|a| !is_its(a)).map(|a| a.id).collect(),
            forgotten: forgotten.into_iter().filter(|id| !is_listed(id)).collect(),
        }
    }
}

/// An attempt that is not the reporting runner's any more, as its row says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownEnd {
    /// Its fencing token.
    pub token: Option<String>,
    /// The runner that had it.
    pub runner: Option<RunnerId>,
    /// Where it stands.
    pub state: AttemptState,
    /// Who or what ended it.
    pub ended_by: Option<EndedBy>,
}

impl KnownEnd {
    /// What a report about it is worth: a repeat of what is known, or too late. Unless its runner
    /// ended it, the runner's report came too late.
    pub fn verdict(&self, report: &AttemptRef, runner: RunnerId) -> ReportVerdict {
        let is_its =
            self.token.as_deref() == Some(report.token.as_str()) && self.runner == Some(runner);
        let is_known = !self.state.is_live() && self.ended_by == Some(EndedBy::Runner);
        if is_its && is_known { ReportVerdict::Repeated } else { ReportVerdict::Late }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: WorkflowId = WorkflowId(1);

    fn runner(host: &str) -> KnownRunner {
        KnownRunner::new(FLOW, host.into(), 7, Capacity::default())
    }

    fn two() -> Runners {
        let mut runners = Runners::default();
        assert!(!runners.come(RunnerId(1), runner("a")).1, "no other is there");
        assert!(runners.come(RunnerId(2), runner("b")).1, "the first was alone");
        runners
    }

    #[test]
    fn only_runners_that_are_there_are_heard_and_only_about_their_workflow() {
        let mut runners = two();
        assert!(runners.hear(RunnerId(1), Some(FLOW), 5).is_ok());
        let refused = runners.hear(RunnerId(1), Some(WorkflowId(2)), 6).expect_err("not its own");
        assert_eq!(refused.code, ErrorCode::WrongWorkflow);
        runners.step(RunnerId(1), RunnerEvent::Ended("it left".into(), 0));
        let refused = runners.hear(RunnerId(1), None, 7).expect_err("it has ended");
        assert_eq!(refused.code, ErrorCode::RunnerEnded);
        assert!(runners.is_alone(FLOW, RunnerId(2)));
    }

    #[test]
    fn what_is_taken_back_leaves_when_a_runner_was_heard() {
        let mut runners = two();
        runners.hear(RunnerId(1), None, 50).expect("it is there");
        let rows = two();
        // The workflow is deleted, an order is given, and the commit fails.
        runners.step(RunnerId(2), RunnerEvent::Ordered(Some(RunnerOrder::Drain)));
        runners.remove(RunnerId(1));
        let mut runners = runners.reread(rows.clone());
        assert_eq!(runners.get(&RunnerId(1)).and_then(|known| known.heard), Some(50));
        assert_eq!(runners.get(&RunnerId(2)).and_then(|known| known.ordered), None);
        // It ends, a later request of the same transaction is taken back, and then all of it.
        runners.step(RunnerId(1), RunnerEvent::Ended("it is gone".into(), 0));
        let mut without = rows.clone();
        without.remove(RunnerId(1));
        let mut runners = runners.reread(without).reread(rows.clone());
        assert_eq!(runners.get(&RunnerId(1)).and_then(|known| known.heard), Some(50));
        // One that ended in what is on disk is not remembered.
        runners.remove(RunnerId(1));
        runners.committed();
        let runners = runners.reread(rows);
        assert_eq!(runners.get(&RunnerId(1)).and_then(|known| known.heard), None);
    }

    #[test]
    fn a_runner_that_gives_back_what_was_stopped_leaves_until_it_asks_again() {
        let mut known = runner("a");
        known.asks(0, [None].into_iter());
        assert!(!known.leaving, "it wants nothing at the moment");
        known.asks(0, [Some(Cause::Stopped)].into_iter());
        assert!(known.leaving);
        known.asks(0, [None].into_iter());
        assert!(known.leaving);
        known.asks(1, [None].into_iter());
        assert!(!known.leaving);
    }

    #[test]
    fn an_order_is_told_once_for_as_long_as_it_stands() {
        let mut known = runner("a");
        let orders = vec![AttemptId(1), AttemptId(2)];
        assert_eq!(known.untold(orders.clone()), orders);
        assert_eq!(known.untold(orders), []);
        assert_eq!(known.untold(vec![AttemptId(2)]), []);
        assert_eq!(known.untold(vec![AttemptId(1)]), [AttemptId(1)], "it was taken back once");
    }

    #[test]
    fn only_the_runner_that_ended_an_attempt_may_repeat_its_report() {
        let report = AttemptRef { id: AttemptId(1), token: "t".into() };
        let known = KnownEnd {
            token: Some("t".into()),
            runner: Some(RunnerId(1)),
            state: AttemptState::Failed,
            ended_by: Some(EndedBy::Runner),
        };
        assert_eq!(known.verdict(&report, RunnerId(1)), ReportVerdict::Repeated);
        for late in [
            KnownEnd { token: Some("u".into()), ..known.clone() },
            KnownEnd { runner: Some(RunnerId(2)), ..known.clone() },
            KnownEnd { state: AttemptState::Running, ..known.clone() },
            KnownEnd { ended_by: None, ..known.clone() },
        ] {
            assert_eq!(late.verdict(&report, RunnerId(1)), ReportVerdict::Late, "{late:?}");
        }
    }

    #[test]
    fn a_quarantine_ends_with_its_time_and_is_written_once() {
        let mut runners = two();
        let kept = Quarantine { why: "its jobs fail at once".into(), until: 100 };
        let changes = runners.step(RunnerId(1), RunnerEvent::Quarantined(kept.clone(), 3, 2));
        let row = Change::Runner(RunnerId(1), RunnerChange::Quarantine(Some(kept)));
        assert_eq!(changes.first(), Some(&row));
        assert!(matches!(runners.gate(RunnerId(1), 99), (Gate::Closed { seconds: 1, .. }, _)));
        let (gate, changes) = runners.gate(RunnerId(1), 100);
        assert_eq!((gate, changes.len()), (Gate::Open, 2));
        assert_eq!(runners.step(RunnerId(1), RunnerEvent::Released), []);
    }
}

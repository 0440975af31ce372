//! The one writer: it has the connection and the engine's state, and commits in groups.
//!
//! ```text
//!   callers ──► channel ──► [BEGIN · savepoint+work · savepoint+work · … · COMMIT] ──► replies, wake-ups, events
//! ```
//!
//! Requests that arrive while a commit is under way share the next one, so that one flush serves
//! many; an idle server commits at once. No caller gets an answer before the commit is on disk.
//! When a request's SQL fails, its savepoint is rolled back and the engine's copy of the workflow
//! is thrown away: the next request loads it again.
//!
//! There is a thread for all this. A small request that is the only one, on a disk that is quick,
//! is carried out by the caller itself: two threads less have to be woken, which is much of what
//! the next job of a chain waits for.

use super::id_marks::Marks;
use super::parked_claims::{self, ParkedClaims, ServedClaim};
use super::pools::{Look, Pools};
use super::refusal::Refusal;
use super::wakes::{Waiting, Wakes};
use super::webhooks::{self, Endpoint};
use super::{journal, load};
use crate::audit::{self, Actor};
use crate::blocking::Slot;
use crate::metrics::Metrics;
use rusqlite::Connection;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, broadcast, oneshot, watch};
use torc_engine::{
    Change, Clocks, Command, Done, Engine, On, Wakes as EngineWakes, Workflow, commands,
};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};

/// Requests that share one commit at most. Enough that the flush no longer counts, few enough to
/// answer soon.
const GROUP: usize = 256;

/// A caller may be kept this long from what else it has to do; on slower disks it hands its work
/// over.
const QUICK: Duration = Duration::from_millis(5);

/// Finished workflows without requests leave memory after this many others were loaded.
const KEEP_COMPLETE: usize = 16;

/// Why a request was not carried out.
#[derive(Debug)]
pub enum Failed {
    /// It was wrong; nothing had been changed.
    Refused(Refusal),
    /// The database failed; what had been changed was taken back.
    Broken(rusqlite::Error),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Broken(error)
    }
}

impl From<rusqlite::types::FromSqlError> for Failed {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Broken(error.into())
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<torc_engine::Refused> for Failed {
    fn from(refused: torc_engine::Refused) -> Self {
        Self::Refused(Refusal::conflict(refused.code, refused.message).maybe_hint(refused.hint))
    }
}

/// Everything the writer knows besides the database.
#[derive(Default)]
pub struct State {
    /// See `load::database_id`.
    pub(super) database_id: String,
    /// What is decided on. Only [`Tx::handle`] moves it.
    pub(super) engine: Engine,
    pub(super) pools: Pools,
    pub(super) parked: ParkedClaims,
    pub(super) webhooks: Vec<Endpoint>,
    /// The verdict of each job whose retry has not told yet how it went.
    pub(super) judged: HashMap<JobId, i64>,
    /// The same for retries that a recovery asked for.
    pub(super) remedied: HashMap<JobId, i64>,
    /// This server began at this time, or woke after standing still, by the clock that cannot be
    /// set.
    pub(super) boot: i64,
    /// It last looked for dead runners at this time, by the same clock.
    pub(super) last_look: i64,
    pub(super) next_event: i64,
    /// The latest end of an attempt that was written, by workflow.
    pub(super) last_ends: HashMap<WorkflowId, i64>,
    /// Order of last use, for forgetting finished workflows.
    pub(super) recent: Vec<WorkflowId>,
}

/// Where a workflow stood after the last commit that touched it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Jobs per status, by the status' integer.
    pub counts: [u32; 11],
    /// Disabled jobs that the newest revision of the spec no longer has; lists show them, and they do
    /// not count.
    pub removed: u32,
    /// The run.
    pub run: i64,
    /// Every job is final.
    pub is_complete: bool,
    /// A user canceled it.
    pub is_canceled: bool,
    /// When its last attempt ended, if that was while this server ran.
    pub last_end_ms: Option<i64>,
}

impl Progress {
    /// Jobs per status as lists show them: with those that a revision took out.
    pub fn listed(&self) -> [u32; 11] {
        let mut counts = self.counts;
        counts[torc_model::status::JobStatus::Disabled as usize] += self.removed;
        counts
    }
}

/// What the rest of the server may look at without asking the writer.
#[derive(Default)]
struct Published {
    /// The workflows in memory.
    progress: HashMap<WorkflowId, Progress>,
    /// Grows with every commit that may have changed something else about any workflow.
    epoch: u64,
    /// Grows when progress was forgotten: what was counted from rows before may be older.
    generation: u64,
}

type Work = Box<dyn FnOnce(&mut Tx<'_>) -> Result<(), Failed> + Send>;

struct Request {
    work: Work,
    /// It changes nothing that [`Progress`] does not tell, unless its rows say so.
    is_routine: bool,
    reply: Reply,
}

/// How a caller hears of its request.
struct Reply {
    /// Who asks, if what it changes is written down.
    actor: Option<Actor>,
    answer: oneshot::Sender<Result<(), Refusal>>,
}

impl Reply {
    fn tell(self, done: Result<(), Refusal>) {
        if let (Some(actor), Err(_)) = (&self.actor, &done) {
            actor.untell();
        }
        // A caller that went away needs no answer.
        let _ = self.answer.send(done);
    }
}

/// What the thread is told.
enum Message {
    Request(Request),
    /// Something is due earlier than it thinks.
    Due,
    /// What cannot be done inside a transaction.
    Outside(Outside),
}

type Outside = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the writer.
#[derive(Clone)]
pub struct Handle {
    sender: Sender<Message>,
    writer: Arc<Mutex<Writer>>,
    /// Requests that have not been answered yet.
    open: Arc<AtomicUsize>,
    is_quick: Arc<AtomicBool>,
    events: broadcast::Sender<Arc<EventView>>,
    wakes: Arc<Wakes>,
    published: Arc<Mutex<Published>>,
    outbox: Arc<Notify>,
    signals: Arc<Signals>,
    metrics: Arc<Metrics>,
}

/// Tells of events that parts of the server itself wait for, each a number that grows: a task
/// that waits for few of them must not be woken by all.
#[derive(Default)]
struct Signals {
    /// An action was triggered.
    triggers: watch::Sender<u64>,
    /// Allocations were planned.
    allocations: watch::Sender<u64>,
}

impl Signals {
    fn tell(&self, events: &[EventView]) {
        let is_new = |kind: EventKind| events.iter().any(|event| event.kind == kind);
        for (kind, signals) in [
            (EventKind::ActionTriggered, &self.triggers),
            (EventKind::AllocationsPlanned, &self.allocations),
        ] {
            if is_new(kind) {
                signals.send_modify(|version| *version += 1);
            }
        }
    }
}

/// One request's view of the writer, inside its savepoint.
pub struct Tx<'a> {
    /// The connection, in a transaction.
    pub db: &'a Connection,
    pub(super) state: &'a mut State,
    pub(super) touched: &'a mut BTreeSet<WorkflowId>,
    /// Waiting tasks look again.
    pub(super) woken: &'a mut BTreeSet<WorkflowId>,
    /// Where work became ready: claims that wait are served, if there is still work after all requests of
    /// the group.
    pub(super) with_work: &'a mut BTreeSet<WorkflowId>,
    pub(super) new_events: &'a mut Vec<EventView>,
    /// Set when a delivery was written.
    pub(super) outbox: &'a mut bool,
    /// Set when something was written that is shown with a workflow's progress and is not part of
    /// [`Progress`].
    pub(super) is_special: &'a mut bool,
    /// Set when a change of the engine was written.
    is_moved: bool,
    /// Now, in ms since 1970.
    pub now: i64,
    /// Now, in ms since the start of the machine: how long a runner was silent.
    pub uptime: i64,
}

/// What the requests of one group lead to besides their rows.
#[derive(Default)]
struct Consequences {
    touched: BTreeSet<WorkflowId>,
    woken: BTreeSet<WorkflowId>,
    with_work: BTreeSet<WorkflowId>,
    new_events: Vec<EventView>,
    outbox: bool,
    is_special: bool,
}

impl Consequences {
    fn tx<'a>(&'a mut self, db: &'a Connection, state: &'a mut State) -> Tx<'a> {
        Tx {
            db,
            state,
            touched: &mut self.touched,
            woken: &mut self.woken,
            with_work: &mut self.with_work,
            new_events: &mut self.new_events,
            outbox: &mut self.outbox,
            is_special: &mut self.is_special,
            is_moved: false,
            now: crate::clock::now_ms(),
            uptime: crate::clock::boottime_ms(),
        }
    }
}

impl Handle {
    /// Starts the writer thread. It ends when the last handle is gone.
    pub fn start(db: Connection, marks: Option<Marks>) -> rusqlite::Result<Self> {
        let state = State {
            boot: crate::clock::boottime_ms(),
            last_look: crate::clock::boottime_ms(),
            ..load::boot(&db)?
        };
        db.set_prepared_statement_cache_capacity(128);
        let (sender, receiver) = channel();
        let (events, _) = broadcast::channel(8192);
        let (wakes, published, outbox, signals) = <(Arc<_>, Arc<_>, Arc<_>, Arc<_>)>::default();
        let is_quick = Arc::new(AtomicBool::new(true));
        let metrics = Arc::new(Metrics::default());
        let writer = Arc::new(Mutex::new(Writer {
            db,
            state,
            marks,
            later: VecDeque::new(),
            usual: Duration::ZERO,
            sleeps_until: None,
            is_quick: is_quick.clone(),
            wakes: Arc::clone(&wakes),
            events: events.clone(),
            published: Arc::clone(&published),
            outbox: Arc::clone(&outbox),
            signals: Arc::clone(&signals),
            metrics: Arc::clone(&metrics),
        }));
        let thread = std::thread::Builder::new().name("torc-writer".into());
        thread
            .spawn({
                let writer = writer.clone();
                move || work(&writer, &receiver)
            })
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        Ok(Self {
            sender,
            writer,
            open: Arc::default(),
            is_quick,
            events,
            wakes,
            published,
            outbox,
            signals,
            metrics,
        })
    }

    /// Does some work in a transaction and answers when it is on disk.
    pub async fn call<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, Failed> + Send + 'static,
    {
        self.send(work, false).await
    }

    /// The same for what runners do all the time: it moves jobs and attempts only.
    pub async fn call_routine<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, Failed> + Send + 'static,
    {
        self.send(work, true).await
    }

    /// Does what cannot be done inside a transaction, between two of them.
    pub async fn outside<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failed> + Send + 'static,
    {
        let gone = || Refusal::unavailable("the server is shutting down");
        let (tell, told) = oneshot::channel();
        let _open = Open::new(&self.open);
        let work: Outside = Box::new(move |db| {
            let done = work(db).map_err(|failed| match failed {
                Failed::Refused(refusal) => refusal,
                Failed::Broken(error) => broken(&error),
            });
            // A caller that went away needs no answer.
            let _ = tell.send(done);
        });
        self.sender.send(Message::Outside(work)).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    async fn send<T, F>(&self, work: F, is_routine: bool) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, Failed> + Send + 'static,
    {
        let slot = Slot::default();
        let kept = slot.clone();
        let work: Work = Box::new(move |tx| work(tx).map(|value| kept.put(value)));
        self.commit(work, is_routine).await?;
        slot.take().ok_or_else(|| Refusal::unavailable("the server is shutting down"))
    }

    /// Has the writer do the work, whatever its value is, and waits for the commit.
    async fn commit(&self, work: Work, is_routine: bool) -> Result<(), Refusal> {
        let (answer, told) = oneshot::channel();
        // Found in the task that answers the request; the work may be done by another thread.
        let actor = if is_routine { None } else { audit::current() };
        let gone = || Refusal::unavailable("the server is shutting down");
        let open = Open::new(&self.open);
        let request = Request { work, is_routine, reply: Reply { actor, answer } };
        let may_stay = is_routine && open.is_alone && self.is_quick.load(Ordering::Relaxed);
        match may_stay.then(|| self.writer.try_lock()) {
            Some(Ok(mut writer)) => {
                writer.group(request, None);
                if writer.is_due_earlier() {
                    // Without the thread there is no receiver.
                    let _ = self.sender.send(Message::Due);
                }
            }
            _ => self.sender.send(Message::Request(request)).map_err(|_| gone())?,
        }
        told.await.map_err(|_| gone())?
    }

    /// How quick the disk is held to be, until the next commit.
    #[cfg(test)]
    pub fn hold_for_quick(&self, is_quick: bool) {
        self.is_quick.store(is_quick, Ordering::Relaxed);
    }

    /// Committed events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<EventView>> {
        self.events.subscribe()
    }

    /// Hears whenever a waiting claim of this workflow should look again.
    pub fn wakes(&self, id: WorkflowId) -> Waiting {
        self.wakes.subscribe(id)
    }

    /// Changes whenever an action was triggered.
    pub fn triggers(&self) -> watch::Receiver<u64> {
        self.signals.triggers.subscribe()
    }

    /// Changes whenever allocations were planned.
    pub fn allocations(&self) -> watch::Receiver<u64> {
        self.signals.allocations.subscribe()
    }

    /// Told whenever a delivery was written.
    pub fn outbox(&self) -> Arc<Notify> {
        self.outbox.clone()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Requests that have not been answered yet.
    pub fn open_requests(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// No panic has left the writer's state half changed.
    pub fn is_alive(&self) -> bool {
        !self.writer.is_poisoned()
    }

    /// Where every workflow stands that was touched since the start. The number grows when some of
    /// that was forgotten.
    pub fn all_progress(&self) -> (HashMap<WorkflowId, Progress>, u64) {
        let published = self.published.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (published.progress.clone(), published.generation)
    }

    /// Where a workflow stands, if it was touched since the start, and the epoch: as long as that
    /// is the same, nothing else about a workflow's progress has changed.
    pub fn progress(&self, id: WorkflowId) -> Option<(Progress, u64)> {
        let published = self.published.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        published.progress.get(&id).map(|progress| (*progress, published.epoch))
    }
}

/// Counts a request for as long as it has no answer.
struct Open<'a> {
    count: &'a AtomicUsize,
    /// There was no other when it came.
    is_alone: bool,
}

impl<'a> Open<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        Self { count, is_alone: count.fetch_add(1, Ordering::AcqRel) == 0 }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The life of the thread: does what it is asked for, and wakes the tasks that wait for something
/// that is due.
fn work(writer: &Mutex<Writer>, messages: &Receiver<Message>) {
    loop {
        // The mutex is poisoned: its last holder panicked and left the state half changed.
        let Ok(sleep) = writer.lock().map(|mut writer| writer.sleep()) else { return };
        let message = messages.recv_timeout(sleep);
        let Ok(mut writer) = writer.lock() else { return };
        match message {
            Ok(Message::Request(first)) => writer.group(first, Some(messages)),
            Ok(Message::Due) => {}
            Ok(Message::Outside(work)) => work(&writer.db),
            Err(RecvTimeoutError::Timeout) => writer.wake_due(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Writer {
    db: Connection,
    state: State,
    /// How far ids may have gone; None where no file is kept.
    marks: Option<Marks>,
    /// Work for between two transactions that was found in the channel behind the requests of one.
    later: VecDeque<Outside>,
    /// How long a group takes, a moving average.
    usual: Duration,
    /// When the thread looks again by itself.
    sleeps_until: Option<Instant>,
    is_quick: Arc<AtomicBool>,
    wakes: Arc<Wakes>,
    events: broadcast::Sender<Arc<EventView>>,
    published: Arc<Mutex<Published>>,
    outbox: Arc<Notify>,
    signals: Arc<Signals>,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// How long the thread may sleep.
    fn sleep(&mut self) -> Duration {
        let time = self.time_to_next_due();
        self.sleeps_until = Instant::now().checked_add(time);
        time
    }

    /// Something is due before the thread will look.
    fn is_due_earlier(&self) -> bool {
        let due = Instant::now().checked_add(self.time_to_next_due());
        // A clock that was set and the rounding to milliseconds are no reason to look.
        self.sleeps_until
            .zip(due)
            .is_some_and(|(planned, due)| due + Duration::from_millis(5) < planned)
    }

    /// How long the writer may sleep before some delayed attempt is due.
    fn time_to_next_due(&self) -> Duration {
        let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
        let engine = &self.state.engine;
        let delayed =
            engine.workflows().values().filter_map(Workflow::next_due).map(|due| due - now);
        let reserved = engine.reservations().next_end(uptime).map(|end| end - uptime);
        let wait = delayed.chain(reserved).min().unwrap_or(3_600_000);
        Duration::from_millis(wait.clamp(1, 3_600_000) as u64)
    }

    fn wake_due(&mut self) {
        let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
        let engine = &mut self.state.engine;
        if !engine.reservations().due(uptime, false).is_empty() {
            engine.workflows().keys().for_each(|id| self.wakes.news(*id));
            self.state.pools.look_at_all();
        }
        // It moves no row.
        let woken = engine.handle(commands::WakeDelayed {}, Clocks { now, uptime });
        let due = woken.reply.unwrap_or_default();
        self.serve_pools(&due, &due);
        due.iter().for_each(|id| self.wakes.work(*id));
    }

    /// Carries out a request, and with it those that wait in the channel.
    fn group(&mut self, first: Request, others: Option<&Receiver<Message>>) {
        let begin = Instant::now();
        let mut told = Consequences::default();
        let mut replies: Vec<Reply> = Vec::new();
        if let Err(error) = self.db.execute_batch("BEGIN IMMEDIATE") {
            first.reply.tell(Err(broken(&error)));
            return;
        }
        #[cfg(test)]
        let agreed = super::tests::agreement::difference(&self.db, &self.state).is_none();
        #[cfg(test)]
        let mut is_moved = false;
        let mut next = Some(first);
        while let Some(request) = next {
            let mut tx = told.tx(&self.db, &mut self.state);
            *tx.is_special |= !request.is_routine;
            let Request { work, reply, .. } = request;
            let record = |tx: &mut Tx<'_>| recorded(tx, work, reply.actor.as_ref());
            match run(&mut tx, record, replies.is_empty()) {
                Ok(()) => replies.push(reply),
                Err(refusal) => reply.tell(Err(refusal)),
            }
            #[cfg(test)]
            {
                is_moved |= tx.is_moved;
            }
            let others = others.filter(|_| replies.len() < GROUP);
            next = others.and_then(|others| next_request(others, &mut self.later));
        }
        let mut tx = told.tx(&self.db, &mut self.state);
        let served = serve_parked(&mut tx);
        #[cfg(test)]
        {
            is_moved |= tx.is_moved;
        }
        let Consequences { touched, woken, with_work, mut new_events, outbox, mut is_special } =
            told;
        // The record is part of the transaction, and its file is written before it.
        let kept = match &mut self.marks {
            Some(marks) => marks.keep(&self.db, &self.state, is_special),
            None => Ok(()),
        };
        // Tests that change rows behind the writer's back do so in groups of their own.
        #[cfg(test)]
        if agreed && is_moved {
            let difference = super::tests::agreement::difference(&self.db, &self.state);
            assert_eq!(difference, None, "memory and rows differ");
        }
        torc_failpoint::hit("store.before_commit");
        let committed = kept.and_then(|()| self.db.execute_batch("COMMIT")).map_err(|error| {
            let refusal = broken(&error);
            // Whether it is still open or not, nothing of it may stay.
            let _ = self.db.execute_batch("ROLLBACK");
            refusal
        });
        match &committed {
            Ok(()) => self.state.engine.committed(),
            Err(_) => {
                self.state.forget_all(&self.db);
                new_events.clear();
                is_special = true;
            }
        }
        torc_failpoint::hit("store.after_commit");
        let took = begin.elapsed();
        self.usual = (self.usual * 7 + took) / 8;
        match &committed {
            Ok(()) => {
                self.metrics.commits.observe(took);
                self.metrics.committed_requests.add(replies.len() as u64);
                self.metrics.committed(&new_events);
            }
            Err(_) => self.metrics.failed_commits.add(1),
        }
        self.is_quick.store(self.usual < QUICK, Ordering::Relaxed);
        self.publish(&touched, is_special);
        for reply in replies {
            reply.tell(committed.clone());
        }
        if committed.is_ok() {
            served.into_iter().for_each(ServedClaim::send);
        }
        self.serve_pools(&touched, &with_work);
        for id in &woken {
            self.wakes.news(*id);
        }
        if outbox {
            self.outbox.notify_one();
        }
        self.signals.tell(&new_events);
        if self.events.receiver_count() > 0 {
            for event in new_events {
                // A receiver that has gone is no fault.
                let _ = self.events.send(Arc::new(event));
            }
        }
        self.state.trim(&touched);
        while let Some(work) = self.later.pop_front() {
            work(&self.db);
        }
    }

    /// Pools learn what has changed; for whom there is something now, is woken.
    fn serve_pools(&mut self, touched: &BTreeSet<WorkflowId>, with_work: &BTreeSet<WorkflowId>) {
        let State { pools, engine, .. } = &mut self.state;
        let look = Look::new(engine, crate::clock::boottime_ms());
        let done = pools.after_commit(&self.db, &look, touched, with_work);
        if let Err(error) = done {
            tracing::error!(%error, "the index of pools could not be made; it is made anew");
            pools.forget_index();
        }
    }

    fn publish(&self, touched: &BTreeSet<WorkflowId>, is_special: bool) {
        let mut published =
            self.published.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for id in touched {
            match self.state.engine.workflow(*id) {
                Some(workflow) => published.progress.insert(*id, self.state.progress(workflow)),
                None => {
                    published.generation += 1;
                    published.progress.remove(id)
                }
            };
        }
        // What was forgotten is known by its rows alone.
        if self.state.engine.workflows().is_empty() && !published.progress.is_empty() {
            published.generation += 1;
            published.progress.clear();
        }
        published.epoch += u64::from(is_special);
    }
}

fn next_request(messages: &Receiver<Message>, later: &mut VecDeque<Outside>) -> Option<Request> {
    messages.try_iter().find_map(|message| match message {
        Message::Request(request) => Some(request),
        // The thread plans anew after each group.
        Message::Due => None,
        Message::Outside(work) => {
            later.push_back(work);
            None
        }
    })
}

/// Answers claims that wait in workflows with work. One that fails asks again by itself: its sender is
/// dropped.
fn serve_parked(tx: &mut Tx<'_>) -> Vec<ServedClaim> {
    let mut served = Vec::new();
    // What became ready and was taken in the same group is for no other claim: in a chain that is every
    // job.
    forget_taken_work(tx);
    let waiting: Vec<_> =
        tx.with_work.iter().copied().filter(|id| tx.state.parked.waits_in(*id)).collect();
    for id in waiting {
        let claims = run(tx, |tx| parked_claims::take(tx, id), false).unwrap_or_default();
        for claim in claims {
            let Ok(nonce) = getrandom::u64() else { continue };
            let done = run(tx, |tx| parked_claims::serve(tx, id, claim, nonce), false);
            served.extend(done.unwrap_or_default());
        }
    }
    forget_taken_work(tx);
    served
}

fn forget_taken_work(tx: &mut Tx<'_>) {
    let Tx { state, with_work, .. } = tx;
    with_work.retain(|id| state.engine.workflow(*id).is_none_or(Workflow::has_ready));
}

/// Does the work, and writes down who changed something by it.
fn recorded(tx: &mut Tx<'_>, work: Work, actor: Option<&Actor>) -> Result<(), Failed> {
    let Some(actor) = actor else { return work(tx) };
    let before = tx.db.total_changes();
    work(tx)?;
    if tx.db.total_changes() != before {
        actor.tell(tx.db, tx.now)?;
    }
    Ok(())
}

/// Does the work so that it can be taken back by itself: in a savepoint, or, as the first of its
/// group, in the transaction that holds nothing else yet. Savepoints copy every page they touch,
/// and most groups are one request.
fn run<T>(
    tx: &mut Tx<'_>,
    work: impl FnOnce(&mut Tx<'_>) -> Result<T, Failed>,
    is_first: bool,
) -> Result<T, Refusal> {
    let events = tx.new_events.len();
    if tx.db.is_autocommit()
        && let Err(error) = tx.db.execute_batch("BEGIN IMMEDIATE")
    {
        // The one before could not begin again; without a transaction nothing could be taken back.
        return Err(broken(&error));
    }
    let step = |tx: &Tx<'_>, sql: &str| match is_first {
        true => Ok(()),
        false => journal::meta::run(tx.db, sql),
    };
    if let Err(error) = step(tx, "SAVEPOINT work") {
        return Err(broken(&error));
    }
    // A panic in one request must not take the server down with it; the state it may have left
    // half-changed goes.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(tx)));
    let result = match done {
        Ok(Ok(done)) => match step(tx, "RELEASE work") {
            Ok(()) => return Ok(done),
            Err(error) => broken(&error),
        },
        Ok(Err(Failed::Refused(refusal))) => {
            undo(tx, events, is_first);
            if tx.is_moved {
                // Its rows were taken back, and the engine's copy has made the same moves.
                tx.state.forget_all(tx.db);
                *tx.is_special = true;
            }
            return Err(refusal);
        }
        Ok(Err(Failed::Broken(error))) => broken(&error),
        Err(_) => {
            Refusal::internal("the request ran into a defect of the server; nothing was changed")
        }
    };
    undo(tx, events, is_first);
    tx.state.forget_all(tx.db);
    *tx.is_special = true;
    Err(result)
}

fn undo(tx: &mut Tx<'_>, events: usize, is_first: bool) {
    tx.new_events.truncate(events);
    let sql = match (is_first, tx.db.is_autocommit()) {
        (_, true) => "BEGIN IMMEDIATE",
        (true, false) => "ROLLBACK; BEGIN IMMEDIATE",
        (false, false) => "ROLLBACK TO work; RELEASE work",
    };
    if let Err(error) = tx.db.execute_batch(sql) {
        tracing::error!(%error, "a request could not be taken back");
    }
}

fn broken(error: &rusqlite::Error) -> Refusal {
    if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
        log_full_disk();
        return Refusal::out_of_space("the disk of the database is full");
    }
    tracing::error!(%error, "the database failed");
    Refusal::internal(format!("the database failed: {error}"))
}

/// Logs a full disk once a minute: runners repeat what could not be written several times a second.
fn log_full_disk() {
    const EVERY_MS: i64 = 60_000;
    static LOGGED_MS: AtomicI64 = AtomicI64::new(i64::MIN / 2);
    let now = crate::clock::boottime_ms();
    if now - LOGGED_MS.load(Ordering::Relaxed) >= EVERY_MS {
        LOGGED_MS.store(now, Ordering::Relaxed);
        tracing::warn!(
            "the disk of the database is full; every change is refused until there is room"
        );
    }
}

impl State {
    fn progress(&self, workflow: &Workflow) -> Progress {
        Progress {
            counts: workflow.counts(),
            removed: workflow.removed(),
            run: workflow.run,
            is_complete: workflow.is_complete(),
            is_canceled: workflow.canceled,
            last_end_ms: self.last_ends.get(&workflow.id).copied(),
        }
    }

    /// Throws the engine's copies away; they are loaded again from what is committed (or saved so
    /// far).
    fn forget_all(&mut self, db: &Connection) {
        self.last_ends.clear();
        self.recent.clear();
        match load::boot(db) {
            Ok(fresh) => {
                let mut engine = std::mem::take(&mut self.engine);
                engine.reread(fresh.engine);
                let mut pools = std::mem::take(&mut self.pools);
                pools.forget_index();
                let parked = std::mem::take(&mut self.parked);
                let (boot, last_look) = (self.boot, self.last_look);
                *self = Self { boot, last_look, pools, parked, engine, ..fresh };
            }
            Err(error) => tracing::error!(%error, "the state could not be loaded again"),
        }
    }

    /// Lets go of finished workflows that were not used lately.
    fn trim(&mut self, touched: &BTreeSet<WorkflowId>) {
        for id in touched {
            if self.recent.last() != Some(id) {
                self.recent.retain(|r| r != id);
                self.recent.push(*id);
            }
        }
        let idle = |w: &Workflow| w.is_complete() && w.runners_with_work().is_empty();
        while self.recent.len() > KEEP_COMPLETE {
            let Some(at) =
                self.recent.iter().position(|id| self.engine.workflow(*id).is_none_or(idle))
            else {
                return;
            };
            let id = self.recent.remove(at);
            self.engine.forget(id);
            self.last_ends.remove(&id);
        }
    }
}

impl Tx<'_> {
    /// The time of the request.
    pub fn clocks(&self) -> Clocks {
        Clocks { now: self.now, uptime: self.uptime }
    }

    /// The engine's copy of a workflow, loaded if need be.
    pub fn workflow(&mut self, id: WorkflowId) -> Result<&Workflow, Failed> {
        self.load(id)?;
        self.state.engine.workflow(id).ok_or_else(|| Refusal::not_found("workflow", id.0).into())
    }

    fn load(&mut self, id: WorkflowId) -> Result<(), Failed> {
        if self.state.engine.workflow(id).is_none() {
            let workflow =
                load::workflow(self.db, id)?.ok_or_else(|| Refusal::not_found("workflow", id.0))?;
            self.state.engine.load(workflow);
        }
        self.touched.insert(id);
        Ok(())
    }

    /// Has the engine carry out a command, and writes down what that changed.
    pub fn handle<C: Command>(&mut self, command: C) -> Result<C::Reply, Failed> {
        let done = self.begin(command)?;
        self.finish(done)
    }

    /// The same without writing, for rows that have to be there before: [`Tx::finish`] follows.
    pub fn begin<C: Command>(&mut self, command: C) -> Result<Done<C::Reply>, Failed> {
        if let Some(id) = command.needs(&self.state.engine) {
            self.load(id)?;
        }
        let clocks = self.clocks();
        Ok(self.state.engine.handle(command, clocks))
    }

    /// Writes down what a command changed. A refused one may have changed something too: with the
    /// request all of it is taken back.
    pub fn finish<T>(&mut self, done: Done<T>) -> Result<T, Failed> {
        let Done { reply, about, changes, wakes } = done;
        match wakes {
            EngineWakes::None => {}
            EngineWakes::Workflow => self.woken.extend(about),
            EngineWakes::All => self.wake_all(),
        }
        if !changes.is_empty() {
            self.write(about, changes)?;
        }
        Ok(reply?)
    }

    /// Writes down something that people may want to know.
    pub fn tell(
        &mut self,
        id: WorkflowId,
        kind: EventKind,
        job: Option<JobId>,
        data: serde_json::Value,
    ) -> Result<(), Failed> {
        self.handle(On(id, commands::Tell { kind, job, data }))
    }

    /// Every waiting claim looks again.
    pub fn wake_all(&mut self) {
        self.woken.extend(self.state.engine.workflows().keys());
    }

    fn write(&mut self, about: Option<WorkflowId>, changes: Vec<Change>) -> Result<(), Failed> {
        let known = self.new_events.len();
        self.is_moved = true;
        let Some(id) = about else {
            return Ok(journal::write_shared(self.db, changes, self.now)?);
        };
        let wakes = journal::write(
            self.db,
            id,
            changes,
            self.now,
            &mut self.state.next_event,
            self.new_events,
        )?;
        let mut settled = Vec::new();
        for event in &self.new_events[known..] {
            settled.extend(super::outcomes::observe(self.db, self.state, event, self.now)?);
        }
        if !self.state.webhooks.is_empty() {
            for event in &self.new_events[known..] {
                *self.outbox |= webhooks::enqueue(self.db, &self.state.webhooks, event)?;
            }
        }
        if let Some(end) = wakes.last_end {
            let known = self.state.last_ends.entry(id).or_insert(end);
            *known = end.max(*known);
        }
        *self.is_special |= wakes.special;
        if wakes.news {
            self.woken.insert(id);
        }
        if wakes.work {
            self.with_work.insert(id);
        }
        for row in settled {
            super::auto::settled(self, row)?;
        }
        Ok(())
    }
}

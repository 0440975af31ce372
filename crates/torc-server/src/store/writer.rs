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

mod group;
mod tx;

pub use tx::Tx;

use group::{Writer, broken};

use super::id_marks::Marks;
use super::load;
use super::parked_claims::ParkedClaims;
use super::pools::Pools;
use super::refusal::Refusal;
use super::wakes::{Waiting, WorkflowWakes};
use super::webhooks::Endpoint;
use crate::audit::{self, Actor};
use crate::blocking::Slot;
use crate::metrics::Metrics;
use rusqlite::Connection;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, oneshot, watch};
use torc_engine::{Engine, Workflow};
use torc_model::api::EventView;
use torc_model::event::EventKind;
use torc_model::ids::{JobId, WorkflowId};

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
pub(super) struct Published {
    /// The workflows in memory.
    pub(super) progress: HashMap<WorkflowId, Progress>,
    /// Grows with every commit that may have changed something else about any workflow.
    pub(super) epoch: u64,
    /// Grows when progress was forgotten: what was counted from rows before may be older.
    pub(super) generation: u64,
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
    pub(super) shared: Arc<Shared>,
}

/// What callers see of the writer without its lock.
pub(super) struct Shared {
    /// Requests that have not been answered yet.
    pub(super) open: AtomicUsize,
    is_quick: AtomicBool,
    pub(super) events: broadcast::Sender<Arc<EventView>>,
    wakes: Arc<WorkflowWakes>,
    published: Mutex<Published>,
    pub(super) outbox: Arc<Notify>,
    pub(super) signals: Signals,
    pub(super) metrics: Arc<Metrics>,
}

impl Shared {
    pub(super) fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells of events that parts of the server itself wait for, each a number that grows: a task
/// that waits for few of them must not be woken by all.
#[derive(Default)]
pub(super) struct Signals {
    /// An action was triggered.
    pub(super) triggers: watch::Sender<u64>,
    /// Allocations were planned.
    pub(super) allocations: watch::Sender<u64>,
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
        let shared = Arc::new(Shared {
            open: AtomicUsize::new(0),
            is_quick: AtomicBool::new(true),
            events: broadcast::channel(8192).0,
            wakes: Arc::default(),
            published: Mutex::default(),
            outbox: Arc::default(),
            signals: Signals::default(),
            metrics: Arc::default(),
        });
        let writer = Arc::new(Mutex::new(Writer {
            db,
            state,
            marks,
            later: VecDeque::new(),
            usual: Duration::ZERO,
            sleeps_until: None,
            shared: shared.clone(),
        }));
        let thread = std::thread::Builder::new().name("torc-writer".into());
        thread
            .spawn({
                let writer = writer.clone();
                move || work(&writer, &receiver)
            })
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        Ok(Self { sender, writer, shared })
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
        let _open = Open::new(&self.shared.open);
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
        let open = Open::new(&self.shared.open);
        let request = Request { work, is_routine, reply: Reply { actor, answer } };
        let may_stay = is_routine && open.is_alone && self.shared.is_quick.load(Ordering::Relaxed);
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
        self.shared.is_quick.store(is_quick, Ordering::Relaxed);
    }

    /// No panic has left the writer's state half changed.
    pub fn is_alive(&self) -> bool {
        !self.writer.is_poisoned()
    }

    /// Hears whenever a waiting claim of this workflow should look again.
    pub fn wakes(&self, id: WorkflowId) -> Waiting {
        self.shared.wakes.subscribe(id)
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

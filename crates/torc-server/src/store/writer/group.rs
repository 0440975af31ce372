//! Groups of requests: carried out in savepoints of one transaction, committed, and answered.

use super::tx::Consequences;
use super::{Failed, Message, Outside, QUICK, Reply, Request, Shared, State, Tx, Work};
use crate::audit::Actor;
use crate::store::id_marks::Marks;
use crate::store::journal::meta;
use crate::store::parked_claims::{self, ServedClaim};
use crate::store::pools::Look;
use crate::store::refusal::Refusal;
use rusqlite::Connection;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use torc_engine::{Clocks, Workflow, commands};
use torc_model::ids::WorkflowId;

/// Requests that share one commit at most. Enough that the flush no longer counts, few enough to
/// answer soon.
const GROUP: usize = 256;

pub(super) struct Writer {
    pub(super) db: Connection,
    pub(super) state: State,
    /// How far ids may have gone; None where no file is kept.
    pub(super) marks: Option<Marks>,
    /// Work for between two transactions that was found in the channel behind the requests of one.
    pub(super) later: VecDeque<Outside>,
    /// How long a group takes, a moving average.
    pub(super) usual: Duration,
    /// When the thread looks again by itself.
    pub(super) sleeps_until: Option<Instant>,
    pub(super) shared: Arc<Shared>,
}

impl Writer {
    /// How long the thread may sleep.
    pub(super) fn sleep(&mut self) -> Duration {
        let time = self.time_to_next_due();
        self.sleeps_until = Instant::now().checked_add(time);
        time
    }

    /// Something is due before the thread will look.
    pub(super) fn is_due_earlier(&self) -> bool {
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

    pub(super) fn wake_due(&mut self) {
        let (now, uptime) = (crate::clock::now_ms(), crate::clock::boottime_ms());
        let engine = &mut self.state.engine;
        if !engine.reservations().due(uptime, false).is_empty() {
            engine.workflows().keys().for_each(|id| self.shared.wakes.news(*id));
            self.state.pools.look_at_all();
        }
        // It moves no row.
        let woken = engine.handle(commands::WakeDelayed {}, Clocks { now, uptime });
        let due = woken.reply.unwrap_or_default();
        self.serve_pools(&due, &due);
        due.iter().for_each(|id| self.shared.wakes.work(*id));
    }

    /// Carries out a request, and with it those that wait in the channel.
    pub(super) fn group(&mut self, first: Request, others: Option<&Receiver<Message>>) {
        let begin = Instant::now();
        let mut told = Consequences::default();
        let mut replies: Vec<Reply> = Vec::new();
        if let Err(error) = self.db.execute_batch("BEGIN IMMEDIATE") {
            first.reply.tell(Err(broken(&error)));
            return;
        }
        #[cfg(test)]
        let agreed = crate::store::tests::agreement::difference(&self.db, &self.state).is_none();
        #[cfg(test)]
        let mut is_moved = false;
        let mut next = Some(first);
        while let Some(request) = next {
            let mut tx = Tx::new(&self.db, &mut self.state, &mut told);
            tx.consequences.is_special |= !request.is_routine;
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
        let mut tx = Tx::new(&self.db, &mut self.state, &mut told);
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
            let difference = crate::store::tests::agreement::difference(&self.db, &self.state);
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
                self.shared.metrics.commits.observe(took);
                self.shared.metrics.committed_requests.add(replies.len() as u64);
                self.shared.metrics.committed(&new_events);
            }
            Err(_) => self.shared.metrics.failed_commits.add(1),
        }
        self.shared.is_quick.store(self.usual < QUICK, Ordering::Relaxed);
        self.publish(&touched, is_special);
        for reply in replies {
            reply.tell(committed.clone());
        }
        if committed.is_ok() {
            served.into_iter().for_each(ServedClaim::send);
        }
        self.serve_pools(&touched, &with_work);
        for id in &woken {
            self.shared.wakes.news(*id);
        }
        if outbox {
            self.shared.outbox.notify_one();
        }
        self.shared.signals.tell(&new_events);
        if self.shared.events.receiver_count() > 0 {
            for event in new_events {
                // A receiver that has gone is no fault.
                let _ = self.shared.events.send(Arc::new(event));
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
            tracing::error!(%error, "the index of pools could not be built; it will be built again");
            pools.forget_index();
        }
    }

    fn publish(&self, touched: &BTreeSet<WorkflowId>, is_special: bool) {
        let mut published = self.shared.published();
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
    let waiting: Vec<_> = tx
        .consequences
        .with_work
        .iter()
        .copied()
        .filter(|id| tx.state.parked.waits_in(*id))
        .collect();
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
    let Tx { state, consequences, .. } = tx;
    consequences.with_work.retain(|id| state.engine.workflow(*id).is_none_or(Workflow::has_ready));
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
    let events = tx.consequences.new_events.len();
    if tx.db.is_autocommit()
        && let Err(error) = tx.db.execute_batch("BEGIN IMMEDIATE")
    {
        // The one before could not begin again; without a transaction nothing could be taken back.
        return Err(broken(&error));
    }
    let step = |tx: &Tx<'_>, sql: &str| match is_first {
        true => Ok(()),
        false => meta::run(tx.db, sql),
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
                tx.consequences.is_special = true;
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
    tx.consequences.is_special = true;
    Err(result)
}

fn undo(tx: &mut Tx<'_>, events: usize, is_first: bool) {
    tx.consequences.new_events.truncate(events);
    let sql = match (is_first, tx.db.is_autocommit()) {
        (_, true) => "BEGIN IMMEDIATE",
        (true, false) => "ROLLBACK; BEGIN IMMEDIATE",
        (false, false) => "ROLLBACK TO work; RELEASE work",
    };
    if let Err(error) = tx.db.execute_batch(sql) {
        tracing::error!(%error, "a request could not be taken back");
    }
}

pub(super) fn broken(error: &rusqlite::Error) -> Refusal {
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

//! Owns all running processes: starts them, notices their end, ends them when told or when a limit
//! is reached, and cleans up after them. Knows nothing of jobs, attempts or the server.
//!
//! ```text
//!            start, stop                        tasks: launch, clean up, sample, sweep
//! executor ──────────────▶ supervisor ────────────────────────────▶ threads that may block
//!          ◀────────────── one at a time ◀───────────────────────── (answers by mailbox)
//!            Started, Ended     ▲ pidfds, alarms
//! ```
//!
//! A process ends by itself, or it is stopped: the termination signal to its whole tree, then the
//! grace period, then SIGKILL. When the leader of a stopped tree ends first, the others still get
//! the rest of the grace.

mod facts;
mod looks;

pub use facts::{Done, How, ProcessEvent, ProcessExit, Rules, SentSignal, StopReason};

use crate::cleanup::{self, Ended, ProcessScanner, Remains};
use crate::mailbox::Mailbox;
use crate::monitor::SampledUsage;
use crate::observe::{self, Look, Recent};
use crate::process::{LaunchError, Launched, ProcessOrder, Setup, launch};
use crate::procfs::ProcessTable;
use crate::sys::{self, Poller, Reap, Reaped};
use crate::tasks::{Child, FollowUp, Tasks};
use crate::time;
use looks::{Sampling, Sweeping};
use rustix::process::Signal;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How often a stopped group whose leader has gone is looked at; its members are not our direct
/// children at first.
const LINGER_POLL: Duration = Duration::from_millis(20);
/// A tree that was killed is killed again this often until its leader ends: it may have forked
/// meanwhile.
const KILL_AGAIN: Duration = Duration::from_millis(500);
/// A process that ran at least this long is looked after before its end is told: the look costs
/// little in comparison.
const SCAN_FROM: Duration = Duration::from_millis(100);
/// Looking through the process table may take at most one part in this many of the time.
const SCAN_SHARE: u32 = 20;
/// A launch is heard of at most this much later than it happened.
const QUIET: Duration = Duration::from_millis(20);

struct Live {
    order: Arc<ProcessOrder>,
    state: State,
    stop: Option<Stop>,
    journal: Vec<SentSignal>,
    usage: SampledUsage,
    alarm: Option<Instant>,
    /// At half of its time, if that is limited.
    look: Option<Look>,
    recent: Option<Recent>,
}

enum State {
    Starting,
    Running(Launched),
    /// The leader of a stopped process has ended, others of its group have not.
    Lingering(Launched, Gone),
    CleaningUp(Launched, Gone),
}

#[derive(Clone, Copy)]
struct Gone {
    status: ExitStatus,
    cpu: Duration,
    max_rss_bytes: u64,
    at: Instant,
    at_ms: i64,
    machine_oom: bool,
    /// Others of its group lived when it was last looked at.
    group_is_alive: bool,
}

struct Stop {
    reason: StopReason,
    kill_at: Instant,
    is_killed: bool,
}

/// The owner of all processes.
pub struct Supervisor {
    setup: Arc<Setup>,
    rules: Rules,
    tasks: Arc<Tasks>,
    answers: Mailbox<Done>,
    poller: Arc<Poller>,
    scanner: Arc<ProcessScanner>,
    live: HashMap<u64, Live>,
    alarms: BTreeSet<(Instant, u64)>,
    sampling: Sampling,
    sweeping: Sweeping,
    /// Not earlier than this a process is looked after before its end is told.
    next_scan: Instant,
    /// When to look for launches whose message rang no bell.
    next_look: Option<Instant>,
}

impl Supervisor {
    /// Nothing runs yet. Answers of tasks come through `answers` and must be handed to
    /// [`Supervisor::on_done`].
    pub fn new(
        setup: Setup,
        rules: Rules,
        tasks: Arc<Tasks>,
        answers: Mailbox<Done>,
    ) -> io::Result<Self> {
        Ok(Self {
            setup: Arc::new(setup),
            rules,
            tasks,
            answers,
            poller: Arc::new(Poller::new()?),
            scanner: Arc::default(),
            live: HashMap::new(),
            alarms: BTreeSet::new(),
            sampling: Sampling::new(),
            sweeping: Sweeping::default(),
            next_scan: Instant::now(),
            next_look: None,
        })
    }

    /// Leaves the runner's guard alone.
    pub fn spare(&mut self, guard: Arc<AtomicI32>) {
        self.sweeping.guard = guard;
    }

    /// Where the ends of processes show; [`Supervisor::on_ready`] wants the keys. The key 0 is free
    /// for others.
    pub fn poller(&self) -> &Arc<Poller> {
        &self.poller
    }

    /// When [`Supervisor::on_time`] wants to be called.
    pub fn next_alarm(&self) -> Option<Instant> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let looks = [self.sampling.next_alarm(), self.sweeping.next_alarm()];
        [alarm, looks[0], looks[1], self.next_look].into_iter().flatten().min()
    }

    /// Starts a process.
    pub fn start(&mut self, order: ProcessOrder, now: Instant) {
        let id = order.id;
        self.sweeping.newest = self.sweeping.newest.max(id);
        let order = Arc::new(order);
        let live = Live {
            order: order.clone(),
            state: State::Starting,
            stop: None,
            journal: Vec::new(),
            usage: SampledUsage::default(),
            alarm: None,
            look: None,
            recent: None,
        };
        self.live.insert(id, live);
        self.plan_sample(&order, now);
        self.next_look.get_or_insert(now + QUIET);
        let (setup, answers, poller) =
            (self.setup.clone(), self.answers.clone(), self.poller.clone());
        self.tasks.push(move || {
            let result = launch(&setup, &order);
            let child = result.as_ref().ok().map(|launched| (launched.pid, launched.pidfd.clone()));
            // Before the end is sent.
            answers.send_quietly(Done::Launched(id, result));
            let Some((pid, pidfd)) = child else { return FollowUp::Now };
            let child = Child::new(pid, id, move || {
                if pidfd.is_none_or(|pidfd| poller.add_once(&*pidfd, id).is_err()) {
                    answers.send_quietly(Done::Unwatched(id));
                    return FollowUp::Now;
                }
                FollowUp::Later
            });
            // Most launches are followed so soon by the end or by another event that a look of
            // their own is waste.
            if now.elapsed() < QUIET / 2 {
                return FollowUp::Child(child);
            }
            child.leave();
            FollowUp::Now
        });
    }

    /// Ends processes: termination signal, grace, SIGKILL. Those that are being ended already are
    /// not asked again; at most they have less time.
    pub fn stop(&mut self, ids: &[u64], reason: &StopReason, now: Instant) {
        let mut table = None;
        let (signal, grace) = self.rules.request(reason);
        for id in ids {
            let Some(live) = self.live.get_mut(id) else { continue };
            if let Some(stop) = &mut live.stop {
                // The runner itself will be killed, sooner than the process was to have.
                if *reason == StopReason::Stopped && !stop.is_killed && now + grace < stop.kill_at {
                    stop.kill_at = now + grace;
                    if matches!(live.state, State::Running(_)) {
                        self.set_alarm(*id, Some(now + grace));
                    }
                }
                continue;
            }
            // What has just ended by itself was not ended by us.
            match &live.state {
                State::Starting => {}
                State::Running(launched) if !sys::has_ended(launched.pid) => {}
                State::Running(_) | State::Lingering(..) | State::CleaningUp(..) => continue,
            }
            live.stop =
                Some(Stop { reason: reason.clone(), kill_at: now + grace, is_killed: false });
            self.signal(*id, signal, &mut table, now);
        }
    }

    /// Ends processes at once, the grace of those included that are being ended already.
    pub fn kill(&mut self, ids: &[u64], reason: &StopReason, now: Instant) {
        self.stop(ids, reason, now);
        let mut table = None;
        for id in ids {
            self.signal(*id, Signal::KILL, &mut table, now);
        }
    }

    /// All processes, the oldest first.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.live.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Signals the whole tree of a process and sets its next alarm.
    fn signal(
        &mut self,
        id: u64,
        signal: Signal,
        table: &mut Option<Arc<ProcessTable>>,
        now: Instant,
    ) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let launched = match &live.state {
            // A process that is just being started is signaled as soon as it is there.
            State::Starting => {
                if let Some(stop) = live.stop.as_mut().filter(|_| signal == Signal::KILL) {
                    stop.kill_at = now;
                }
                return;
            }
            State::Running(launched) | State::Lingering(launched, _) => launched,
            State::CleaningUp(..) => return,
        };
        live.journal.push(SentSignal {
            signal: signal.as_raw(),
            after: now.saturating_duration_since(launched.started),
        });
        if table.is_none() {
            *table = self.scanner.table_since(now).ok();
        }
        let (pid, group) = (launched.pid, launched.group.as_ref());
        let result = match table {
            Some(table) => cleanup::signal_tree(&self.setup.owner, id, pid, table, group, signal),
            None => sys::signal_group(pid, signal),
        };
        if let Err(error) = result {
            tracing::warn!(pid, %error, "cannot signal a process group");
        }
        let is_lingering = matches!(live.state, State::Lingering(..));
        let at = match &mut live.stop {
            Some(stop) if signal == Signal::KILL => {
                stop.is_killed = true;
                now + KILL_AGAIN
            }
            Some(stop) => stop.kill_at,
            None => now + KILL_AGAIN,
        };
        self.set_alarm(id, Some(if is_lingering { now + LINGER_POLL } else { at }));
    }

    fn set_alarm(&mut self, id: u64, at: Option<Instant>) {
        let Some(live) = self.live.get_mut(&id) else { return };
        if let Some(old) = live.alarm.take() {
            self.alarms.remove(&(old, id));
        }
        live.alarm = at;
        if let Some(at) = at {
            self.alarms.insert((at, id));
        }
    }

    /// The leader of a process has ended, says the poller.
    pub fn on_ready(&mut self, key: u64, now: Instant, out: &mut Vec<ProcessEvent>) {
        let Some(live) = self.live.get_mut(&key) else { return };
        match std::mem::replace(&mut live.state, State::Starting) {
            State::Running(launched) => self.on_leader_end(key, launched, now, out),
            other => live.state = other,
        }
    }

    /// An answer of a task.
    pub fn on_done(&mut self, done: Done, now: Instant, out: &mut Vec<ProcessEvent>) {
        match done {
            Done::Launched(id, Ok(launched)) => self.on_launched(id, launched, now, out),
            Done::Launched(id, Err(error)) => self.on_not_launched(id, error, out),
            Done::Unwatched(id) => self.watch_by_thread(id),
            Done::LeaderEnded(id) => self.on_ready(id, now, out),
            Done::CleanedUp(id, remains, cost) => {
                self.next_scan = self.next_scan.max(now + cost * SCAN_SHARE);
                self.on_cleaned_up(id, remains, now, out);
            }
            Done::Sampled(samples, oom_kills) => self.on_sampled(samples, oom_kills, now, out),
            Done::Swept(strangers, cost) => self.sweeping.on_swept(strangers, cost, now),
        }
    }

    fn watch_by_thread(&self, id: u64) {
        let Some(State::Running(launched)) = self.live.get(&id).map(|live| &live.state) else {
            return;
        };
        let (pid, answers) = (launched.pid, self.answers.clone());
        let wait = move || {
            sys::wait_for_end(pid);
            answers.send(Done::LeaderEnded(id));
        };
        if let Err(error) = std::thread::Builder::new().stack_size(64 << 10).spawn(wait) {
            // Unwatched it would never end for us: better to end it now than to hang for ever.
            tracing::error!(%error, "cannot watch a process");
            let _ = sys::signal_group(pid, Signal::KILL);
            sys::wait_for_end(pid);
            self.answers.send(Done::LeaderEnded(id));
        }
    }

    fn on_launched(
        &mut self,
        id: u64,
        launched: Launched,
        now: Instant,
        out: &mut Vec<ProcessEvent>,
    ) {
        let pid = launched.pid;
        let Some(live) = self.live.get_mut(&id) else { return };
        // First at half of its time: what it does from then on tells whether it is still at work.
        let half = live.order.time_limit.map(|limit| launched.started + limit / 2);
        out.push(ProcessEvent::Started { id, pid, at_ms: launched.started_ms });
        live.state = State::Running(launched);
        match &live.stop {
            None => self.set_alarm(id, half),
            Some(stop) => {
                let (asked, _) = self.rules.request(&stop.reason);
                let signal = if stop.kill_at <= now { Signal::KILL } else { asked };
                self.signal(id, signal, &mut None, now);
            }
        }
    }

    fn on_not_launched(&mut self, id: u64, error: LaunchError, out: &mut Vec<ProcessEvent>) {
        let Some(live) = self.live.remove(&id) else { return };
        let at_ms = time::now_ms();
        out.push(ProcessEvent::Ended(Box::new(ProcessExit {
            id,
            how: How::NotStarted(error),
            started_ms: at_ms,
            ended_ms: at_ms,
            wall: Duration::ZERO,
            cpu: Duration::ZERO,
            peak_memory_bytes: 0,
            usage: SampledUsage::default(),
            stop: live.stop.map(|stop| stop.reason),
            journal: Vec::new(),
            memory: None,
            machine_oom: false,
            survivors: Vec::new(),
            recent: None,
        })));
    }

    fn on_leader_end(
        &mut self,
        id: u64,
        mut launched: Launched,
        now: Instant,
        out: &mut Vec<ProcessEvent>,
    ) {
        self.set_alarm(id, None);
        // Closed, it is out of the poller.
        launched.pidfd = None;
        let pid = launched.pid;
        let keeps_grace =
            self.live.get(&id).and_then(|l| l.stop.as_ref()).is_some_and(|s| !s.is_killed);
        if !keeps_grace && let Err(error) = sys::signal_group(pid, Signal::KILL) {
            // While the leader is not reaped its number cannot belong to another group.
            tracing::warn!(pid, %error, "cannot end the rest of a process group");
        }
        let Reap::Ended(Reaped { status, cpu, max_rss_bytes, .. }) = sys::reap(pid) else {
            // Another part of this process has waited for it: nothing is known, which must not
            // look like success.
            tracing::error!(pid, "a child was reaped by another part of this process");
            let error = LaunchError {
                message: format!("the end of process {pid} was missed"),
                return_code: 127,
                detail: None,
            };
            self.on_not_launched(id, error, out);
            return;
        };
        torc_failpoint::hit("runner.after_exit");
        let is_sigkill =
            status.signal() == Some(libc::SIGKILL) || status.code() == Some(128 + libc::SIGKILL);
        let machine_oom = is_sigkill && self.sampling.machine_oom_since_last_look();
        // A child begins in our own address space, and the kernel counts that as its peak: only
        // more than ours is its own.
        let max_rss_bytes = if max_rss_bytes > sys::own_peak_rss() { max_rss_bytes } else { 0 };
        let mut gone = Gone {
            status,
            cpu,
            max_rss_bytes,
            at: now,
            at_ms: time::now_ms(),
            machine_oom,
            group_is_alive: false,
        };
        gone.group_is_alive = reap_rest(pid, &mut gone.cpu);
        if gone.group_is_alive && keeps_grace {
            if let Some(live) = self.live.get_mut(&id) {
                live.state = State::Lingering(launched, gone);
            }
            self.set_alarm(id, Some(now + LINGER_POLL));
        } else {
            self.clean_up(id, launched, gone, now, out);
        }
    }

    fn clean_up(
        &mut self,
        id: u64,
        mut launched: Launched,
        gone: Gone,
        now: Instant,
        out: &mut Vec<ProcessEvent>,
    ) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let ran = gone.at.saturating_duration_since(launched.started);
        // A failed attempt may be tried again at once, and must not find its own escapees alive.
        let guard = self.sweeping.guard.load(Ordering::SeqCst);
        let may_be_retried = || !gone.status.success() && cleanup::has_orphans(guard);
        let scan =
            live.stop.is_some() || (ran >= SCAN_FROM && now >= self.next_scan) || may_be_retried();
        if !scan {
            self.sweeping.ended.insert(id);
        }
        let (cgroup, group_was_alive) = (launched.group.take(), gone.group_is_alive);
        if scan || group_was_alive || cgroup.is_some() {
            let ended =
                Ended { id, pgid: launched.pid, group_was_alive, cgroup, scan, at: gone.at };
            live.state = State::CleaningUp(launched, gone);
            let (scanner, answers) = (self.scanner.clone(), self.answers.clone());
            let setup = self.setup.clone();
            self.tasks.push(move || {
                let start = Instant::now();
                let remains = cleanup::clean_up(&scanner, &setup.owner, ended);
                answers.send_quietly(Done::CleanedUp(
                    id,
                    remains,
                    if scan { start.elapsed() } else { Duration::ZERO },
                ));
                FollowUp::Now
            });
        } else {
            live.state = State::CleaningUp(launched, gone);
            self.on_cleaned_up(id, Remains::default(), now, out);
        }
        // Even after a scan: an orphan without a tag is known only by being seen twice.
        self.sweeping.plan(now);
    }

    fn on_cleaned_up(
        &mut self,
        id: u64,
        remains: Remains,
        now: Instant,
        out: &mut Vec<ProcessEvent>,
    ) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(alarm) = live.alarm {
            self.alarms.remove(&(alarm, id));
        }
        let State::CleaningUp(launched, gone) = live.state else { return };
        if remains.memory.is_some_and(|memory| memory.oom_kills > 0) {
            // These kills are accounted for; the next death of SIGKILL must not be blamed on them.
            self.sampling.forget_oom_kills();
        }
        if !remains.survivors.is_empty() {
            tracing::error!(pids = ?remains.survivors, "processes did not end although they were killed");
            self.sweeping.ended.insert(id);
            self.sweeping.plan(now);
        }
        let how = match (gone.status.code(), gone.status.signal()) {
            (Some(code), _) => How::Code(code),
            (None, Some(signal)) => How::Signal(signal),
            (None, None) => How::Code(gone.status.into_raw()),
        };
        out.push(ProcessEvent::Ended(Box::new(ProcessExit {
            id,
            how,
            started_ms: launched.started_ms,
            ended_ms: gone.at_ms,
            wall: gone.at.saturating_duration_since(launched.started),
            cpu: gone.cpu + remains.cpu,
            peak_memory_bytes: live.usage.peak_memory_bytes.max(gone.max_rss_bytes),
            usage: live.usage,
            stop: live.stop.map(|stop| stop.reason),
            journal: live.journal,
            memory: remains.memory,
            machine_oom: gone.machine_oom,
            survivors: remains.survivors,
            recent: live.recent,
        })));
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Instant, out: &mut Vec<ProcessEvent>) {
        // The caller has just looked.
        self.next_look = self.next_look.filter(|at| *at > now);
        while let Some((at, id)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, id));
            if let Some(live) = self.live.get_mut(&id) {
                live.alarm = None;
                self.on_alarm(id, now, out);
            }
        }
        if self.sampling.next_alarm().is_some_and(|at| at <= now) {
            self.take_sample(now);
        }
        if self.sweeping.next_alarm().is_some_and(|at| at <= now) {
            self.take_sweep();
        }
    }

    fn on_alarm(&mut self, id: u64, now: Instant, out: &mut Vec<ProcessEvent>) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let must_kill =
            live.stop.as_ref().is_some_and(|stop| stop.is_killed || stop.kill_at <= now);
        match (&mut live.state, live.order.time_limit) {
            (State::Running(launched), Some(limit)) if live.stop.is_none() => {
                let (pid, deadline) = (launched.pid, launched.started + limit);
                self.look(id, pid, now);
                match now < deadline {
                    true => self.set_alarm(id, Some(deadline)),
                    false => self.stop(&[id], &StopReason::Timeout { limit }, now),
                }
            }
            (State::Running(_), _) => self.signal(id, Signal::KILL, &mut None, now),
            (State::Lingering(launched, gone), _) => {
                gone.group_is_alive = reap_rest(launched.pid, &mut gone.cpu);
                if gone.group_is_alive && !must_kill {
                    self.set_alarm(id, Some(now + LINGER_POLL));
                    return;
                }
                if must_kill {
                    self.signal(id, Signal::KILL, &mut None, now);
                    self.set_alarm(id, None);
                }
                let Some(live) = self.live.get_mut(&id) else { return };
                if let State::Lingering(launched, gone) =
                    std::mem::replace(&mut live.state, State::Starting)
                {
                    self.clean_up(id, launched, gone, now, out);
                }
            }
            (State::Starting | State::CleaningUp(..), _) => {}
        }
    }

    /// Looks at what a process with a limit on its time has done so far.
    fn look(&mut self, id: u64, pid: i32, now: Instant) {
        let Ok(table) = self.scanner.table_since(now) else { return };
        let tree = observe::tree(&table, &self.setup.owner, id, pid);
        let look = Look::at(&tree, table.taken);
        let Some(live) = self.live.get_mut(&id) else { return };
        match &live.look {
            None => live.look = Some(look),
            Some(earlier) => live.recent = Some(look.since(earlier, &tree)),
        }
    }
}

/// Reaps what has died of a group whose leader is gone; adds its CPU time. Answers whether some of
/// it still lives.
fn reap_rest(pgid: i32, cpu: &mut Duration) -> bool {
    loop {
        match sys::reap_group(pgid) {
            Reap::Ended(reaped) => *cpu += reaped.cpu,
            Reap::Alive => return true,
            Reap::NoChild => return false,
        }
    }
}

#[cfg(test)]
mod tests;

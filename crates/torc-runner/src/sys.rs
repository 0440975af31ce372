//! The operating system, as far as no safe library offers it in the form we need. The only module
//! with unsafe code.
#![expect(
    unsafe_code,
    reason = "no safe library tells what a child used, or starts one without copying or stopping us"
)]

mod linux;
mod start;

#[cfg(test)]
pub use start::Std;
pub use start::{KernelLimits, Program, Spawn, SpawnError, Strings};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// Programs are started by the standard library, where this variable is set: for kernels and
/// sandboxes that do not know the quicker way.
const PLAIN_START: &str = "TORC_PLAIN_START";

/// How this process starts programs.
pub fn way_to_start() -> &'static dyn Spawn {
    match std::env::var_os(PLAIN_START) {
        Some(_) => &start::Std,
        None => &linux::Linux,
    }
}

/// A child that has ended and been reaped.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    /// How it ended.
    pub status: ExitStatus,
    /// User and system time, its waited-for descendants included.
    pub cpu: Duration,
    /// Highest memory of the largest single process of them.
    pub max_rss_bytes: u64,
}

/// What became of an attempt to reap.
#[derive(Clone, Copy, Debug)]
pub enum Reap {
    /// One child is gone.
    Ended(Reaped),
    /// There are such children, and all of them live.
    Alive,
    /// There is no such child.
    NoChild,
}

/// Host names by `/etc/hosts` and DNS only, whatever `nsswitch.conf` says.
///
/// A program that contains the C library would load the modules named there into itself, and with them a second C library of
/// another version, which may end it. Files and DNS it has inside.
#[cfg(target_env = "gnu")]
pub fn resolve_without_modules() {
    unsafe extern "C" {
        fn __nss_configure_lookup(
            database: *const libc::c_char,
            services: *const libc::c_char,
        ) -> libc::c_int;
    }
    // SAFETY: both are constant texts that end with a zero byte, and the call copies what it keeps. Called before any thread.
    unsafe {
        __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
    }
}

/// Ends this process by SIGINT, as if it had never handled it. A shell leaves a loop only when its
/// command died of the signal: an exit code of 130 does not tell bash that.
pub fn die_of_interrupt() {
    // SAFETY: both calls take plain numbers. The process ends here, so that no handler is missed.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::raise(libc::SIGINT);
    }
}

/// Reaps the child `pid`, without waiting.
pub fn reap(pid: i32) -> Reap {
    wait4(pid)
}

/// Reaps any one child in the process group, without waiting.
pub fn reap_group(pgid: i32) -> Reap {
    wait4(-pgid)
}

/// The most memory this process has had resident.
pub fn own_peak_rss() -> u64 {
    // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, writable variable of the right type.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0;
    if failed { 0 } else { u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024 }
}

fn wait4(target: i32) -> Reap {
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live, writable variables of the right type.
        let pid = unsafe { libc::wait4(target, &raw mut status, libc::WNOHANG, &raw mut usage) };
        return match pid {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
            -1 => Reap::NoChild,
            0 => Reap::Alive,
            _ => Reap::Ended(Reaped {
                status: ExitStatus::from_raw(status),
                cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
                max_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            }),
        };
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// The child has ended and waits to be reaped.
pub fn has_ended(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// Waits until the child has ended; it stays to be reaped.
pub fn wait_for_end(pid: i32) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(WaitId::Pid(pid), options) {}
}

/// Signals a whole process group. A group that is gone is no error.
pub fn signal_group(pgid: i32, signal: Signal) -> io::Result<()> {
    // 0 and 1 would mean our own group and the init process.
    let Some(pid) = Pid::from_raw(pgid).filter(|p| p.as_raw_nonzero().get() > 1) else {
        return Ok(());
    };
    ignore_gone(rustix::process::kill_process_group(pid, signal))
}

/// Signals one process by number: a child that was not reaped, whose number is its own.
pub fn signal_process(pid: i32, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid).filter(|p| p.as_raw_nonzero().get() > 1) else {
        return Ok(());
    };
    ignore_gone(rustix::process::kill_process(pid, signal))
}

fn ignore_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A descriptor for a process: readable once it has ended, and never mistaken for another process
/// with its number.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// From now on orphans among our descendants become our children instead of init's, so that they
/// can be found.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Time since boot, suspended time included: what a lease is measured by.
pub fn boottime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Host name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Our process group, as `/proc` numbers it: 0 when its leader is outside of our container, which
/// rustix takes for impossible.
pub fn own_group() -> i32 {
    // SAFETY: it takes no arguments, touches no memory and cannot fail.
    unsafe { libc::getpgrp() }
}

/// Waits for many descriptors at once; each is known by a number. Several threads may wait; one of
/// them is told.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// Nothing to wait for yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Waits for `fd` to become readable, too, and tells one of those who wait each time it does,
    /// whether or not a thread reads. Closing `fd` takes it out again.
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags)?)
    }

    /// Waits for `fd` to be readable, and tells it once: for what stays readable for ever.
    pub fn add_once(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags)?)
    }

    /// Waits until something is readable or the time is up; appends the keys to `ready`.
    pub fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<()> {
        let timeout = timeout.map(|t| rustix::event::Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }
}

/// Wakes a [`Poller`] from another thread.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// Not yet rung.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Makes the poller return.
    pub fn signal(&self) {
        // The only failure is a counter that is full, and then the poller wakes anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Wakes a [`Poller`] at a time.
#[derive(Debug)]
pub struct Alarm {
    fd: OwnedFd,
}

impl Alarm {
    /// Not yet set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self { fd: rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Makes the poller return after this time, and no more at the time before.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would mean never.
        let after = after.max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(after.subsec_nanos()),
        };
        let times = Itimerspec { it_interval: zero, it_value };
        rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A signal by its name, with or without `SIG`, or by its number.
pub fn signal_by_name(name: &str) -> Option<Signal> {
    let number = torc_model::signal::number(name)?;
    Signal::from_named_raw(i32::try_from(number).ok()?)
}

/// The name of a signal number, for people.
pub fn signal_name(signal: i32) -> String {
    torc_model::signal::name(i64::from(signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn spawn(script: &str) -> i32 {
        i32::try_from(Command::new("/bin/sh").arg("-c").arg(script).spawn().unwrap().id()).unwrap()
    }

    #[test]
    fn a_child_is_reaped_with_its_usage() {
        let pid = spawn("exit 7");
        wait_for_end(pid);
        assert!(has_ended(pid));
        let Reap::Ended(reaped) = reap(pid) else { panic!("not reaped") };
        assert_eq!(reaped.status.code(), Some(7));
        assert!(reaped.max_rss_bytes > 100_000);
        assert!(matches!(reap(pid), Reap::NoChild));
        assert!(!has_ended(pid));
    }

    #[test]
    fn a_poller_sees_the_end_of_a_child_and_a_ring() {
        let pid = spawn("exec sleep 100");
        let pidfd = pidfd_open(pid).unwrap();
        let wake = Wake::new().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&pidfd, 5).unwrap();
        poller.add(&wake, 6).unwrap();
        let mut ready = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
        wake.signal();
        poller.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [6]);
        ready.clear();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty(), "a ring is told once");
        assert!(matches!(reap(pid), Reap::Alive));
        signal_process(pid, Signal::KILL).unwrap();
        poller.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [5]);
        let Reap::Ended(reaped) = reap(pid) else { panic!("not reaped") };
        assert_eq!(reaped.status.signal(), Some(9));
        signal_process(pid, Signal::KILL).unwrap();
    }

    #[test]
    fn an_alarm_goes_off_once_each_time_it_is_set() {
        let alarm = Alarm::new().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&alarm, 3).unwrap();
        let mut ready = Vec::new();
        for _ in 0..3 {
            alarm.set(Duration::from_secs(1000)).unwrap();
            alarm.set(Duration::from_millis(1)).unwrap();
            poller.wait(None, &mut ready).unwrap();
            poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
            assert_eq!(std::mem::take(&mut ready), [3]);
        }
        alarm.set(Duration::ZERO).unwrap();
        poller.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [3], "now is not never");
    }

    #[test]
    fn signals_are_known_by_name() {
        assert_eq!(signal_by_name("SIGTERM"), Some(Signal::TERM));
        assert_eq!(signal_by_name("usr1"), Some(Signal::USR1));
        assert_eq!(signal_by_name("SIGALRM"), Some(Signal::ALARM));
        assert_eq!(signal_by_name("SIGFOO"), None);
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
    }
}

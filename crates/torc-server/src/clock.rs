//! The wall clock, in the unit of the database, and the clock by which silence is measured.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970. A clock before that year reads 0.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds since this machine was started, sleep included. No user or daemon can set it: a
/// lease is measured by it.
pub fn boottime_ms() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

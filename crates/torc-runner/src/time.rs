//! The wall clock, for people. Everything that is measured is measured with [`std::time::Instant`].

use std::time::SystemTime;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

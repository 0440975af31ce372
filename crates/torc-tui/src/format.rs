//! Numbers, times and states in the words of the page (`torc-server/page/format.js`).

use jiff::Timestamp;
use jiff::tz::TimeZone;
use torc_model::recovery::Kind;
use torc_model::status::JobStatus;
pub use torc_model::words::{count, grouped};

/// From done to not begun: the order of a bar's parts.
pub const BAR_ORDER: [JobStatus; 11] = [
    JobStatus::Completed,
    JobStatus::Disabled,
    JobStatus::Running,
    JobStatus::Pending,
    JobStatus::Ready,
    JobStatus::Blocked,
    JobStatus::Uninitialized,
    JobStatus::Canceled,
    JobStatus::Terminated,
    JobStatus::PendingFailed,
    JobStatus::Failed,
];

/// Statuses that need a person.
pub const BAD: [JobStatus; 3] =
    [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];

/// Jobs by status, by the status' integer.
pub type StatusCounts = [i64; 11];

/// Jobs that failed in one of the ways that need a person.
pub fn bad(counts: &StatusCounts) -> i64 {
    BAD.iter().map(|status| counts[*status as usize]).sum()
}

/// Jobs in this status.
pub fn of(counts: &StatusCounts, status: JobStatus) -> i64 {
    counts[status as usize]
}

/// A status in the page's word for it.
pub const fn word(status: JobStatus) -> &'static str {
    match status {
        JobStatus::PendingFailed => "needs a verdict",
        JobStatus::Pending => "starting",
        other => other.as_str(),
    }
}

/// One letter for narrow screens.
pub const fn letter(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Uninitialized => "U",
        JobStatus::Blocked => "B",
        JobStatus::Ready => "Y",
        JobStatus::Pending => "S",
        JobStatus::Running => "R",
        JobStatus::Completed => "C",
        JobStatus::Failed => "F",
        JobStatus::Canceled => "X",
        JobStatus::Terminated => "T",
        JobStatus::Disabled => "D",
        JobStatus::PendingFailed => "V",
    }
}

/// `12 ms`, `3.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "–".into();
    }
    let seconds = seconds.max(0.0);
    if seconds < 0.0995 {
        return format!("{:.0} ms", seconds * 1000.0);
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let (d, h, m, s) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, _) => format!("{m} min {s:02} s"),
        (0, _, _) => format!("{h} h {m:02} min"),
        _ => format!("{d} d {h} h"),
    }
}

/// The same, or a dash.
pub fn maybe_duration(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".into(), duration)
}

/// `512 B`, `1.5 MiB`, `12 GiB`.
pub fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes.max(0) as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit > 0 && value < 10.0 {
        true => format!("{value:.1} {}", UNITS[unit]),
        false => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// `14:05:09`, with the day unless it is today.
pub fn clock(ms: i64, now_ms: i64, zone: &TimeZone) -> String {
    let local = |ms| Timestamp::from_millisecond(ms).map(|time| time.to_zoned(zone.clone()));
    match (local(ms), local(now_ms)) {
        (Ok(time), Ok(now)) if time.date() == now.date() => time.strftime("%H:%M:%S").to_string(),
        (Ok(time), _) => time.strftime("%b %-d %H:%M:%S").to_string(),
        (Err(_), _) => "–".into(),
    }
}

/// `now`, or how long ago.
pub fn ago(ms: i64, now_ms: i64) -> String {
    let seconds = (now_ms - ms) as f64 / 1000.0;
    if seconds < 5.0 { "now".into() } else { format!("{} ago", duration(seconds)) }
}

/// The kinds of failures in plain words.
pub fn kind_title(kind: Kind) -> String {
    let known = match kind {
        Kind::Oom => "Out of memory",
        Kind::GpuOom => "Out of GPU memory",
        Kind::Timeout => "Ran out of time",
        Kind::Walltime => "The allocation's time was over",
        Kind::Lost => "Lost with its runner",
        Kind::NodeFail => "The node failed",
        Kind::MissingOutput => "An output file is missing",
        Kind::DiskFull => "The disk is full",
        Kind::SpawnError => "Could not be started",
        Kind::Unknown => "Failed",
        other => {
            let text = other.as_str().replace('_', " ");
            let mut chars = text.chars();
            let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
            return first + chars.as_str();
        }
    };
    known.to_owned()
}

/// A value for the filter language.
pub fn quoted(text: &str) -> String {
    match text.contains(char::is_whitespace) {
        true => format!("\"{text}\""),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_on_the_page() {
        let cases = [(0.02, "20 ms"), (3.44, "3.4 s"), (12.2, "12 s"), (200.0, "3 min 20 s")];
        for (seconds, text) in cases.into_iter().chain([(7500.0, "2 h 05 min"), (1e5, "1 d 3 h")]) {
            assert_eq!(duration(seconds), text);
        }
        for (size, text) in [(0, "0 B"), (1536, "1.5 KiB"), (12 << 30, "12 GiB")] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn a_time_of_another_day_names_it() {
        let day = 86_400_000;
        assert_eq!(clock(3_661_000, 3_700_000, &TimeZone::UTC), "01:01:01");
        assert_eq!(clock(3_661_000, 2 * day, &TimeZone::UTC), "Jan 1 01:01:01");
    }
}

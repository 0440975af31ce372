//! Times, sizes and counts in the words of people.

use jiff::{Timestamp, tz::TimeZone};
use torc_model::units::{Memory, Runtime};
pub use torc_model::words::{count, grouped};

/// `0.4s`, `12s`, `3m 20s`, `2h 05m`, `3d 4h`.
pub fn seconds(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    let whole = seconds.round() as u64;
    let (d, h, m, s) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m {s:02}s"),
        (0, _, _) => format!("{h}h {m:02}m"),
        _ => format!("{d}d {h}h"),
    }
}

/// A duration as the API writes it (`PT1M30S`), for people; what is none stays as it is.
pub fn duration(text: &str) -> String {
    Runtime::parse(text).map_or_else(|_| text.to_owned(), |time| seconds(time.0 as f64))
}

/// A size as the API writes it (`100m`), for people; what is none stays as it is.
pub fn size(text: &str) -> String {
    let bytes_of = |size: Memory| i64::try_from(size.0).map(bytes).ok();
    Memory::parse(text).ok().and_then(bytes_of).unwrap_or_else(|| text.to_owned())
}

/// The same without tenths, for what is only shown while it changes.
pub fn rough_seconds(value: f64) -> String {
    if value < 9.95 { format!("{:.0}s", value.max(0.0)) } else { seconds(value) }
}

/// `512 B`, `1.5 MiB`, `12 GiB`.
pub fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes.max(0) as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Local time to the second with its zone: `2026-03-01 14:05:09 CET`.
pub fn local_time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        Err(_) => format!("{ms} ms"),
    }
}

/// The time from then (ms since 1970) to now.
pub fn since(ms: i64) -> String {
    seconds((now_ms() - ms) as f64 / 1000.0)
}

/// How long ago, roughly: `12s`, `5m`, `3h`, `12d`.
pub fn age(ms: i64) -> String {
    let seconds = ((now_ms() - ms) / 1000).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Milliseconds since 1970, now.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let cases = [
            (0.0, "0.0s"),
            (9.94, "9.9s"),
            (9.96, "10s"),
            (59.6, "1m 00s"),
            (200.0, "3m 20s"),
            (7500.0, "2h 05m"),
            (100_000.0, "1d 3h"),
            (-3.0, "0.0s"),
        ];
        for (value, text) in cases {
            assert_eq!(seconds(value), text);
        }
    }

    #[test]
    fn sizes_read_well() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (12 << 30, "12.0 GiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }
}

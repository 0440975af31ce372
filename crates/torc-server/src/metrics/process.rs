//! This process, as the kernel sees it.

/// When it started, in seconds since 1970: the first question is asked early.
pub fn started_seconds() -> f64 {
    static STARTED: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = crate::clock::now_ms() as f64 / 1000.0;
        age_seconds().map_or(now, |age| now - age)
    })
}

fn age_seconds() -> Option<f64> {
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold anything; the start is the 22nd field, in clock ticks.
    let rest = &line[line.rfind(')')? + 2..];
    let ticks: f64 = rest.split(' ').nth(19)?.parse().ok()?;
    let started = ticks / rustix::param::clock_ticks_per_second() as f64;
    Some(crate::clock::boottime_ms() as f64 / 1000.0 - started)
}

/// Memory that it has.
pub fn resident_bytes() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = line.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// File descriptors in use; the one that looks is among them.
pub fn open_files() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

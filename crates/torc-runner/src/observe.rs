//! Looks at a failed attempt beside its end: parts of what it wrote, and whether it was at work when
//! its time was over.

use crate::connection;
use crate::monitor;
use crate::supervisor::ProcessExit;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Instant, SystemTime};
use torc_fence::procfs::{Process, TICKS_PER_SECOND};
use torc_model::recovery::{Excerpt, Observed, Stream, may_matter};

/// So much of the beginning of a stream is kept.
const HEAD_BYTES: u64 = 2 << 10;
/// So much of the end of standard error, and half as much of standard output.
const TAIL_BYTES: u64 = 16 << 10;
/// So far before the end lines are looked for that may matter.
const SEARCHED_BYTES: u64 = 1 << 20;
/// So much of them is kept.
const FOUND_BYTES: usize = 4 << 10;
/// A longer line is data, not a message.
const LONGEST_LINE: usize = 2 << 10;
/// Where so many processes stood is told.
const STANDS: usize = 8;

/// What the processes of an attempt had done up to a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Look {
    at: Instant,
    cpu_seconds: f64,
    io_bytes: u64,
    wakeups: u64,
}

/// What they did between two looks, and where they stood at the second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recent {
    seconds: f64,
    cpu_seconds: f64,
    io_bytes: u64,
    wakeups: u64,
    would_go_on: bool,
    awaited_peer: Option<String>,
    stands: Vec<String>,
}

impl Look {
    /// At these processes.
    pub fn at(tree: &[Process], at: Instant) -> Self {
        let cpu_seconds = tree.iter().map(|p| p.ticks).sum::<u64>() as f64 / TICKS_PER_SECOND;
        Self {
            at,
            cpu_seconds,
            io_bytes: tree.iter().filter_map(|p| io_bytes(p.pid)).sum(),
            wakeups: tree.iter().map(|p| wakeups(p.pid)).sum(),
        }
    }

    /// What was done since an earlier look.
    pub fn since(&self, earlier: &Self, tree: &[Process]) -> Recent {
        Recent {
            seconds: self.at.saturating_duration_since(earlier.at).as_secs_f64(),
            cpu_seconds: (self.cpu_seconds - earlier.cpu_seconds).max(0.0),
            io_bytes: self.io_bytes.saturating_sub(earlier.io_bytes),
            wakeups: self.wakeups.saturating_sub(earlier.wakeups),
            would_go_on: tree.iter().any(|p| would_go_on(p.pid)),
            awaited_peer: connection::awaited_peer(tree),
            stands: tree.iter().take(STANDS).filter_map(|p| stand(p.pid)).collect(),
        }
    }
}

/// Bytes that a process has read and written by system calls, sockets and pipes included.
fn io_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let number = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    Some(number("rchar:")? + number("wchar:")?)
}

/// How often the threads of a process have waited for something and were woken.
fn wakeups(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .filter_map(|text| {
            let key = "voluntary_ctxt_switches:";
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        })
        .sum()
}

/// It is ready to run, or sleeps for a set time; the kernel names the function it waits in.
fn would_go_on(pid: i32) -> bool {
    let sleeps = || {
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        wchan.contains("nanosleep")
    };
    state(pid) == Some('R') || sleeps()
}

/// The kernel's letter for what a process does.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim().chars().next()
}

/// Where a process stands: its name, what it waits for in the kernel, and its last open files.
fn stand(pid: i32) -> Option<String> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let name = read("comm")?;
    let state = state(pid).unwrap_or('?');
    let waits = read("wchan").filter(|w| !w.trim().is_empty() && w.trim() != "0");
    let waits = waits.map_or_else(String::new, |w| format!(", waits in {}", w.trim()));
    let mut open: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
        .filter(|path| {
            path.starts_with('/') && !path.starts_with("/dev/") || path.starts_with("socket:")
        })
        .collect();
    open.sort();
    open.dedup();
    open.truncate(4);
    let files =
        if open.is_empty() { String::new() } else { format!("; open: {}", open.join(", ")) };
    Some(format!("{} ({pid}) in state {state}{waits}{files}", name.trim()))
}

/// What is known of a failed attempt beside its end.
pub fn observed(
    exit: Option<&ProcessExit>,
    stdout: Option<&Path>,
    stderr: Option<&Path>,
) -> Observed {
    let mut observed = Observed::default();
    if let Some(path) = stderr {
        excerpts(path, Stream::Stderr, TAIL_BYTES, &mut observed.excerpts);
    }
    if let Some(path) = stdout.filter(|path| Some(*path) != stderr) {
        excerpts(path, Stream::Stdout, TAIL_BYTES / 2, &mut observed.excerpts);
    }
    let wrote = |path: &Path| {
        let data = fs::metadata(path).ok().filter(|data| data.len() > 0)?;
        SystemTime::now().duration_since(data.modified().ok()?).ok()
    };
    let now_ms = crate::time::now_ms();
    observed.silent_seconds = exit.map(|exit| {
        let since_end = (now_ms - exit.ended_ms).max(0) as f64 / 1000.0;
        let wall = exit.wall.as_secs_f64();
        let last = [stdout, stderr].into_iter().flatten().filter_map(wrote).min();
        last.map_or(wall, |ago| (ago.as_secs_f64() - since_end).clamp(0.0, wall))
    });
    if let Some(recent) = exit.and_then(|exit| exit.recent.as_ref()) {
        observed.recent_seconds = Some(recent.seconds);
        observed.recent_cpu_seconds = Some(recent.cpu_seconds);
        observed.recent_io_bytes = i64::try_from(recent.io_bytes).ok();
        observed.recent_wakeups = i64::try_from(recent.wakeups).ok();
        observed.would_go_on = recent.would_go_on;
        observed.awaited_peer = recent.awaited_peer.clone();
        observed.stands = recent.stands.clone();
    }
    observed
}

/// The beginning and the end of a file, and lines between that may be about an error.
fn excerpts(path: &Path, stream: Stream, tail_bytes: u64, out: &mut Vec<Excerpt>) {
    // A job may have put a FIFO or a link in its place: opening that must neither block nor lead
    // elsewhere.
    let Ok(mut file) = torc_fs::open(path, torc_fs::Trust::Log) else { return };
    let Ok(length) = file.metadata().map(|data| data.len()) else { return };
    let mut part = |start: u64, most: u64| -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(start)).is_ok()
            && (&mut file).take(most).read_to_end(&mut bytes).is_ok();
        if read { bytes } else { Vec::new() }
    };
    let mut keep = |start: u64, bytes: &[u8]| {
        if !bytes.is_empty() {
            let start = i64::try_from(start).unwrap_or(i64::MAX);
            out.push(Excerpt { stream, start, text: decoded(bytes) });
        }
    };
    if length <= HEAD_BYTES + tail_bytes {
        let all = part(0, HEAD_BYTES + tail_bytes);
        return keep(0, &all);
    }
    let head = part(0, HEAD_BYTES);
    keep(0, &head);
    let tail_start = length - tail_bytes;
    let middle_start = tail_start.saturating_sub(SEARCHED_BYTES).max(HEAD_BYTES);
    let middle = part(middle_start, tail_start - middle_start);
    let mut found: Vec<(u64, &[u8])> = Vec::new();
    let mut at = middle_start;
    for line in middle.split(|byte| *byte == b'\n') {
        if line.len() <= LONGEST_LINE && may_matter(&decoded(line)) {
            found.push((at, line));
        }
        at += line.len() as u64 + 1;
    }
    // The last of them are nearest to the end.
    let mut left = FOUND_BYTES;
    let first = found
        .iter()
        .rposition(|(_, line)| {
            let fits = line.len() <= left;
            left = left.saturating_sub(line.len());
            !fits
        })
        .map_or(0, |at| at + 1);
    for (start, line) in &found[first..] {
        keep(*start, line);
    }
    let tail = part(tail_start, tail_bytes);
    keep(tail_start, &tail);
}

/// As text in which every byte that is none is one byte still, so that places stay right.
fn decoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '\u{1a}'));
    }
    text
}

/// The processes of one attempt.
pub fn tree(
    table: &torc_fence::procfs::ProcessTable,
    owner: &torc_fence::RunnerOwner,
    id: u64,
    pid: i32,
) -> Vec<Process> {
    let watched = [monitor::Watched { id, pid, memory_limit: None }];
    monitor::members(table, owner, &watched).remove(&id).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_the_end_and_errors_between_are_kept_at_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("err");
        let mut text = String::from("begin\n");
        text += &"x".repeat(5000);
        text += "\nfatal: it failed here\n";
        text += &"worker stopped\n".repeat(4000);
        fs::write(&path, &text).unwrap();
        let mut out = Vec::new();
        excerpts(&path, Stream::Stderr, TAIL_BYTES, &mut out);
        assert_eq!(out.len(), 3, "{:?}", out.iter().map(|e| e.start).collect::<Vec<_>>());
        for excerpt in &out {
            let start = excerpt.start as usize;
            assert_eq!(&text[start..start + excerpt.text.len()], excerpt.text);
        }
        assert_eq!(out[1].text, "fatal: it failed here");
    }

    #[test]
    fn bytes_that_are_no_text_keep_their_places() {
        assert_eq!(decoded(b"a\xff\xfeb\xc3\xa9"), "a\u{1a}\u{1a}bé");
    }
}

//! What a dead runner of this host left: processes, found by the runner's tag and ended, and
//! results that it could not deliver.
//!
//! A runner's guard does this too, at once and on every host. Here it is what a retry waits for,
//! and what is left when the guard was killed as well. Processes of another user can not be seen;
//! there the guard has to do.

use crate::boot::identity;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};
use torc_fs::Trust;
use torc_model::api::CompletionReport;

/// Marks every process of an attempt in its environment: the runner's key, a slash, a number.
const TAG: &[u8] = b"TORC_ATTEMPT_TAG=";
/// Environments larger than this are not searched to their end.
const MAX_ENVIRON_BYTES: u64 = 1 << 20;
/// A process that was just being started when its runner died shows its tag only when its program
/// runs.
const SECOND_LOOK: Duration = Duration::from_millis(100);
/// Dying takes a moment, and no event tells of the end of a process that is not our child.
const PAUSE: Duration = Duration::from_millis(5);
/// A process that hangs in the kernel is waited for in the next round.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where runners keep results while the server does not answer: a file per runner below its output
/// directory.
const SPOOL: &str = ".torc_spool";
/// More than any runner keeps; what is beyond it is tried again like everything else that was lost.
const MAX_SPOOL_BYTES: u64 = 256 << 20;

/// The results that a runner wrote down for a server that did not answer. A torn last line is
/// passed over.
pub fn spooled(output_dir: &Path, key: &str) -> Vec<CompletionReport> {
    let path = output_dir.join(SPOOL).join(format!("{key}.jsonl"));
    let text = match torc_fs::read(&path, Trust::Log, MAX_SPOOL_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the results that a dead runner kept cannot be used");
            return Vec::new();
        }
    };
    // The first line says whose they are.
    text.split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

/// Which of these attempts have files, by how the names of those begin.
pub fn begun<'a>(
    output_dir: &Path,
    attempts: impl Iterator<Item = &'a str>,
) -> io::Result<HashSet<String>> {
    let attempts: HashSet<&str> = attempts.collect();
    let mut begun = HashSet::new();
    if attempts.is_empty() {
        return Ok(begun);
    }
    for entry in fs::read_dir(output_dir.join("job_stdio"))? {
        let name = entry?.file_name();
        // `job_wf1_j2_r1_a1.o`, `job_wf1_j2_r1_a1_steps.jsonl`: four parts and no more.
        let Some(name) = name.to_str() else { continue };
        let end = name.match_indices(['_', '.']).map(|(at, _)| at).nth(4).unwrap_or(name.len());
        begun.extend(attempts.get(&name[..end]).map(|name| (*name).to_owned()));
    }
    Ok(begun)
}

/// Ends the processes of these runners. Answers with the runners of which some are still there.
pub fn end(keys: &[String]) -> HashSet<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut is_first_look = true;
    loop {
        let found = find(keys);
        let now = Instant::now();
        if found.is_empty() && !is_first_look {
            return HashSet::new();
        }
        if now >= deadline {
            return found.into_iter().map(|(key, ..)| key).collect();
        }
        is_first_look = found.is_empty();
        for (key, pid, start) in &found {
            tracing::info!(pid, key, "ending a process that a dead runner left");
            kill(*pid, *start);
        }
        // Only a look that finds nothing a while after another one proves anything.
        std::thread::sleep(if is_first_look { SECOND_LOOK } else { PAUSE });
        is_first_look = !found.is_empty();
    }
}

/// Living processes with a tag of one of these runners: whose, number and start.
fn find(keys: &[String]) -> Vec<(String, u32, u64)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let tag = read_tag(pid)?;
        let key = keys.iter().find(|key| {
            tag.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
        })?;
        Some((key.clone(), pid, identity::pid_start(pid)?))
    })
    .collect()
}

fn read_tag(pid: u32) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(format!("/proc/{pid}/environ"))
        .ok()?
        .take(MAX_ENVIRON_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    text.split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(TAG).map(<[u8]>::to_vec))
}

/// Kills this process and no other that may have got its number since.
fn kill(pid: u32, start: u64) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    if identity::pid_start(pid) == Some(start)
        && let Err(error) = pidfd_send_signal(&pidfd, Signal::KILL)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(pid, %error, "can not end a process that a dead runner left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_attempt_has_begun_when_it_has_any_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let names =
            ["job_wf1_j2_r1_a1", "job_wf1_j2_r1_a11", "job_wf1_j3_r1_a1", "job_wf1_j4_r1_a1"];
        let at = dir.path();
        assert!(begun(at, names.into_iter()).is_err(), "without the directory nothing is known");
        fs::create_dir(dir.path().join("job_stdio")).expect("a directory");
        for file in ["job_wf1_j2_r1_a11.o", "job_wf1_j3_r1_a1_s0_t1.e", "other"] {
            fs::write(dir.path().join("job_stdio").join(file), "").expect("a file");
        }
        let found = begun(at, names.into_iter()).expect("it is there");
        assert_eq!(found, HashSet::from([names[1].to_owned(), names[2].to_owned()]));
    }

    #[test]
    fn only_what_carries_the_tag_of_a_dead_runner_is_ended() {
        let key = format!("dead{}", std::process::id());
        let spawn = |tag: String| {
            Command::new("sleep")
                .arg("100")
                .env("TORC_ATTEMPT_TAG", tag)
                .spawn()
                .expect("a process")
        };
        let (mut its, mut other) = (spawn(format!("{key}/1")), spawn(format!("{key}5/1")));
        assert_eq!(end(std::slice::from_ref(&key)), HashSet::new());
        assert!(!its.wait().expect("it has ended").success());
        assert!(other.try_wait().expect("looked").is_none(), "another runner's process lives");
        other.kill().expect("killed");
        other.wait().expect("it has ended");
    }
}

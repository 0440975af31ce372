//! Which runner process it was, so that a later one can tell whether it is gone and end what it
//! left.

use crate::procfs;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use torc_model::files::{RUNNERS as DIR, TOKENS, runner_record, runner_tokens};

const MAX_BYTES: u64 = 64 << 10;

/// Names a process for ever, on any host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Host name.
    pub hostname: String,
    /// Of the host: tells a reboot.
    pub boot_id: String,
    /// Process id.
    pub pid: i32,
    /// Start time in ticks since boot: tells a reused pid.
    pub pid_start: u64,
}

impl Identity {
    /// The identity of this process.
    pub fn own() -> Self {
        Self {
            hostname: sys::hostname(),
            boot_id: procfs::boot_id(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            pid_start: procfs::own_start().unwrap_or(0),
        }
    }

    /// It certainly runs no more. Of other hosts nothing is known.
    pub fn is_dead(&self) -> bool {
        let here = procfs::boot_id();
        if self.hostname != sys::hostname() {
            return false;
        }
        // Same boot, other space of process numbers (a container): nothing can be seen from here.
        let boot = |id: &str| id.split('/').next().map(str::to_owned);
        if boot(&self.boot_id) != boot(&here) {
            return true;
        }
        self.boot_id == here && !self.is_running()
    }

    /// A process of this host, which can be seen from here.
    pub fn is_here(&self) -> bool {
        self.hostname == sys::hostname() && self.boot_id == procfs::boot_id()
    }

    fn is_running(&self) -> bool {
        procfs::find_process(self.pid).is_some_and(|p| p.start == self.pid_start && !p.is_zombie)
    }
}

/// The files by which a runner is known to later ones; removed when it leaves in order.
pub struct Presence {
    record: PathBuf,
    /// Where the attempts' tokens are; only this user may enter it.
    pub token_dir: PathBuf,
}

impl Presence {
    /// Leaves word that this runner works here, and makes a place for the tokens of its jobs.
    pub fn announce(output_dir: &Path, key: &str, own: &Identity) -> io::Result<Self> {
        let dir = output_dir.join(DIR);
        torc_fs::make_private_dir(&dir)?;
        let presence =
            Self { record: dir.join(runner_record(key)), token_dir: dir.join(runner_tokens(key)) };
        torc_fs::make_private_dir(&presence.token_dir)?;
        torc_fs::write_new_private(&presence.record, &serde_json::to_vec(own)?)?;
        Ok(presence)
    }

    /// Takes it all back.
    pub fn withdraw(self) {
        remove(&self.record, &self.token_dir);
    }
}

/// Removes the files of a runner. The tokens first: the record tells the next runner of them.
fn remove(record: &Path, token_dir: &Path) {
    for (path, removed) in
        [(token_dir, fs::remove_dir_all(token_dir)), (record, fs::remove_file(record))]
    {
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a file of a runner");
        }
    }
}

/// Ends the processes of runners that died without ending them. Answers how many there were.
pub fn end_leftovers(output_dir: &Path) -> usize {
    let entries = fs::read_dir(output_dir.join(DIR)).into_iter().flatten().flatten();
    let mut killed = 0;
    for record in entries
        .map(|e| e.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
    {
        // What it says lets processes be ended: only this user's own word counts.
        let text = torc_fs::read(&record, torc_fs::Trust::Private, MAX_BYTES);
        let Some(owner) = text.ok().and_then(|text| serde_json::from_slice::<Identity>(&text).ok())
        else {
            continue;
        };
        let Some(key) = record.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if !owner.is_dead() {
            continue;
        }
        if owner.boot_id == procfs::boot_id() {
            let ended = torc_fence::end_runners(&[key], Duration::from_secs(10));
            let Some(ended) = ended.get(key) else { continue };
            killed += ended.killed.len();
            if !ended.survivors.is_empty() || !ended.was_seen {
                let survivors = &ended.survivors;
                tracing::error!(?survivors, "processes of a dead runner did not end");
                continue;
            }
        }
        remove(&record, &record.with_extension(TOKENS));
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    #[test]
    fn we_are_alive_and_another_start_or_boot_is_not_us() {
        let own = Identity::own();
        assert!(!own.is_dead());
        assert!(Identity { pid_start: own.pid_start + 1, ..own.clone() }.is_dead());
        assert!(Identity { boot_id: "other".into(), ..own.clone() }.is_dead());
        assert!(!Identity { hostname: "elsewhere".into(), pid_start: 1, ..own }.is_dead());
    }

    #[test]
    fn what_a_dead_runner_left_running_is_ended_and_a_living_one_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let dead = Identity { pid_start: 1, ..Identity::own() };
        let (gone, here) =
            (format!("gone{}", std::process::id()), format!("here{}", std::process::id()));
        Presence::announce(dir.path(), &gone, &dead).unwrap();
        let presence = Presence::announce(dir.path(), &here, &Identity::own()).unwrap();
        let mode = fs::metadata(&presence.token_dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(dir.path().join(DIR).join(format!("{gone}.{TOKENS}/1")), "t").unwrap();

        let spawn = |key: &str| {
            Command::new("setsid")
                .args(["sleep", "100"])
                .env(procfs::TAG, format!("{key}/1"))
                .spawn()
                .unwrap()
        };
        let (mut left, mut other) = (spawn(&gone), spawn(&here));
        assert_eq!(end_leftovers(dir.path()), 1);
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        // Killed by us and, because it is our child here, already reaped.
        assert!(left.wait().is_err() || !left.wait().unwrap().success());
        assert_eq!(end_leftovers(dir.path()), 0);
        presence.withdraw();
        assert_eq!(fs::read_dir(dir.path().join(DIR)).unwrap().count(), 0);
    }
}

//! Exclusive ownership of a database: one server, and a second one learns who has it.
//!
//! The lock file stands beside the database. The operating system's lock on it says whether an
//! owner lives; its content says who. The file is never removed, only emptied, so that two servers
//! cannot hold locks on two files of the same name.
//!
//! On a network file system the lock may hold on one machine only. There the content counts as
//! well: a record of another machine that was not emptied is respected until a person deletes the
//! file.

use super::error::StartError;
use super::file_system::FileSystem;
use super::{identity, private};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A record is far smaller; anything longer is not ours.
const MAX_RECORD_BYTES: u64 = 4096;

/// Who owns a database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Owner {
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Start of the process in clock ticks since boot: tells a reused process id.
    pub pid_start: Option<u64>,
    /// Of the host: tells a reboot.
    pub boot_id: Option<String>,
    /// Since when, ms since 1970.
    pub since_ms: i64,
}

impl Owner {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            host: identity::hostname(),
            pid,
            pid_start: identity::pid_start(pid),
            boot_id: identity::boot_id(),
            since_ms: crate::clock::now_ms(),
        }
    }

    /// Another process, on this machine and since its last boot, that still runs.
    fn lives_here(&self) -> bool {
        self.host == identity::hostname()
            && self.boot_id == identity::boot_id()
            && self.pid != std::process::id()
            && self.pid_start.is_some()
            && identity::pid_start(self.pid) == self.pid_start
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// Held for as long as a server owns its database.
#[derive(Debug)]
pub struct Lock {
    file: File,
    /// The owner before us, if it was not shut down cleanly.
    pub previous: Option<Owner>,
}

impl Lock {
    /// The lock file of a database.
    pub fn path(database: &Path) -> PathBuf {
        let mut name = database.as_os_str().to_os_string();
        name.push(".lock");
        name.into()
    }

    /// Takes the lock, or says who has it.
    pub fn acquire(database: &Path, file_system: &FileSystem) -> Result<Self, StartError> {
        let path = Self::path(database);
        let io = |doing| {
            let path = path.clone();
            move |source| StartError::Io { doing, path, source }
        };
        loop {
            let mut file = private::open_file(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let owner = read_record(&mut file).map_err(io("read"))?.map(Box::new);
                    return Err(StartError::Owned { database: database.into(), owner });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(StartError::NoLocks { lock: path, source });
                }
            }
            // Another process may have deleted the file between opening and locking: then this lock
            // protects nothing.
            if !is_still_at(&file, &path).map_err(io("look at"))? {
                continue;
            }
            let previous = read_record(&mut file).map_err(io("read"))?;
            if let Some(owner) = &previous {
                refuse_living(database, &path, owner, file_system)?;
            }
            write_record(&mut file, &Owner::this_process(), file_system).map_err(io("write"))?;
            return Ok(Self { file, previous });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // An empty file says that the shutdown was clean. If this fails, the next server finds
        // our record, sees that the process is gone, and goes on.
        let _ = self.file.set_len(0);
    }
}

/// We hold the operating system's lock, yet a record of an owner is there: it crashed, or the lock
/// is not worth much.
fn refuse_living(
    database: &Path,
    lock: &Path,
    owner: &Owner,
    file_system: &FileSystem,
) -> Result<(), StartError> {
    if owner.lives_here() {
        return Err(StartError::Owned {
            database: database.into(),
            owner: Some(Box::new(owner.clone())),
        });
    }
    match file_system {
        FileSystem::Network(_) if owner.host != identity::hostname() => {
            Err(StartError::OwnedElsewhere {
                database: database.into(),
                lock: lock.into(),
                owner: Box::new(owner.clone()),
            })
        }
        FileSystem::Network(_) | FileSystem::Local => Ok(()),
    }
}

fn is_still_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// None when the file is empty, or half written by an owner that died or is just being born.
fn read_record(file: &mut File) -> io::Result<Option<Owner>> {
    file.rewind()?;
    let mut text = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text).ok())
}

fn write_record(file: &mut File, owner: &Owner, file_system: &FileSystem) -> io::Result<()> {
    let text = serde_json::to_vec(owner)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)?;
    match file_system {
        // Other machines must see it.
        FileSystem::Network(_) => file.sync_all(),
        // Processes that the lock keeps away see it at once; when the machine stops, so does the
        // owner.
        FileSystem::Local => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nfs() -> FileSystem {
        FileSystem::Network("NFS".into())
    }

    fn leave_record(database: &Path, change: impl FnOnce(&mut Owner)) -> Owner {
        let mut owner = Owner::this_process();
        change(&mut owner);
        private::write_file(&Lock::path(database), &serde_json::to_vec(&owner).unwrap()).unwrap();
        owner
    }

    #[test]
    fn second_owner_is_refused_and_told_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("torc.db");
        let first = Lock::acquire(&database, &FileSystem::Local).unwrap();
        let error = Lock::acquire(&database, &FileSystem::Local).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("process {} on {}", std::process::id(), identity::hostname())),
            "{text}"
        );
        assert!(error.hint().unwrap().contains(&format!("kill {}", std::process::id())));
        drop(first);
        let next = Lock::acquire(&database, &FileSystem::Local).unwrap();
        assert_eq!(next.previous, None, "an owner that was shut down cleanly leaves no record");
    }

    #[test]
    fn record_of_a_dead_process_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("torc.db");
        for file_system in [FileSystem::Local, nfs()] {
            // A process id that is in use again, by a process with another start.
            let dead = leave_record(&database, |o| {
                o.pid = 1;
                o.pid_start = Some(u64::MAX);
            });
            assert_eq!(Lock::acquire(&database, &file_system).unwrap().previous, Some(dead));
            // A process id of an earlier boot.
            let rebooted = leave_record(&database, |o| {
                o.pid = 1;
                o.pid_start = identity::pid_start(1);
                o.boot_id = Some("earlier".into());
            });
            assert_eq!(Lock::acquire(&database, &file_system).unwrap().previous, Some(rebooted));
        }
    }

    #[test]
    fn record_of_a_living_process_is_respected_even_without_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("torc.db");
        leave_record(&database, |o| {
            o.pid = 1;
            o.pid_start = identity::pid_start(1);
        });
        assert!(matches!(
            Lock::acquire(&database, &nfs()),
            Err(StartError::Owned { owner: Some(_), .. })
        ));
    }

    #[test]
    fn record_of_another_machine_counts_only_where_other_machines_can_reach() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("torc.db");
        leave_record(&database, |o| o.host = "elsewhere".into());
        let error = Lock::acquire(&database, &nfs()).unwrap_err();
        assert!(matches!(error, StartError::OwnedElsewhere { .. }), "{error}");
        assert!(error.hint().unwrap().contains("torc.db.lock"));
        Lock::acquire(&database, &FileSystem::Local).unwrap();
    }

    #[test]
    fn garbage_in_the_lock_file_is_no_owner() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("torc.db");
        private::write_file(&Lock::path(&database), &vec![b'x'; 100_000]).unwrap();
        assert_eq!(Lock::acquire(&database, &FileSystem::Local).unwrap().previous, None);
    }
}

//! Files and directories that only their owner may see, whatever the umask says.

use super::error::StartError;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;

/// Makes sure that a directory exists, is ours, and is closed to other users.
pub fn ensure_directory(path: &Path) -> Result<(), StartError> {
    let io = |doing| move |source| StartError::Io { doing, path: path.to_path_buf(), source };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(io("make the directory above"))?;
    }
    match DirBuilder::new().mode(DIRECTORY).create(path) {
        // SQLite flushes names in this directory; that the directory itself is there is ours to flush.
        Ok(()) => {
            if let Err(error) = torc_fs::sync_names_above(path) {
                // One above that may not be read: its file system keeps names in an order of its own.
                tracing::debug!(%error, path = %path.display(), "cannot flush the directories above");
            }
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(io("make the directory")(e)),
    }
    let meta = std::fs::metadata(path).map_err(io("look at"))?;
    if !meta.is_dir() {
        return Err(io("use as a directory")(io::ErrorKind::NotADirectory.into()));
    }
    check_owner(path, meta.uid())?;
    if meta.mode() & 0o777 != DIRECTORY {
        std::fs::set_permissions(path, Permissions::from_mode(DIRECTORY))
            .map_err(io("close to others"))?;
    }
    Ok(())
}

/// Opens a file of ours for reading and writing, or makes it. Refuses one that is another user's or
/// that others may have changed; closes one that others could only read.
pub fn open_file(path: &Path) -> Result<File, StartError> {
    let io = |doing| move |source| StartError::Io { doing, path: path.to_path_buf(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE)
        // A FIFO in its place is refused below; until then it must not block the open.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(io("open"))?;
    let meta = file.metadata().map_err(io("look at"))?;
    if !meta.is_file() {
        return Err(io("use")(torc_fs::Distrust::NotRegular.into()));
    }
    check_owner(path, meta.uid())?;
    if meta.mode() & 0o022 != 0 && meta.len() > 0 {
        return Err(StartError::Writable { path: path.to_path_buf(), mode: meta.mode() & 0o777 });
    }
    if meta.mode() & 0o777 != FILE {
        file.set_permissions(Permissions::from_mode(FILE)).map_err(io("close to others"))?;
    }
    Ok(file)
}

/// Writes a file whole or not at all, private from the first byte on.
pub fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = temporary_name(path);
    let write = || {
        let mut file = create_new(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        torc_failpoint::hit("file.before_rename");
        std::fs::rename(&temporary, path)?;
        torc_failpoint::hit("file.after_rename");
        sync_parent(path)
    };
    write().inspect_err(|_| {
        // The first error is the one to tell; the leftover is harmless.
        let _ = std::fs::remove_file(&temporary);
    })
}

/// Makes a new private file; an old one in its place is an error.
pub fn create_new(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// A name beside `path` that no other process uses.
pub fn temporary_name(path: &Path) -> PathBuf {
    static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let now = crate::clock::now_ms();
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{number}-{now}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Makes a rename durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn check_owner(path: &Path, uid: u32) -> Result<(), StartError> {
    if uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(StartError::NotOurs { path: path.to_path_buf(), uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn directory_is_closed_even_when_it_was_open() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = dir.path().join("a/b");
        ensure_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o700);
        std::fs::set_permissions(&fresh, Permissions::from_mode(0o755)).unwrap();
        ensure_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o700);
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(ensure_directory(&path), Err(StartError::Io { .. })));
    }

    #[test]
    fn readable_files_are_closed_and_writable_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "content").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        open_file(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        for open in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let error = open_file(&path).unwrap_err();
            assert!(matches!(error, StartError::Writable { .. }), "{error}");
            assert!(error.hint().unwrap().contains("chmod 600"));
        }
    }

    #[test]
    fn files_are_replaced_whole_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        write_file(&path, b"one").unwrap();
        write_file(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

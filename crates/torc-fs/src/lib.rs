//! Opens files in places that other users or jobs may write to.
//!
//! Every production read or write of a path that this process did not make itself goes through
//! here. The checks are made on the open descriptor (`fstat`), never on the path before the open,
//! so that a rename between check and use changes nothing. `O_NONBLOCK` keeps a FIFO or a device
//! from blocking the open; what is not a regular file is refused before the first read.

mod config;
mod deadline;

pub use config::{config_files, user_config_dir};
pub use deadline::{Hangs, within};

use rustix::fs::{Mode, OFlags};
use std::fmt;
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Write permission of the group and of all others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory with this bit only the owner of a file may remove or rename it.
const STICKY: u32 = 0o1000;

/// Who must have made a file so that it may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Any regular file, through links: data that a spec, a job or a user names.
    Regular,
    /// A log that a runner made, perhaps as another user: a regular file under its one name, no
    /// link.
    Log,
    /// Configuration, through links: this user's or root's, and neither the file nor its directory
    /// is writable by others.
    Config,
    /// State of this user alone: no link, one name, not writable by others.
    Private,
}

/// Why a file or directory is not used. The path is the caller's to name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distrust {
    /// A FIFO, a socket, a device or a directory.
    NotRegular,
    /// A symbolic link in a place where none belongs.
    Link,
    /// The file has further names (hard links).
    HardLinks,
    /// It belongs to this other user.
    Owner(u32),
    /// Group or others may write to it; its mode.
    Writable(u32),
    /// Group or others may write to the directory that it is in; the directory's mode.
    WritableDirectory(u32),
    /// More bytes than allowed.
    TooLarge(u64),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str("it is not a regular file"),
            Self::Link => f.write_str("it is a symbolic link"),
            Self::HardLinks => f.write_str("it has more than one name (hard links)"),
            Self::Owner(uid) => write!(f, "it belongs to another user (uid {uid})"),
            Self::Writable(mode) => {
                write!(f, "group or others may write to it (mode {mode:03o}); `chmod go-w` it")
            }
            Self::WritableDirectory(mode) => write!(
                f,
                "group or others may write to its directory (mode {mode:03o}); `chmod go-w` that"
            ),
            Self::TooLarge(most) => write!(f, "it is larger than {most} bytes"),
        }
    }
}

impl std::error::Error for Distrust {}

impl From<Distrust> for io::Error {
    fn from(why: Distrust) -> Self {
        let kind = match why {
            Distrust::TooLarge(_) => io::ErrorKind::FileTooLarge,
            _ => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, why)
    }
}

/// Why an error of this crate was made, if it was.
pub fn distrust(error: &io::Error) -> Option<Distrust> {
    error.get_ref()?.downcast_ref::<Distrust>().copied()
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Opens a file for reading.
pub fn open(path: &Path, trust: Trust) -> io::Result<File> {
    if trust == Trust::Config {
        check_config_place(path)?;
    }
    let follow = match trust {
        Trust::Regular | Trust::Config => OFlags::empty(),
        Trust::Log | Trust::Private => OFlags::NOFOLLOW,
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(not_a_link)?);
    check(&file.metadata()?, trust)?;
    Ok(file)
}

/// The whole content of a file of at most `most` bytes.
pub fn read(path: &Path, trust: Trust, most: u64) -> io::Result<Vec<u8>> {
    read_file(open(path, trust)?, most)
}

/// The whole content of a file of at most `most` bytes, as text.
pub fn read_text(path: &Path, trust: Trust, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, trust, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads a private file inside a directory that must be private too. The directory is opened once,
/// so that both checks hold for what is read.
pub fn read_private_in(dir: &Path, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let dir = open_private_dir(dir)?;
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty()).map_err(not_a_link)?;
    let file = File::from(file);
    check(&file.metadata()?, Trust::Private)?;
    read_file(file, most)
}

fn read_file(file: File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(most)).unwrap_or(0));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(Distrust::TooLarge(most).into()),
        false => Ok(bytes),
    }
}

/// A directory belongs to this user and no other user may write to it. A link to one must be this
/// user's or root's.
pub fn check_private_dir(dir: &Path) -> io::Result<()> {
    open_private_dir(dir).map(drop)
}

fn open_private_dir(dir: &Path) -> io::Result<File> {
    check_link(dir)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(dir, flags, Mode::empty())?);
    let meta = dir.metadata()?;
    if meta.uid() != own_uid() {
        return Err(Distrust::Owner(meta.uid()).into());
    }
    match meta.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(dir),
        _ => Err(Distrust::Writable(meta.mode() & 0o777).into()),
    }
}

/// Makes a directory that only this user may enter; an old one in its place must be this user's
/// and is closed to others.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    check_link(dir)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(dir, flags, Mode::empty())?);
    let meta = dir.metadata()?;
    if meta.uid() != own_uid() {
        return Err(Distrust::Owner(meta.uid()).into());
    }
    if meta.mode() & 0o077 != 0 {
        dir.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Flushes the directories above `path`, so that its name survives a power cut, and so do the names
/// of directories that were made with it. All of them are tried; the first error is told.
pub fn sync_names_above(path: &Path) -> io::Result<()> {
    /// More than any part of the program makes at once.
    const LEVELS: usize = 4;
    let above = path.ancestors().skip(1).take(LEVELS);
    let named = above.map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    named.map(|dir| File::open(dir)?.sync_all()).fold(Ok(()), io::Result::and)
}

/// A new private file with this content; an old file in its place is an error.
pub fn write_new_private(path: &Path, content: &[u8]) -> io::Result<()> {
    create_private(path)?.write_all(content)
}

/// A new private file, open for writing; an old file in its place is an error.
pub fn create_private(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a private file to write at its end; makes it if it is not there.
pub fn append_private(path: &Path) -> io::Result<File> {
    let file = append(path, Mode::RUSR | Mode::WUSR)?;
    check(&file.metadata()?, Trust::Private)?;
    Ok(file)
}

/// An empty log file, written at its end. A new file needs one system call: `O_EXCL` neither
/// follows a link nor opens what another process put there. An old file is emptied only when it is
/// a regular file of this user under its one name.
pub fn create_log(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, log_mode()) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::EXIST) => {
            let file = append_log(path)?;
            file.set_len(0)?;
            Ok(file)
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens a log file to write at its end; makes it if it is not there.
pub fn append_log(path: &Path) -> io::Result<File> {
    append(path, log_mode())
}

/// Puts this content in the place of a log file's.
pub fn write_log(path: &Path, content: &[u8]) -> io::Result<()> {
    create_log(path)?.write_all(content)
}

/// As the umask says.
fn log_mode() -> Mode {
    Mode::from_raw_mode(0o666)
}

fn append(path: &Path, mode: Mode) -> io::Result<File> {
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, mode).map_err(not_a_link)?);
    let meta = file.metadata()?;
    check_kind(&meta)?;
    check_names(&meta)?;
    if meta.uid() != own_uid() {
        return Err(Distrust::Owner(meta.uid()).into());
    }
    // Jobs inherit the descriptor as standard output and expect writes that block.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

/// `O_NOFOLLOW` answers `ELOOP`, and a FIFO without a reader `ENXIO`, which explain nothing to
/// people.
fn not_a_link(error: rustix::io::Errno) -> io::Error {
    match error {
        rustix::io::Errno::LOOP => Distrust::Link.into(),
        rustix::io::Errno::NXIO | rustix::io::Errno::ISDIR => Distrust::NotRegular.into(),
        other => other.into(),
    }
}

fn check(meta: &Metadata, trust: Trust) -> Result<(), Distrust> {
    check_kind(meta)?;
    match trust {
        Trust::Regular => Ok(()),
        Trust::Log => check_names(meta),
        Trust::Config => check_owner(meta),
        Trust::Private => check_names(meta).and_then(|()| check_owner(meta)),
    }
}

fn check_kind(meta: &Metadata) -> Result<(), Distrust> {
    if meta.is_file() { Ok(()) } else { Err(Distrust::NotRegular) }
}

fn check_names(meta: &Metadata) -> Result<(), Distrust> {
    if meta.nlink() <= 1 { Ok(()) } else { Err(Distrust::HardLinks) }
}

/// This user's or root's, and not writable by others.
fn check_owner(meta: &Metadata) -> Result<(), Distrust> {
    if !is_ours_or_roots(meta) {
        return Err(Distrust::Owner(meta.uid()));
    }
    match meta.mode() & WRITABLE_BY_OTHERS {
        0 => Ok(()),
        _ => Err(Distrust::Writable(meta.mode() & 0o777)),
    }
}

fn is_ours_or_roots(meta: &Metadata) -> bool {
    meta.uid() == own_uid() || meta.uid() == 0
}

/// A path that is a symbolic link must be one of this user or root.
fn check_link(path: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(path)?;
    match meta.is_symlink() && !is_ours_or_roots(&meta) {
        true => Err(Distrust::Owner(meta.uid()).into()),
        false => Ok(()),
    }
}

/// Another user who may write to the directory of a configuration file could put another file in
/// its place. A sticky directory (`/tmp`) keeps the others' hands off.
fn check_config_place(path: &Path) -> io::Result<()> {
    check_link(path)?;
    let real = path.canonicalize()?;
    let Some(dir) = real.parent() else { return Ok(()) };
    let meta = std::fs::metadata(dir)?;
    if !is_ours_or_roots(&meta) {
        return Err(Distrust::Owner(meta.uid()).into());
    }
    let is_open = meta.mode() & WRITABLE_BY_OTHERS != 0 && meta.mode() & STICKY == 0;
    match is_open {
        true => Err(Distrust::WritableDirectory(meta.mode() & 0o777).into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;

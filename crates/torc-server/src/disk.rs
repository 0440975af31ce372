//! How much room files take and how much is left for them.

use std::path::{Path, PathBuf};

/// A file system, as far as room goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that this user may still write.
    pub free: u64,
    /// Bytes in all.
    pub size: u64,
}

/// The file system that a path is on; None when it does not say.
pub fn space(path: &Path) -> Option<Space> {
    let found = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Some(Space { free: bytes(found.f_bavail), size: bytes(found.f_blocks) })
}

/// Bytes of a file; 0 when it is not there.
pub fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// The file beside another one whose name is longer by `suffix`.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

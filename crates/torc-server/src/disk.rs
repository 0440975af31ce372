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

/// Below this much room writing may fail any moment: the log alone may grow by that.
const LEAST: u64 = 256 << 20;
/// A part of a small disk, and an amount of a large one, that is used up in days rather than hours.
const PART: u64 = 20;
const AMOUNT: u64 = 5 << 30;

impl Space {
    /// So little is left that it should be told before it hurts.
    pub fn is_low(self) -> bool {
        self.free < LEAST.max(AMOUNT.min(self.size / PART))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_low_before_it_is_gone() {
        let is_low = |free: u64, size: u64| Space { free, size }.is_low();
        assert!(is_low(100 << 20, 1 << 30), "a small disk with little");
        assert!(!is_low(300 << 20, 1 << 30) && is_low(1 << 30, 40 << 30), "a part of a usual one");
        assert!(
            is_low(4 << 30, 10 << 40) && !is_low(6 << 30, 10 << 40),
            "an amount of a large one"
        );
    }
}

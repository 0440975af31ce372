//! Tells output files that an attempt made from those that were there before it.
//!
//! The runner looks at the files before the first process of the attempt and compares afterwards, so
//! that neither the clock of a file server nor tools that keep old modification times (`cp -p`,
//! `tar`, `wget`) can mislead it. Does not decide what a missing file means.

use std::fs::{File, Metadata};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use torc_model::api::FileRef;

/// A file that is rewritten within one tick of its file system's clock may look unchanged. Times of
/// whole seconds belong to file systems whose tick is up to two seconds long.
const COARSE_TICK: Duration = Duration::from_secs(2);
/// The tick of file systems with fractions of seconds: at most one of the kernel's, with room.
const FINE_TICK: Duration = Duration::from_millis(50);

/// What changes when a file is written, replaced or touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Cannot be set by a program, unlike the modification time.
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// So old at `now` that a later write would have another time.
    fn is_settled(&self, now: SystemTime) -> bool {
        let is_coarse = self.modified.1 == 0 && self.changed.1 == 0;
        let tick = if is_coarse { COARSE_TICK } else { FINE_TICK };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let nanos = u32::try_from(self.changed.1).unwrap_or(0);
        now.checked_sub(Duration::new(seconds, nanos)).is_some_and(|age| age > tick)
    }
}

/// The output files as they were before an attempt.
#[derive(Debug)]
pub struct Before {
    paths: Vec<String>,
    /// None for a file that was not there, or of which a later look could not tell.
    seen: OnceLock<Vec<Option<Stamp>>>,
}

impl Before {
    /// Of these files, which have not been looked at yet.
    pub fn new(files: &[FileRef]) -> Self {
        Self { paths: files.iter().map(|file| file.path.clone()).collect(), seen: OnceLock::new() }
    }

    /// Looks at the files, once: the first process of an attempt counts. Costs one `stat` each.
    pub fn look(&self, dir: &Path) {
        self.seen.get_or_init(|| {
            let now = SystemTime::now();
            let stamp = |path: &String| {
                // A directory does not change with what is written below it.
                let file = dir.join(path).metadata().ok().filter(Metadata::is_file)?;
                Some(Stamp::of(&file)).filter(|stamp| stamp.is_settled(now))
            };
            self.paths.iter().map(stamp).collect()
        });
    }

    /// The file was there before and has not been touched since.
    pub fn is_untouched(&self, index: usize, dir: &Path) -> bool {
        let before = self.seen.get().and_then(|seen| seen.get(index).copied().flatten());
        let Some((before, path)) = before.zip(self.paths.get(index)) else { return false };
        let path = dir.join(path);
        let is_same = |file: Option<Metadata>| file.is_some_and(|f| Stamp::of(&f) == before);
        // On a network file system another node may have written it, and what this one remembers of
        // the file may be some seconds old; opening a file asks the server again.
        is_same(path.metadata().ok()) && is_same(opened(&path).or_else(|| path.metadata().ok()))
    }
}

/// The size of a file that has less than so many bytes. A directory with something in it is large
/// enough: what it holds has no size of its own.
pub fn too_small(path: &Path, min_size: i64) -> Option<u64> {
    let least = u64::try_from(min_size).unwrap_or(0);
    if least == 0 {
        return None;
    }
    let file = path.metadata().ok()?;
    if file.is_dir() {
        let has_entry = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        return (!has_entry).then_some(0);
    }
    // On a network file system what this node remembers of the size may be some seconds old;
    // opening the file asks the server again.
    let size = |file: &Metadata| file.is_file().then_some(file.len());
    if size(&file)? >= least {
        return None;
    }
    let now = opened(path).as_ref().and_then(size).unwrap_or(file.len());
    (now < least).then_some(now)
}

fn opened(path: &Path) -> Option<Metadata> {
    let options = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    options.ok()?.metadata().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(dir: &Path, names: &[&str]) -> Before {
        let file =
            |name: &&str| FileRef { name: (*name).into(), path: (*name).into(), min_size: 0 };
        let before = Before::new(&names.iter().map(file).collect::<Vec<_>>());
        before.look(dir);
        before
    }

    fn age(path: &Path) {
        // Only the kernel sets the change time, so a test must let a tick pass.
        let changed = || {
            let file = path.metadata().unwrap();
            Stamp::of(&file).is_settled(SystemTime::now())
        };
        while !changed() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_that_is_written_replaced_or_touched_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["same", "written", "replaced", "touched", "new"];
        for name in &names[..4] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        age(&dir.path().join("touched"));
        let before = before(dir.path(), &names);
        std::fs::write(dir.path().join("written"), "y").unwrap();
        std::fs::write(dir.path().join("other"), "y").unwrap();
        std::fs::rename(dir.path().join("other"), dir.path().join("replaced")).unwrap();
        let touched = File::options().append(true).open(dir.path().join("touched")).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        std::fs::write(dir.path().join("new"), "y").unwrap();
        let untouched: Vec<&str> = (0..names.len())
            .filter(|index| before.is_untouched(*index, dir.path()))
            .map(|index| names[index])
            .collect();
        assert_eq!(untouched, ["same"]);
    }

    #[test]
    fn a_coarse_clock_gets_the_benefit_of_the_doubt() {
        let at = |seconds: i64, nanos: i64| Stamp {
            device: 1,
            inode: 1,
            size: 1,
            modified: (seconds, nanos),
            changed: (seconds, nanos),
        };
        let now = UNIX_EPOCH + Duration::from_millis(100_500);
        assert!(!at(100, 0).is_settled(now), "it may be rewritten within the same second");
        assert!(at(98, 0).is_settled(now));
        assert!(at(100, 400_000_000).is_settled(now));
        assert!(!at(100, 480_000_000).is_settled(now));
        assert!(!at(200, 1).is_settled(now), "a clock that is ahead tells nothing");
    }

    #[test]
    fn directories_are_not_judged_by_their_times() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        age(&dir.path().join("d"));
        let before = before(dir.path(), &["d"]);
        assert!(!before.is_untouched(0, dir.path()));
    }
}

//! What a disk may hold after a power cut.
//!
//! The model is no kinder than POSIX. What a file holds is safe once the file was flushed, and a
//! name once its directory was: not before, and not because something else was flushed. Of the
//! writes since the last flush of a file any may be on the disk and any may not, also only some of
//! the sectors of one. Of the names in a directory a beginning is there: file systems keep their
//! own journal in order.

use super::journal::Op;
use crate::plan::PlanRng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;
const NEVER: usize = usize::MAX;

/// What becomes of the changes that were not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// All of them are there.
    Kept,
    /// None of them is.
    Dropped,
    /// Chance decides on each, and tears some.
    Mixed(u64),
}

/// A power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// After this many operations.
    pub after: usize,
    /// What becomes of those that were not flushed.
    pub fate: Fate,
}

/// A file or directory on the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// With what it holds.
    File(Vec<u8>),
    /// Its names are entries of their own.
    Directory,
}

/// The operations, with what each is about and when it was flushed.
pub struct Tape {
    ops: Vec<Op>,
    root: PathBuf,
    /// The file that an operation is about; 0 for directories.
    nodes: Vec<usize>,
    /// The flush that made it safe.
    safe_at: Vec<usize>,
    node_count: usize,
}

/// Names as they are while the tape is read.
#[derive(Default)]
struct Names {
    nodes: BTreeMap<PathBuf, usize>,
    count: usize,
}

impl Names {
    fn new_file(&mut self, path: &Path) -> usize {
        self.count += 1;
        self.nodes.insert(path.into(), self.count);
        self.count
    }

    /// A file that a program made in a way that was not recorded is taken for one of this moment.
    fn file(&mut self, path: &Path) -> usize {
        match self.nodes.get(path) {
            Some(node) => *node,
            None => self.new_file(path),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> usize {
        let moved: Vec<PathBuf> =
            self.nodes.keys().filter(|path| path.starts_with(from)).cloned().collect();
        let mut node = 0;
        for path in moved {
            let Some(of) = self.nodes.remove(&path) else { continue };
            match path.strip_prefix(from) {
                Ok(rest) if rest.as_os_str().is_empty() => {
                    node = of;
                    self.nodes.insert(to.into(), of);
                }
                Ok(rest) => drop(self.nodes.insert(to.join(rest), of)),
                Err(_) => {}
            }
        }
        node
    }
}

impl Tape {
    /// Finds out what each operation is about, and which flush made it safe.
    pub fn new(ops: Vec<Op>, root: &Path) -> Self {
        let mut names = Names::default();
        let mut nodes = Vec::with_capacity(ops.len());
        let mut safe_at = vec![NEVER; ops.len()];
        // Operations that no flush has reached yet, by file and by directory.
        let mut content: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut entries: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        for (i, op) in ops.iter().enumerate() {
            let node = match op {
                Op::Create(path) => names.new_file(path),
                Op::Write { path, .. } | Op::Truncate { path, .. } => names.file(path),
                Op::Sync(path) => {
                    let node = names.nodes.get(path).copied();
                    let flushed = node.and_then(|node| content.remove(&node));
                    let flushed = flushed.into_iter().chain(entries.remove(path)).flatten();
                    flushed.for_each(|op| safe_at[op] = i);
                    node.unwrap_or(0)
                }
                Op::Mkdir(_) => 0,
                Op::Rename(from, to) => names.rename(from, to),
                Op::Unlink(path) => names.nodes.remove(path).unwrap_or(0),
                Op::Link(from, to) => {
                    let node = names.file(from);
                    names.nodes.insert(to.clone(), node);
                    node
                }
            };
            nodes.push(node);
            match op {
                Op::Write { .. } | Op::Truncate { .. } => {
                    content.entry(node).or_default().push(i);
                }
                Op::Sync(_) => {}
                _ => entries.entry(directory(op)).or_default().push(i),
            }
        }
        Self { ops, root: root.into(), nodes, safe_at, node_count: names.count }
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// How many flushes.
    pub fn flushes(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::Sync(_))).count()
    }

    /// Flushes of files with this in their path: the number of operations up to which each is safe,
    /// and what the file held. A file that was flushed is safe only with the names that lead to it.
    pub fn flushed(&self, part: &str) -> Vec<(usize, Vec<u8>)> {
        let is_it = |path: &Path| path.to_string_lossy().contains(part);
        let mut found = Vec::new();
        for (i, op) in self.ops.iter().enumerate() {
            if let Op::Sync(path) = op
                && is_it(path)
                && let Some(Entry::File(data)) =
                    self.cut(Cut { after: i + 1, fate: Fate::Kept }).remove(path)
            {
                let is_safe = |after: &usize| {
                    let left = self.cut(Cut { after: *after, fate: Fate::Dropped });
                    matches!(left.get(path), Some(Entry::File(kept)) if kept.starts_with(&data))
                };
                let safe_from = (i + 1..=self.ops.len()).find(is_safe);
                found.extend(safe_from.map(|from| (from, data.clone())));
            }
        }
        found
    }

    /// The disk after a power cut.
    pub fn cut(&self, cut: Cut) -> BTreeMap<PathBuf, Entry> {
        let mut rng = PlanRng::new(match cut.fate {
            Fate::Mixed(seed) => seed,
            Fate::Kept | Fate::Dropped => 0,
        });
        // A cut that keeps much and one that keeps little find different things.
        let keep_percent = [10, 50, 90][rng.below(3) as usize];
        let mut names: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let mut nodes: Vec<Vec<u8>> = vec![Vec::new(); self.node_count + 1];
        // Directories in which a name was dropped: no later one is there either.
        let mut cut_off: Vec<PathBuf> = Vec::new();
        for i in 0..cut.after.min(self.ops.len()) {
            let (op, is_safe) = (&self.ops[i], self.safe_at[i] < cut.after);
            let keeps = |rng: &mut PlanRng| match cut.fate {
                _ if is_safe => true,
                Fate::Kept => true,
                Fate::Dropped => false,
                Fate::Mixed(_) => rng.below(100) < keep_percent,
            };
            match op {
                Op::Sync(_) => {}
                Op::Write { at, data, .. } => {
                    let is_torn =
                        !is_safe && matches!(cut.fate, Fate::Mixed(_)) && rng.below(8) == 0;
                    let node = &mut nodes[self.nodes[i]];
                    if is_torn {
                        tear(node, *at, data, &mut rng);
                    } else if keeps(&mut rng) {
                        put(node, *at, data);
                    }
                }
                Op::Truncate { size, .. } if keeps(&mut rng) => {
                    nodes[self.nodes[i]].resize(*size, 0);
                }
                Op::Truncate { .. } => {}
                name => {
                    let directory = directory(name);
                    if cut_off.contains(&directory) || !keeps(&mut rng) {
                        cut_off.push(directory);
                    } else {
                        apply(name, self.nodes[i], &mut names);
                    }
                }
            }
        }
        let has_parents = |path: &Path| {
            path.ancestors()
                .skip(1)
                .take_while(|up| *up != self.root)
                .all(|up| names.get(up) == Some(&0))
        };
        let entry = |node: usize| match node {
            0 => Entry::Directory,
            _ => Entry::File(nodes[node].clone()),
        };
        names
            .iter()
            .filter(|(path, _)| has_parents(path))
            .map(|(p, n)| (p.clone(), entry(*n)))
            .collect()
    }
}

/// The directory that keeps a name.
fn directory(op: &Op) -> PathBuf {
    let path = match op {
        Op::Create(path) | Op::Mkdir(path) | Op::Unlink(path) => path,
        Op::Rename(_, path) | Op::Link(_, path) => path,
        Op::Write { path, .. } | Op::Truncate { path, .. } | Op::Sync(path) => path,
    };
    path.parent().map(Path::to_owned).unwrap_or_default()
}

fn apply(op: &Op, node: usize, names: &mut BTreeMap<PathBuf, usize>) {
    match op {
        Op::Create(path) | Op::Mkdir(path) | Op::Link(_, path) => {
            names.insert(path.clone(), node);
        }
        Op::Unlink(path) => {
            names.remove(path);
        }
        Op::Rename(from, to) => {
            let mut all = Names { nodes: std::mem::take(names), count: 0 };
            all.rename(from, to);
            // The file may have come from a directory whose own journal is behind.
            all.nodes.entry(to.clone()).or_insert(node);
            *names = all.nodes;
        }
        Op::Write { .. } | Op::Truncate { .. } | Op::Sync(_) => {}
    }
}

fn put(node: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if node.len() < end {
        node.resize(end, 0);
    }
    node[at..end].copy_from_slice(data);
}

/// Some of the sectors; where the write ends may be there before what it wrote.
fn tear(node: &mut Vec<u8>, at: usize, data: &[u8], rng: &mut PlanRng) {
    let mut from = 0;
    while from < data.len() {
        let to = (from + SECTOR - (at + from) % SECTOR).min(data.len());
        if rng.below(2) == 0 {
            put(node, at + from, &data[from..to]);
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tape(ops: Vec<Op>) -> Tape {
        Tape::new(ops, Path::new("/r"))
    }

    fn write(path: &str, at: usize, data: &[u8]) -> Op {
        Op::Write { path: path.into(), at, data: data.to_vec() }
    }

    fn file(tape: &Tape, after: usize, fate: Fate, path: &str) -> Option<Vec<u8>> {
        match tape.cut(Cut { after, fate }).remove(Path::new(path)) {
            Some(Entry::File(data)) => Some(data),
            Some(Entry::Directory) | None => None,
        }
    }

    #[test]
    fn what_was_flushed_survives_every_fate_and_nothing_else_must() {
        let tape = tape(vec![
            Op::Create("/r/a".into()),
            write("/r/a", 0, b"old"),
            Op::Sync("/r/a".into()),
            Op::Sync("/r".into()),
            write("/r/a", 0, b"new"),
        ]);
        assert_eq!(file(&tape, 5, Fate::Kept, "/r/a"), Some(b"new".to_vec()));
        assert_eq!(file(&tape, 5, Fate::Dropped, "/r/a"), Some(b"old".to_vec()));
        assert_eq!(file(&tape, 3, Fate::Dropped, "/r/a"), None, "its name was not flushed");
        assert_eq!(file(&tape, 3, Fate::Kept, "/r/a"), Some(b"old".to_vec()));
        let fates: Vec<_> = (0..50).map(|seed| file(&tape, 5, Fate::Mixed(seed), "/r/a")).collect();
        assert!(fates.contains(&Some(b"new".to_vec())) && fates.contains(&Some(b"old".to_vec())));
    }

    #[test]
    fn a_renamed_file_may_be_there_without_what_it_holds() {
        let tape = tape(vec![
            Op::Create("/r/a.tmp".into()),
            write("/r/a.tmp", 0, b"text"),
            Op::Rename("/r/a.tmp".into(), "/r/a".into()),
            Op::Sync("/r".into()),
        ]);
        assert_eq!(file(&tape, 4, Fate::Dropped, "/r/a"), Some(Vec::new()));
        assert_eq!(file(&tape, 4, Fate::Dropped, "/r/a.tmp"), None);
    }

    #[test]
    fn sectors_of_one_write_come_apart() {
        let data = vec![7; 4 * SECTOR];
        let tape = tape(vec![Op::Create("/r/a".into()), write("/r/a", 0, &data)]);
        let torn = |seed| {
            let kept = file(&tape, 2, Fate::Mixed(seed), "/r/a").unwrap_or_default();
            kept.contains(&0) && kept.contains(&7)
        };
        assert!((0..200).any(torn));
    }

    #[test]
    fn nothing_is_left_in_a_directory_that_was_lost() {
        let tape = tape(vec![
            Op::Mkdir("/r/d".into()),
            Op::Create("/r/d/a".into()),
            Op::Sync("/r/d".into()),
        ]);
        assert_eq!(file(&tape, 3, Fate::Dropped, "/r/d/a"), None);
        assert_eq!(file(&tape, 3, Fate::Kept, "/r/d/a"), Some(Vec::new()));
    }
}

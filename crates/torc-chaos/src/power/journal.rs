//! What the preloaded recorder wrote: every change of a file below one directory, in the order in
//! which it happened.

use std::io;
use std::path::{Path, PathBuf};

const MAGIC: u32 = 0x4345_5254;
const HEADER: usize = 24;

/// One change, or one flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Bytes at a place of a file.
    Write {
        /// The file.
        path: PathBuf,
        /// The place.
        at: usize,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A file got this length.
    Truncate {
        /// The file.
        path: PathBuf,
        /// Its length.
        size: usize,
    },
    /// Everything about this file or directory is on the disk.
    Sync(PathBuf),
    /// A new file.
    Create(PathBuf),
    /// A new directory.
    Mkdir(PathBuf),
    /// A file or directory got another name.
    Rename(PathBuf, PathBuf),
    /// A file or directory lost this name.
    Unlink(PathBuf),
    /// A file got a second name.
    Link(PathBuf, PathBuf),
}

/// The records, and where each of them ends in the journal.
#[derive(Default, Debug)]
pub struct Journal {
    /// In order.
    pub ops: Vec<Op>,
    ends: Vec<u64>,
}

impl Journal {
    /// Reads all of it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let mut journal = Self::default();
        let mut at = 0;
        while at < bytes.len() {
            let (op, length) = record(&bytes[at..])
                .ok_or_else(|| io::Error::other(format!("the journal is unreadable at {at}")))?;
            at += length;
            journal.ops.push(op);
            journal.ends.push(at as u64);
        }
        Ok(journal)
    }

    /// How many records there were when the journal had this length.
    pub fn count_at(&self, length: u64) -> usize {
        self.ends.partition_point(|end| *end <= length)
    }
}

fn record(bytes: &[u8]) -> Option<(Op, usize)> {
    let four = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let number = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    let number = usize::try_from(number).ok()?;
    let (path_length, data_length) = (four(16)? as usize, four(20)? as usize);
    let end = HEADER + path_length + data_length;
    let path = text(bytes.get(HEADER..HEADER + path_length)?)?;
    let data = bytes.get(HEADER + path_length..end)?;
    if four(0)? != MAGIC {
        return None;
    }
    let op = match char::from_u32(four(4)?)? {
        'W' => Op::Write { path, at: number, data: data.to_vec() },
        'T' => Op::Truncate { path, size: number },
        'S' => Op::Sync(path),
        'C' => Op::Create(path),
        'D' => Op::Mkdir(path),
        'R' => Op::Rename(path, text(data)?),
        'U' => Op::Unlink(path),
        'L' => Op::Link(path, text(data)?),
        _ => return None,
    };
    Some((op, end))
}

fn text(bytes: &[u8]) -> Option<PathBuf> {
    std::str::from_utf8(bytes).ok().map(PathBuf::from)
}

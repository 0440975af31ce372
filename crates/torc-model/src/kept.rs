//! Results that a runner keeps on disk for a server that does not answer: a first line that says whose
//! they are, and a line for each result. The file may end anywhere: its runner, or its machine, died
//! while it was written.

use crate::api::CompletionReport;
use serde::de::DeserializeOwned;

/// Whose results these are. None when not even that was written.
pub fn owner<T: DeserializeOwned>(file: &[u8]) -> Option<T> {
    lines(file).next().and_then(|line| serde_json::from_slice(line).ok())
}

/// The results. A line that is torn was not relied on by anything, and spoils no other.
pub fn reports(file: &[u8]) -> Vec<CompletionReport> {
    lines(file).skip(1).filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    file.split(|byte| *byte == b'\n')
}

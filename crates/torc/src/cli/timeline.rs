//! The server's timeline, read: attempts over time.

use crate::error::{Error, Result};
use serde_json::Value;
use torc_client::Client;
use torc_model::ids::WorkflowId;
use torc_model::status::AttemptState;

/// One attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptBar {
    pub job: i64,
    pub start_ms: i64,
    /// None while it runs.
    pub end_ms: Option<i64>,
    pub wait_ms: i64,
    /// Index into [`TextTimeline::runners`].
    pub runner: usize,
    pub family: usize,
    pub state: AttemptState,
}

/// Attempts that have started, in the order of their creation.
pub struct TextTimeline {
    pub bars: Vec<AttemptBar>,
    pub runners: Vec<Value>,
    /// As the server sent it.
    pub bytes: Vec<u8>,
}

impl TextTimeline {
    /// Asks the server; the newest 300,000 attempts at most.
    pub async fn fetch(client: &Client, id: WorkflowId) -> Result<Self> {
        let bytes = client.get_bytes(&format!("/workflows/{id}/timeline")).await?.to_vec();
        Self::read(bytes)
            .ok_or_else(|| Error::usage("the server sent a timeline of another version"))
    }

    fn read(bytes: Vec<u8>) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..4)? != b"TTL1" {
            return None;
        }
        let count = number(4)? as usize;
        let base = i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let names = number(20)? as usize;
        let column = |c: usize, row: usize| number(24 + (c * count + row) * 4);
        let mut bars = Vec::with_capacity(count);
        for row in 0..count {
            let (length, meta) = (column(2, row)?, column(4, row)?);
            let start_ms = base + i64::from(column(1, row)?);
            bars.push(AttemptBar {
                job: column(0, row)?.into(),
                start_ms,
                end_ms: (length != u32::MAX).then(|| start_ms + i64::from(length)),
                wait_ms: column(3, row)?.into(),
                runner: (meta >> 16) as usize,
                family: ((meta >> 4) & 0xfff) as usize,
                state: *AttemptState::ALL.get((meta & 0xf) as usize)?,
            });
        }
        let names: Value =
            serde_json::from_slice(bytes.get(24 + count * 20..)?.get(..names)?).ok()?;
        let runners = names["runners"].as_array()?.clone();
        Some(Self { bars, runners, bytes })
    }

    /// For each bar a row of its runner in which no other bar is at that time.
    pub fn slots(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.bars.len()).collect();
        order.sort_by_key(|at| self.bars[*at].start_ms);
        let mut free: Vec<Vec<i64>> = vec![Vec::new(); self.runners.len()];
        let mut slots = vec![0; self.bars.len()];
        for at in order {
            let bar = &self.bars[at];
            let Some(rows) = free.get_mut(bar.runner) else { continue };
            let slot = rows.iter().position(|end| *end <= bar.start_ms).unwrap_or(rows.len());
            if slot == rows.len() {
                rows.push(0);
            }
            rows[slot] = bar.end_ms.unwrap_or(i64::MAX);
            slots[at] = slot;
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_one_slot_never_overlap() {
        let bar = |start_ms, end_ms| AttemptBar {
            job: 1,
            start_ms,
            end_ms,
            wait_ms: 0,
            runner: 0,
            family: 0,
            state: AttemptState::Completed,
        };
        let bars = vec![bar(0, Some(10)), bar(5, Some(20)), bar(10, None), bar(20, Some(30))];
        let timeline = TextTimeline { bars, runners: vec![Value::Null], bytes: Vec::new() };
        assert_eq!(timeline.slots(), [0, 1, 0, 1]);
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        assert!(TextTimeline::read(b"TTL1".to_vec()).is_none());
        assert!(TextTimeline::read(Vec::new()).is_none());
    }
}

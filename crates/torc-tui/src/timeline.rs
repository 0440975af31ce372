//! Attempts over time: reads the server's columns and gives each bar a row of its own.

use torc_model::ids::JobId;
use torc_model::status::AttemptState;

/// The length of an attempt that runs.
const OPEN: u32 = u32::MAX;

/// The attempts of a workflow, in the order of their starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Times count from here, ms since 1970.
    pub base_ms: i64,
    pub bars: Vec<TimelineBar>,
    /// Rows, with the host at the first row of each runner.
    pub hosts: Vec<String>,
    /// Attempts that the answer had no room for.
    pub is_cut: bool,
}

/// One attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineBar {
    pub job: JobId,
    /// Since `base_ms`.
    pub start: i64,
    /// `None` while it runs.
    pub length: Option<i64>,
    pub family: u16,
    pub state: AttemptState,
    pub row: u32,
}

impl TimelineBar {
    pub fn end(&self, now: i64) -> i64 {
        self.length.map_or(now.max(self.start), |length| self.start + length)
    }

    pub fn is_bad(&self) -> bool {
        matches!(
            self.state,
            AttemptState::Failed | AttemptState::Canceled | AttemptState::Terminated
        )
    }
}

impl Bars {
    /// Reads the bytes of `GET /workflows/{id}/timeline`. An answer that is cut off, or that is
    /// something else, is `None`.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..4)? != b"TTL1" {
            return None;
        }
        let n = number(4)? as usize;
        let base_ms = i64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let is_cut = number(16)? & 1 == 1;
        let names = bytes.get(24 + n.checked_mul(20)?..)?.get(..number(20)? as usize)?;
        let names: serde_json::Value = serde_json::from_slice(names).ok()?;
        let hosts: Vec<String> = names
            .get("runners")?
            .as_array()?
            .iter()
            .map(|runner| runner["host"].as_str().unwrap_or("?").to_owned())
            .collect();
        let column = |c: usize, i: usize| number(24 + (c * n + i) * 4);
        let mut bars = Vec::with_capacity(n);
        for i in 0..n {
            let (length, meta) = (column(2, i)?, column(4, i)?);
            bars.push((
                meta >> 16,
                TimelineBar {
                    job: JobId(i64::from(column(0, i)?)),
                    start: i64::from(column(1, i)?),
                    length: (length != OPEN).then_some(i64::from(length)),
                    family: ((meta >> 4) & 0xfff) as u16,
                    state: AttemptState::ALL
                        .get((meta & 15) as usize)
                        .copied()
                        .unwrap_or(AttemptState::Running),
                    row: 0,
                },
            ));
        }
        bars.sort_by_key(|(_, bar)| bar.start);
        let rows = in_rows(&mut bars, hosts.len());
        let mut labels = Vec::new();
        for (host, rows) in hosts.iter().zip(rows) {
            labels.push(host.clone());
            labels.extend((1..rows).map(|_| String::new()));
        }
        let bars = bars.into_iter().map(|(_, bar)| bar).collect();
        Some(Self { base_ms, bars, hosts: labels, is_cut })
    }

    /// The end of the last bar, in ms since `base_ms`.
    pub fn end(&self, now: i64) -> i64 {
        self.bars.iter().map(|bar| bar.end(now)).max().unwrap_or(0).max(1)
    }

    /// The most bars at one time, in each of so many slices of `from..until`.
    pub fn density(&self, from: i64, until: i64, slices: usize, now: i64) -> Vec<i64> {
        let mut steps = vec![0i64; slices + 1];
        let span = (until - from).max(1);
        let place = |ms: i64| ((ms - from).max(0) * slices as i64 / span).clamp(0, slices as i64);
        for bar in &self.bars {
            let end = bar.end(now);
            if end < from || bar.start > until {
                continue;
            }
            let first = place(bar.start).min(slices as i64 - 1).max(0);
            steps[first as usize] += 1;
            steps[place(end).max(first + 1) as usize] -= 1;
        }
        let mut sum = 0;
        steps
            .iter()
            .take(slices)
            .map(|step| {
                sum += step;
                sum
            })
            .collect()
    }
}

/// Gives each bar the first row of its runner that is free at its start; the rows of the runners
/// follow each other. How many rows each runner has.
fn in_rows(bars: &mut [(u32, TimelineBar)], runners: usize) -> Vec<usize> {
    let mut free_at: Vec<Vec<i64>> = vec![Vec::new(); runners];
    for (runner, bar) in bars.iter_mut() {
        let Some(slots) = free_at.get_mut(*runner as usize) else { continue };
        let slot = slots.iter().position(|free| *free <= bar.start).unwrap_or(slots.len());
        let end = bar.end(i64::MAX);
        match slots.get_mut(slot) {
            Some(free) => *free = end,
            None => slots.push(end),
        }
        bar.row = slot as u32;
    }
    let counts: Vec<usize> = free_at.iter().map(Vec::len).collect();
    let mut first = 0;
    let begins: Vec<usize> = counts
        .iter()
        .map(|count| {
            let begin = first;
            first += count;
            begin
        })
        .collect();
    for (runner, bar) in bars {
        bar.row += begins.get(*runner as usize).copied().unwrap_or(0) as u32;
    }
    counts
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Job, start, length, runner, family, state.
    type Row = (u32, u32, u32, u32, u32, u32);

    /// The bytes of an answer.
    pub fn answer(bars: &[Row], hosts: &[&str]) -> Vec<u8> {
        let names = serde_json::json!({
            "runners": hosts.iter().map(|host| serde_json::json!({"host": host})).collect::<Vec<_>>(),
            "after": 0,
        })
        .to_string();
        let mut bytes = b"TTL1".to_vec();
        bytes.extend((bars.len() as u32).to_le_bytes());
        bytes.extend(1_000_000i64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend((names.len() as u32).to_le_bytes());
        let column = |f: fn(&Row) -> u32| -> Vec<u8> {
            bars.iter().flat_map(|bar| f(bar).to_le_bytes()).collect()
        };
        bytes.extend(column(|b| b.0));
        bytes.extend(column(|b| b.1));
        bytes.extend(column(|b| b.2));
        bytes.extend(column(|_| 0));
        bytes.extend(column(|b| (b.3 << 16) | (b.4 << 4) | b.5));
        bytes.extend(names.bytes());
        bytes
    }

    #[test]
    fn bars_of_one_runner_that_overlap_get_rows_of_their_own() {
        let bytes = answer(
            &[(1, 0, 10, 0, 0, 3), (2, 5, OPEN, 0, 1, 2), (3, 10, 5, 0, 0, 4), (4, 0, 3, 1, 2, 3)],
            &["n1", "n2"],
        );
        let bars = Bars::read(&bytes).unwrap();
        let rows: Vec<(i64, u32)> = bars.bars.iter().map(|bar| (bar.job.0, bar.row)).collect();
        assert_eq!(rows, [(1, 0), (4, 2), (2, 1), (3, 0)]);
        assert_eq!(bars.hosts, ["n1", "", "n2"]);
        assert!(bars.bars[3].is_bad() && bars.bars[2].length.is_none());
        assert_eq!(bars.density(0, 20, 4, 20), [2, 2, 2, 1]);
    }

    #[test]
    fn an_answer_that_is_cut_off_is_refused() {
        let bytes = answer(&[(1, 0, 10, 0, 0, 3)], &["n1"]);
        for length in 0..bytes.len() {
            assert!(Bars::read(&bytes[..length]).is_none(), "{length}");
        }
    }
}

//! A timeline of more attempts than are sent one by one: bars that are narrower than a pixel are drawn
//! together, so that a picture stays small however many attempts there are.

use super::timeline::{Bar, Columns, MAX_ATTEMPTS, Map, place, runners};
use super::{ReadError, Reader};
use rusqlite::Connection;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use torc_model::ids::WorkflowId;
use torc_model::status::AttemptState;

/// Pixels of a picture.
const WIDTH: i64 = 2000;
/// Attempts that are read at most.
const MOST: usize = 10_000_000;
/// Bars of this many pixels stay apart, so that they can be pointed at.
const NARROW: i64 = 3;
/// The wait of a bar that stands for several attempts.
pub const SEVERAL: u32 = u32::MAX;

/// What stands in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PictureRows {
    /// The attempts of a runner.
    Runner,
    /// Those of a family.
    Family,
}

impl Reader {
    /// How many attempts of a workflow have ended.
    pub async fn count_ended(&self, id: WorkflowId) -> Result<i64, ReadError> {
        self.read(move |connection| {
            let sql = "SELECT count(*) FROM attempt WHERE workflow_id = ? AND ended_ms IS NOT NULL";
            Ok(connection.prepare_cached(sql)?.query_row([id.0], |row| row.get(0))?)
        })
        .await
    }

    /// The attempts of a workflow, or those that ran in a window (ms since 1970), drawn together where
    /// they are too many.
    pub async fn picture(
        &self,
        id: WorkflowId,
        by: PictureRows,
        window: Option<(i64, i64)>,
    ) -> Result<Vec<u8>, ReadError> {
        self.read(move |connection| {
            let (bars, named) = read(connection, id)?;
            let cpus = super::timeline::family_cpus(connection, id)?;
            let picture = Picture::new(bars, by, window, &cpus);
            let facts = json!({"runners": runners(connection, named)?, "family_cpus": cpus, "after": 0,
                               "picture": {"attempts": picture.attempts, "failed": picture.failed, "last_ms": picture.last,
                                           "busy": picture.busy, "ready": picture.ready}});
            Ok(picture.columns.into_bytes(&facts))
        })
        .await
    }
}

/// All attempts that have started, by their start, and the runners that they name.
fn read(connection: &Connection, id: WorkflowId) -> Result<(Vec<Bar>, Vec<i64>), ReadError> {
    let mut families: Map<u32> = Map::default();
    let mut statement =
        connection.prepare_cached("SELECT id, family FROM job WHERE workflow_id = ?")?;
    let mut rows = statement.query([id.0])?;
    while let Some(row) = rows.next()? {
        families.insert(row.get(0)?, row.get(1)?);
    }
    let sql = "SELECT id, job_id, created_ms, started_ms, ended_ms, compute_node_id, state FROM attempt \
               WHERE workflow_id = ? AND started_ms IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.0])?;
    let (mut bars, mut named, mut index) = (Vec::new(), Vec::new(), Map::default());
    while let Some(row) = rows.next()?
        && bars.len() < MOST
    {
        let runner = row.get::<_, Option<i64>>(5)?.unwrap_or(0);
        let job = row.get(1)?;
        let state = row.get_ref(6)?.as_str().map_err(rusqlite::Error::from)?;
        let state = AttemptState::ALL.iter().position(|known| known.as_str() == state);
        let runner = place(&mut index, &mut named, runner);
        bars.push(Bar {
            id: row.get(0)?,
            job,
            created: row.get(2)?,
            started: row.get(3)?,
            ended: row.get(4)?,
            meta: super::timeline::meta(
                runner,
                families.get(&job).copied().unwrap_or(0),
                state.unwrap_or(0),
            ),
        });
    }
    bars.sort_unstable_by_key(|bar| bar.started);
    Ok((bars, named))
}

/// Bars as they are drawn, and sums over the whole run.
struct Picture {
    columns: Columns,
    /// Attempts in the window, and those of them that failed.
    attempts: i64,
    failed: i64,
    /// The last end, ms since the first start.
    last: i64,
    /// CPUs busy and jobs that were ready, by slot of the whole run.
    busy: Vec<f64>,
    ready: Vec<f64>,
}

/// A bar that others may join.
struct Drawn {
    bar: Bar,
    end: i64,
    several: bool,
}

fn is_bad(bar: &Bar) -> bool {
    bar.meta & 15 >= 4
}

impl Picture {
    /// Bars come by their start.
    fn new(
        bars: Vec<Bar>,
        by: PictureRows,
        window: Option<(i64, i64)>,
        cpus: &[(i64, i64)],
    ) -> Self {
        let base = bars.first().map_or(0, |bar| bar.started);
        let last = bars.iter().map(|bar| bar.ended.unwrap_or(bar.started)).max().unwrap_or(base);
        let (from, until) = window.unwrap_or((base, last));
        let is_seen =
            |bar: &Bar| bar.started <= until && bar.ended.is_none_or(|ended| ended >= from);
        let seen = bars.iter().filter(|bar| is_seen(bar));
        let (attempts, failed) =
            seen.fold((0, 0), |(all, bad), bar| (all + 1, bad + i64::from(is_bad(bar))));
        let (busy, ready) = sums(&bars, base, last, cpus);
        let mut columns = Columns::default();
        columns.base = Some(base);
        if attempts <= MAX_ATTEMPTS {
            bars.iter().filter(|bar| is_seen(bar)).for_each(|bar| columns.push(bar));
        } else {
            let mut pixel = ((until - from) / WIDTH).max(1);
            let drawn = loop {
                let drawn = merged(bars.iter().filter(|bar| is_seen(bar)), by, from, pixel);
                if drawn.len() as i64 <= MAX_ATTEMPTS {
                    break drawn;
                }
                pixel *= 2;
            };
            drawn.iter().for_each(|one| columns.push_drawn(&one.bar, one.several));
        }
        Self { columns, attempts, failed, last: last - base, busy, ready }
    }
}

/// Bars of a row that touch, and those that share a pixel, become one.
fn merged<'a>(
    bars: impl Iterator<Item = &'a Bar>,
    by: PictureRows,
    from: i64,
    pixel: i64,
) -> Vec<Drawn> {
    let mut rows: Map<PictureSlots> = Map::default();
    let mut drawn: Vec<Drawn> = Vec::new();
    for bar in bars {
        let group = match by {
            PictureRows::Runner => bar.meta >> 16,
            PictureRows::Family => (bar.meta >> 4) & 0xfff,
        };
        let end = bar.ended.unwrap_or(i64::MAX);
        let row = rows.entry(i64::from(group)).or_default();
        let slot = row.take(bar.started, end);
        let known = row.drawn[slot].and_then(|at| drawn.get_mut(at));
        match known {
            // Beside a wide bar it is not seen before it is looked at closely.
            Some(known) if known.joins(bar, end, from, pixel) && !known.can_grow(pixel) => {}
            Some(known) if known.joins(bar, end, from, pixel) => {
                known.end = known.end.max(end);
                known.bar.ended = Some(known.end);
                known.several = true;
            }
            _ => {
                row.drawn[slot] = Some(drawn.len());
                drawn.push(Drawn { bar: bar.clone(), end, several: false });
            }
        }
    }
    drawn
}

impl Drawn {
    fn can_grow(&self, pixel: i64) -> bool {
        self.several || self.end.saturating_sub(self.bar.started) < NARROW * pixel
    }

    fn joins(&self, bar: &Bar, end: i64, from: i64, pixel: i64) -> bool {
        let pixel_of = |ms: i64| (ms - from).div_euclid(pixel);
        let is_narrow = end.saturating_sub(bar.started) < NARROW * pixel;
        if !is_narrow || bar.ended.is_none() || self.bar.ended.is_none() {
            return false;
        }
        let is_alike = self.bar.meta >> 4 == bar.meta >> 4 && is_bad(&self.bar) == is_bad(bar);
        let touches = bar.started - self.end < pixel;
        // A failure is never hidden behind what went well.
        let is_hidden = pixel_of(end) == pixel_of(self.end) && (!is_bad(bar) || is_bad(&self.bar));
        (is_alike && touches && self.can_grow(pixel)) || is_hidden
    }
}

/// The slots of a row: those that are free, the first one first, and those that are taken by their end.
#[derive(Default)]
struct PictureSlots {
    free: BinaryHeap<Reverse<usize>>,
    taken: BinaryHeap<Reverse<(i64, usize)>>,
    /// The last bar of each slot.
    drawn: Vec<Option<usize>>,
}

impl PictureSlots {
    fn take(&mut self, start: i64, end: i64) -> usize {
        while let Some(Reverse((until, slot))) = self.taken.peek().copied()
            && until <= start
        {
            self.taken.pop();
            self.free.push(Reverse(slot));
        }
        let slot = self.free.pop().map_or_else(
            || {
                self.drawn.push(None);
                self.drawn.len() - 1
            },
            |Reverse(slot)| slot,
        );
        self.taken.push(Reverse((end, slot)));
        slot
    }
}

/// CPUs busy and jobs that were ready, by slot of the whole run.
fn sums(bars: &[Bar], base: i64, last: i64, cpus: &[(i64, i64)]) -> (Vec<f64>, Vec<f64>) {
    let cpus: Map<i64> = cpus.iter().copied().collect();
    let slot_ms = ((last - base) as f64 / WIDTH as f64).max(1e-3);
    let at = |ms: i64| ((ms - base) as f64 / slot_ms).clamp(0.0, WIDTH as f64 - 1e-6);
    let (mut busy, mut ready) = (Sums::default(), Sums::default());
    for bar in bars {
        let each = cpus.get(&i64::from((bar.meta >> 4) & 0xfff)).copied().unwrap_or(1);
        busy.add(at(bar.started), at(bar.ended.unwrap_or(last)), each as f64);
        if bar.started - bar.created > 1000 {
            ready.add(at(bar.created), at(bar.started), 1.0);
        }
    }
    (busy.whole(), ready.whole())
}

/// Averages by slot: what covers a part of a slot counts for that part.
struct Sums {
    parts: Vec<f64>,
    /// What begins or ends with a slot.
    changes: Vec<f64>,
}

impl Default for Sums {
    fn default() -> Self {
        let none = vec![0.0; WIDTH as usize + 1];
        Self { parts: none.clone(), changes: none }
    }
}

impl Sums {
    fn add(&mut self, from: f64, until: f64, n: f64) {
        let (a, b) = (from as usize, until as usize);
        if a == b {
            self.parts[a] += (until - from) * n;
        } else {
            self.parts[a] += (a as f64 + 1.0 - from) * n;
            self.parts[b] += (until - b as f64) * n;
            self.changes[a + 1] += n;
            self.changes[b] -= n;
        }
    }

    fn whole(&self) -> Vec<f64> {
        let slots = self.changes.iter().zip(&self.parts).take(WIDTH as usize);
        let sums = slots.scan(0.0, |sum, (change, part)| {
            *sum += change;
            Some(((*sum + part) * 10.0).round() / 10.0)
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(id: i64, started: i64, ms: i64, meta: u32) -> Bar {
        Bar { id, job: id, created: started, started, ended: Some(started + ms), meta }
    }

    const DONE: u32 = 3;
    const FAILED: u32 = 4;

    #[test]
    fn narrow_bars_join_and_wide_ones_and_failures_stay() {
        let bars = [
            bar(1, 0, 40, DONE),
            bar(2, 40, 50, DONE),
            bar(3, 95, 5, FAILED),
            bar(4, 101, 20, DONE),
            bar(5, 200, 5000, DONE),
            bar(6, 5200, 10, 16 | DONE),
            bar(7, 5210, 10, DONE),
        ];
        let drawn = merged(bars.iter(), PictureRows::Runner, 0, 100);
        let told: Vec<_> =
            drawn.iter().map(|one| (one.bar.id, one.bar.started, one.end, one.several)).collect();
        let expected = [(1, 0, 90, true), (3, 95, 121, true), (5, 200, 5200, false)];
        assert_eq!(told, expected);
        assert!(is_bad(&drawn[1].bar));
    }

    #[test]
    fn a_picture_of_many_attempts_is_small_and_its_sums_are_theirs() {
        let bars: Vec<Bar> = (0..400_000)
            .map(|n| {
                bar(
                    n,
                    n * 5,
                    35,
                    (((n % 4) as u32) << 16) | if n % 1000 == 0 { FAILED } else { DONE },
                )
            })
            .collect();
        let all = Picture::new(bars.clone(), PictureRows::Runner, None, &[(0, 2)]);
        assert_eq!((all.attempts, all.failed, all.last), (400_000, 400, 2_000_030));
        assert!(all.columns.len() < 20_000, "{} bars", all.columns.len());
        // Seven at once, of two CPUs each.
        assert!(
            all.busy[500..1500].iter().all(|busy| (13.8..=14.2).contains(busy)),
            "{:?}",
            &all.busy[500..510]
        );
        let some = Picture::new(bars, PictureRows::Family, Some((1_000_000, 1_100_000)), &[]);
        assert_eq!(some.attempts, some.columns.len() as i64, "each by itself");
        assert_eq!(some.attempts, 20_000 + 1 + 7);
    }

    #[test]
    fn slots_are_taken_again_when_they_are_free() {
        let mut slots = PictureSlots::default();
        assert_eq!(slots.take(0, 10), 0);
        assert_eq!(slots.take(5, 30), 1);
        assert_eq!(slots.take(10, 20), 0);
        assert_eq!(slots.take(12, 20), 2);
        assert_eq!(slots.take(40, 50), 0);
    }
}

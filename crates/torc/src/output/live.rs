//! The live line of `torc run` and `torc watch`, as text for a width.
//!
//! What matters most stays longest: the bar shrinks first, then names of running jobs go, then the
//! bar, then counts; failures and the time left are cut last.

use super::{escape, human};
use console::style;
use std::time::{Duration, Instant};
use torc_model::api::StatusView;
use torc_model::status::JobStatus;

/// Cells of the bar where there is room, and where there is little.
const BAR: std::ops::RangeInclusive<usize> = 4..=24;
/// Longest name of a job.
const NAME: usize = 20;
/// Jobs that are named.
pub const NAMED: usize = 3;
/// Between two parts.
const GAP: &str = "  ";

/// What the line shows.
#[derive(Default)]
pub struct Live {
    done: i64,
    total: i64,
    failed: i64,
    running: i64,
    /// Ready or blocked.
    waiting: i64,
    /// Seconds that are left, as of then.
    pub left: Option<(f64, Instant)>,
    /// Jobs that run, the longest first.
    pub longest: Vec<(String, Instant)>,
}

impl Live {
    /// Takes the counts of a workflow.
    pub fn set_counts(&mut self, status: &StatusView, done: i64) {
        let count = |which: &[JobStatus]| -> i64 {
            which.iter().filter_map(|s| status.counts.get(s.as_str())).sum()
        };
        self.done = done;
        self.total = status.total;
        self.failed = count(&[JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed]);
        self.running = count(&[JobStatus::Running, JobStatus::Pending]);
        self.waiting = count(&[JobStatus::Ready, JobStatus::Blocked]);
    }
}

/// `0:12 ██████░░░░░░  41/202  4 failed  2 running: sim_3 12s, sim_8 9s  159 waiting  ~50s left`.
pub fn line(live: &Live, elapsed: Duration, width: usize) -> String {
    let clock = clock(elapsed);
    let position = format!("{}/{}", human::grouped(live.done), human::grouped(live.total));
    let failed = (live.failed > 0).then(|| {
        style(format!("{} failed", human::grouped(live.failed))).for_stderr().red().to_string()
    });
    let left = live.left.map(|(seconds, at)| {
        format!("~{} left", human::rough_seconds(seconds - at.elapsed().as_secs_f64()))
    });
    let waiting = (live.waiting > 0).then(|| format!("{} waiting", human::grouped(live.waiting)));
    for (names, has_waiting) in [(NAMED, true), (NAMED, false), (2, false), (1, false), (0, false)]
    {
        let parts = [
            Some(position.clone()),
            failed.clone(),
            running(live, names),
            waiting.clone().filter(|_| has_waiting),
            left.clone(),
        ];
        let rest = joined(parts);
        let taken = measure(&clock) + 1 + GAP.len() + measure(&rest);
        if taken + BAR.start() <= width {
            let bar = bar(live, (width - taken).min(*BAR.end()));
            return format!("{clock} {bar}{GAP}{rest}");
        }
    }
    let some = |text: &String| Some(text.clone());
    let narrow = [
        [some(&clock), some(&position), failed.clone(), running(live, 0), left.clone()],
        [some(&clock), some(&position), failed.clone(), left.clone(), None],
        [some(&position), failed.clone(), left.clone(), None, None],
        [failed.clone().or_else(|| some(&position)), left.clone(), None, None, None],
    ];
    let texts = narrow.map(joined);
    match texts.iter().find(|text| measure(text) <= width) {
        Some(text) => text.clone(),
        None => console::truncate_str(&texts[3], width, "").into_owned(),
    }
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(GAP)
}

fn measure(text: &str) -> usize {
    console::measure_text_width(text)
}

/// `2 running: sim_3 12s, sim_8 9s`.
fn running(live: &Live, names: usize) -> Option<String> {
    if live.running == 0 {
        return None;
    }
    let mut text = format!("{} running", human::grouped(live.running));
    let name = |(name, since): &(String, Instant)| {
        let name = escape::line(name);
        let name = console::truncate_str(&name, NAME, "…");
        format!("{name} {}", human::rough_seconds(since.elapsed().as_secs_f64()))
    };
    let named: Vec<String> = live.longest.iter().take(names).map(name).collect();
    if !named.is_empty() {
        text += &format!(": {}", named.join(", "));
    }
    Some(style(text).for_stderr().cyan().to_string())
}

fn bar(live: &Live, cells: usize) -> String {
    let filled = match live.total {
        0 => 0,
        total => (live.done as f64 / total as f64 * cells as f64) as usize,
    };
    let filled = filled.min(cells);
    let done = style("█".repeat(filled)).for_stderr();
    let done = if live.failed > 0 { done.yellow() } else { done.green() };
    format!("{done}{}", style("░".repeat(cells - filled)).for_stderr().dim())
}

/// `0:05`, `12:40`, `3:02:09`.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Live {
        let now = Instant::now();
        let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        Live {
            done: 41,
            total: 202,
            failed: 4,
            running: 2,
            waiting: 159,
            left: Some((50.4, now)),
            longest: vec![("simulate_alpha_0.5_seed_10".into(), ago(72)), ("sim_8".into(), ago(9))],
        }
    }

    fn at(live: &Live, width: usize) -> String {
        console::set_colors_enabled_stderr(false);
        line(live, Duration::from_secs(75), width)
    }

    /// The bar shrinks first, failures and the time left stay longest.
    #[test]
    fn the_line_fits_every_width() {
        let live = live();
        for (width, expected) in [
            (
                120,
                "1:15 ████░░░░░░░░░░░░░░░░░░░  41/202  4 failed  2 running: simulate_alpha_0.5_… 1m 12s, sim_8 9s  159 waiting  ~50s left",
            ),
            (
                80,
                "1:15 █░░░░░  41/202  4 failed  2 running: simulate_alpha_0.5_… 1m 12s  ~50s left",
            ),
            (60, "1:15 ███░░░░░░░░░░░░  41/202  4 failed  2 running  ~50s left"),
            (40, "1:15  41/202  4 failed  ~50s left"),
            (20, "4 failed  ~50s left"),
            (10, "4 failed  "),
        ] {
            let text = at(&live, width);
            assert_eq!(text, expected, "at {width}");
        }
        for width in 0..200 {
            assert!(measure(&at(&live, width)) <= width, "at {width}");
        }
    }

    #[test]
    fn a_run_that_has_just_begun_shows_little() {
        let live = Live { total: 3, running: 1, ..Live::default() };
        assert_eq!(at(&live, 80), "1:15 ░░░░░░░░░░░░░░░░░░░░░░░░  0/3  1 running");
        assert_eq!(at(&Live::default(), 40), "1:15 ░░░░░░░░░░░░░░░░░░░░░░░░  0/0");
    }

    #[test]
    fn hours_are_shown_when_there_are_any() {
        assert_eq!(clock(Duration::from_secs(3 * 3600 + 129)), "3:02:09");
    }
}

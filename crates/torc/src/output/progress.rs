//! How far a workflow is: a bar and counts, live on a terminal, plain lines elsewhere.
//!
//! It is told when something happened and given the counts; it neither asks nor decides when to
//! ask.

use super::live::{self, Live};
use super::live_line::LiveLine;
use super::{Output, human};
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use torc_model::api::StatusView;
use torc_model::status::JobStatus;

/// Cells of the bar in cards.
const BAR: usize = 30;
/// Plain lines report such steps, in percent.
const STEP: i64 = 10;

/// The display of one run.
pub struct ProgressDisplay {
    output: Output,
    begin: Instant,
    /// Jobs that were done before this run of the program.
    done_before: i64,
    view: ProgressView,
}

enum ProgressView {
    /// A live line on a terminal.
    Bar {
        line: LiveLine,
        /// Read by the thread that draws.
        live: Arc<Mutex<Live>>,
    },
    /// A line at every step of percent.
    Lines {
        /// The last one told.
        step: i64,
    },
    /// Nothing until the end.
    Silent,
}

impl ProgressDisplay {
    /// Begins the display that fits the place.
    pub fn begin(output: Output, status: &StatusView) -> Self {
        let view = if output.quiet {
            ProgressView::Silent
        } else if is_live_terminal() {
            live_view()
        } else {
            ProgressView::Lines { step: percent(status) / STEP }
        };
        let mut progress = Self { output, begin: Instant::now(), done_before: done(status), view };
        progress.update(status);
        progress
    }

    /// The live line is there, so that names of running jobs are worth asking for.
    pub fn is_live(&self) -> bool {
        matches!(self.view, ProgressView::Bar { .. })
    }

    /// Shows these counts.
    pub fn update(&mut self, status: &StatusView) {
        let rest = self.estimate(status);
        match &mut self.view {
            ProgressView::Bar { live, .. } => {
                let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
                live.set_counts(status, done(status));
                live.left = rest.map(|left| (left, Instant::now()));
            }
            ProgressView::Lines { step } => {
                let reached = percent(status) / STEP;
                if reached > *step && !status.is_complete {
                    *step = reached;
                    let rest = rest
                        .map(|rest| format!(", about {} left", human::seconds(rest)))
                        .unwrap_or_default();
                    self.output.talk(format_args!(
                        "{}%: {} of {} done{}{rest}",
                        reached * STEP,
                        human::grouped(done(status)),
                        human::count(status.total, "job"),
                        running_and_failed(status),
                    ));
                }
            }
            ProgressView::Silent => {}
        }
    }

    /// Names jobs that run, the longest first, with the time since when.
    pub fn name_running(&self, jobs: Vec<(String, Instant)>) {
        if let ProgressView::Bar { live, .. } = &self.view {
            live.lock().unwrap_or_else(PoisonError::into_inner).longest = jobs;
        }
    }

    /// Tells something that happened, above the bar if there is one.
    pub fn tell(&self, line: impl std::fmt::Display) {
        self.suspend(|| self.output.talk(line));
    }

    /// Tells a failure: also to a user who wants quiet.
    pub fn tell_failure(&self, line: impl std::fmt::Display) {
        self.suspend(|| self.output.alert(line));
    }

    /// Takes the live line away while something else is written.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.view {
            ProgressView::Bar { line, .. } => line.suspend(write),
            ProgressView::Lines { .. } | ProgressView::Silent => write(),
        }
    }

    /// Takes the live display away.
    pub fn end(&self) {
        if let ProgressView::Bar { line, .. } = &self.view {
            line.end();
        }
    }

    /// How long this took so far.
    pub fn elapsed(&self) -> String {
        human::seconds(self.begin.elapsed().as_secs_f64())
    }

    /// The rest of the time in seconds, if the rate so far holds.
    fn estimate(&self, status: &StatusView) -> Option<f64> {
        let (now_done, left) = (done(status) - self.done_before, status.total - done(status));
        let elapsed = self.begin.elapsed().as_secs_f64();
        (now_done > 0 && left > 0 && elapsed > 1.0).then(|| elapsed / now_done as f64 * left as f64)
    }
}

/// A terminal that can draw a line over itself; `TERM=dumb` cannot.
fn is_live_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn live_view() -> ProgressView {
    let live = Arc::new(Mutex::new(Live::default()));
    let drawn = live.clone();
    let line = LiveLine::begin(move |elapsed, width| {
        let live = drawn.lock().unwrap_or_else(PoisonError::into_inner);
        live::line(&live, elapsed, width)
    });
    ProgressView::Bar { line, live }
}

fn running_and_failed(status: &StatusView) -> String {
    let count = |s: JobStatus| status.counts.get(s.as_str()).copied().unwrap_or_default();
    let failed = count(JobStatus::Failed) + count(JobStatus::Terminated);
    let mut text = format!(", {} running", human::grouped(count(JobStatus::Running)));
    if failed > 0 {
        text += &format!(", {} failed", human::grouped(failed));
    }
    text
}

/// `██████████░░░░░░  12 of 20 succeeded, 1 failed (65%)`: green is what succeeded, red what failed,
/// yellow what was canceled.
pub fn bar(status: &StatusView) -> String {
    let cells = |count: i64| match status.total {
        0 => 0,
        total => (count as f64 / total as f64 * BAR as f64) as usize,
    };
    let of = |status: &StatusView, which: &[JobStatus]| -> i64 {
        which.iter().map(|s| status.counts.get(s.as_str()).copied().unwrap_or_default()).sum()
    };
    let bad = of(status, &[JobStatus::Failed, JobStatus::Terminated]);
    let canceled = of(status, &[JobStatus::Canceled]);
    // The end of each part is rounded, not its length: the parts together end where the whole does.
    // A failure is always seen, however many jobs there are.
    let end = cells(done(status)).min(BAR);
    let good_end = cells(done(status) - bad - canceled);
    let bad_end = cells(done(status) - canceled);
    let good = if bad > 0 { good_end.min(BAR - 1) } else { good_end };
    let bad_cells = if bad > 0 { bad_end.saturating_sub(good).max(1) } else { 0 };
    let canceled_cells = end.saturating_sub(good + bad_cells);
    let rest = BAR - (good + bad_cells + canceled_cells).min(BAR);
    format!(
        "{}{}{}{}  {}",
        console::style("█".repeat(good)).green(),
        console::style("█".repeat(bad_cells)).red(),
        console::style("█".repeat(canceled_cells)).yellow(),
        console::style("░".repeat(rest)).dim(),
        succeeded_of_all(status),
    )
}

/// `196 of 202 succeeded, 4 failed, 2 canceled`, with the share that has ended while that is not
/// all.
pub fn succeeded_of_all(status: &StatusView) -> String {
    let count = |s: JobStatus| status.counts.get(s.as_str()).copied().unwrap_or_default();
    let mut text = format!(
        "{} of {} succeeded",
        human::grouped(count(JobStatus::Completed)),
        human::count(status.total, "job")
    );
    for (word, number) in [
        ("failed", count(JobStatus::Failed)),
        ("terminated", count(JobStatus::Terminated)),
        ("canceled", count(JobStatus::Canceled)),
        ("disabled", count(JobStatus::Disabled)),
        ("waiting for a verdict", count(JobStatus::PendingFailed)),
    ] {
        if number > 0 {
            text += &format!(", {} {word}", human::grouped(number));
        }
    }
    if !status.is_complete {
        text += &format!(" ({}%)", percent(status));
    }
    text
}

/// `completed 11  failed 1  running 2`: statuses without jobs are left out.
pub fn counts(status: &StatusView) -> String {
    let parts: Vec<String> = ORDER
        .iter()
        .filter_map(|s| {
            status.counts.get(s.as_str()).filter(|count| **count > 0).map(|count| (s, count))
        })
        .map(|(s, count)| {
            let text = console::style(format!("{s} {}", human::grouped(*count)));
            match s {
                JobStatus::Completed => text.green().to_string(),
                JobStatus::Failed | JobStatus::Terminated => text.red().to_string(),
                JobStatus::Canceled | JobStatus::PendingFailed => text.yellow().to_string(),
                JobStatus::Running | JobStatus::Pending => text.cyan().to_string(),
                JobStatus::Uninitialized
                | JobStatus::Blocked
                | JobStatus::Ready
                | JobStatus::Disabled => text.to_string(),
            }
        })
        .collect();
    if parts.is_empty() { "no jobs".into() } else { parts.join("  ") }
}

/// What is done first, what waits last.
const ORDER: [JobStatus; 11] = [
    JobStatus::Completed,
    JobStatus::Failed,
    JobStatus::Terminated,
    JobStatus::Canceled,
    JobStatus::PendingFailed,
    JobStatus::Disabled,
    JobStatus::Running,
    JobStatus::Pending,
    JobStatus::Ready,
    JobStatus::Blocked,
    JobStatus::Uninitialized,
];

/// Jobs that will not run again by themselves.
pub fn done(status: &StatusView) -> i64 {
    let is_final = |name: &str| JobStatus::parse(name).is_some_and(JobStatus::is_final);
    status.counts.iter().filter(|(name, _)| is_final(name)).map(|(_, count)| count).sum()
}

/// Whole percent, 100 only when all is done.
pub fn percent(status: &StatusView) -> i64 {
    if status.total == 0 { 100 } else { done(status) * 100 / status.total }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use torc_model::ids::WorkflowId;

    fn status(counts: &[(JobStatus, i64)], is_complete: bool) -> StatusView {
        StatusView {
            workflow_id: WorkflowId(1),
            name: "w".into(),
            run_id: 1,
            counts: counts
                .iter()
                .map(|(s, n)| (s.as_str().to_owned(), *n))
                .collect::<BTreeMap<_, _>>(),
            total: counts.iter().map(|(_, n)| n).sum(),
            is_complete,
            is_canceled: false,
            is_archived: false,
            active_runners: 0,
            lost_contact_runners: 0,
            started_ms: None,
            last_end_ms: None,
            recovered_steps: 0,
            ignored_steps: 0,
        }
    }

    #[test]
    fn an_end_with_failures_does_not_read_as_success() {
        let ended = status(
            &[(JobStatus::Completed, 196), (JobStatus::Failed, 4), (JobStatus::Canceled, 2)],
            true,
        );
        assert_eq!(succeeded_of_all(&ended), "196 of 202 jobs succeeded, 4 failed, 2 canceled");
        let half = status(&[(JobStatus::Completed, 5), (JobStatus::Running, 5)], false);
        assert_eq!(succeeded_of_all(&half), "5 of 10 jobs succeeded (50%)");
    }

    #[test]
    fn a_single_failure_among_many_colours_a_cell_of_the_bar() {
        let cells = |text: &str| text.split("  ").next().unwrap_or_default().chars().count();
        for (good, bad, canceled, left) in [
            (0, 0, 0, 0),
            (99_999, 1, 0, 0),
            (0, 1, 0, 0),
            (1, 0, 99_999, 0),
            (3, 3, 3, 3),
            (0, 1, 0, 99_999),
        ] {
            let status = status(
                &[
                    (JobStatus::Completed, good),
                    (JobStatus::Failed, bad),
                    (JobStatus::Canceled, canceled),
                    (JobStatus::Ready, left),
                ],
                left == 0,
            );
            console::set_colors_enabled(false);
            assert_eq!(cells(&bar(&status)), BAR, "{good} {bad} {canceled} {left}");
        }
    }
}

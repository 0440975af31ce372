//! How far a workflow is: a bar and counts, live on a terminal, plain lines elsewhere.
//!
//! It is told when something happened and given the counts; it neither asks nor decides when to
//! ask.

use super::{Output, human};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use torc_model::api::StatusView;
use torc_model::status::JobStatus;

/// Cells of the bar in cards.
const BAR: usize = 30;
/// The elapsed time moves on although nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// Plain lines report such steps, in percent.
const STEP: i64 = 10;

/// The display of one run.
pub struct Progress {
    output: Output,
    begin: Instant,
    /// Jobs that were done before this run of the program.
    done_before: i64,
    view: View,
}

enum View {
    /// A live line on a terminal.
    Bar(ProgressBar),
    /// A line at every step of percent.
    Lines {
        /// The last one told.
        step: i64,
    },
    /// Nothing until the end.
    Silent,
}

impl Progress {
    /// Begins the display that fits the place.
    pub fn begin(output: Output, status: &StatusView) -> Self {
        let view = if output.quiet {
            View::Silent
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "{spinner} {elapsed_precise} {bar:24.green/dim} {pos}/{len} {wide_msg}",
            );
            bar.set_style(
                style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("██░"),
            );
            bar.enable_steady_tick(TICK);
            View::Bar(bar)
        } else {
            View::Lines { step: percent(status) / STEP }
        };
        let mut progress = Self { output, begin: Instant::now(), done_before: done(status), view };
        progress.update(status);
        progress
    }

    /// Shows these counts.
    pub fn update(&mut self, status: &StatusView) {
        let rest = self.estimate(status);
        match &mut self.view {
            View::Bar(bar) => {
                bar.set_length(status.total.max(0).unsigned_abs());
                bar.set_position(done(status).max(0).unsigned_abs());
                let rest = rest.map(|rest| format!("  about {rest} left")).unwrap_or_default();
                bar.set_message(format!("{}{rest}", counts(status)));
            }
            View::Lines { step } => {
                let reached = percent(status) / STEP;
                if reached > *step && !status.is_complete {
                    *step = reached;
                    let rest = rest.map(|rest| format!(", about {rest} left")).unwrap_or_default();
                    self.output.talk(format_args!(
                        "{} %: {} of {} done{}{rest}",
                        reached * STEP,
                        human::grouped(done(status)),
                        human::count(status.total, "job"),
                        running_and_failed(status),
                    ));
                }
            }
            View::Silent => {}
        }
    }

    /// Tells something that happened, above the bar if there is one.
    pub fn tell(&self, line: impl std::fmt::Display) {
        match &self.view {
            View::Bar(bar) => bar.suspend(|| self.output.talk(line)),
            View::Lines { .. } | View::Silent => self.output.talk(line),
        }
    }

    /// Takes the live display away.
    pub fn end(&self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }

    /// How long this took so far.
    pub fn elapsed(&self) -> String {
        human::seconds(self.begin.elapsed().as_secs_f64())
    }

    /// The rest of the time, if the rate so far holds.
    fn estimate(&self, status: &StatusView) -> Option<String> {
        let (now_done, left) = (done(status) - self.done_before, status.total - done(status));
        let elapsed = self.begin.elapsed().as_secs_f64();
        (now_done > 0 && left > 0 && elapsed > 1.0)
            .then(|| human::seconds(elapsed / now_done as f64 * left as f64))
    }
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

/// `██████████░░░░░░  12 of 20 jobs done (60 %)`.
pub fn bar(status: &StatusView) -> String {
    let done = done(status);
    let filled = if status.total == 0 {
        BAR
    } else {
        (done as f64 / status.total as f64 * BAR as f64) as usize
    };
    let filled = filled.min(BAR);
    format!(
        "{}{}  {}",
        console::style("█".repeat(filled)).green(),
        console::style("░".repeat(BAR - filled)).dim(),
        done_of_all(status),
    )
}

/// `12 of 20 jobs done (60 %)`.
pub fn done_of_all(status: &StatusView) -> String {
    let all = human::count(status.total, "job");
    format!("{} of {all} done ({} %)", human::grouped(done(status)), percent(status))
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

//! How far a workflow is: a bar and counts, live on a terminal, plain lines elsewhere.

use super::human;
use torc_model::api::StatusView;
use torc_model::status::JobStatus;

/// Cells of the bar in cards.
const BAR: usize = 30;

/// `██████████░░░░░░  12 of 20 jobs done (60 %)`.
pub fn bar(status: &StatusView) -> String {
    let done = done(status);
    let filled = if status.total == 0 { BAR } else { (done as f64 / status.total as f64 * BAR as f64) as usize };
    let filled = filled.min(BAR);
    format!(
        "{}{}  {} of {} done ({} %)",
        console::style("█".repeat(filled)).green(),
        console::style("░".repeat(BAR - filled)).dim(),
        human::grouped(done),
        human::count(status.total, "job"),
        percent(status),
    )
}

/// `completed 11  failed 1  running 2`: statuses without jobs are left out.
pub fn counts(status: &StatusView) -> String {
    let parts: Vec<String> = ORDER
        .iter()
        .filter_map(|s| status.counts.get(s.as_str()).filter(|count| **count > 0).map(|count| (s, count)))
        .map(|(s, count)| {
            let text = format!("{s} {}", human::grouped(*count));
            match s {
                JobStatus::Completed => console::style(text).green().to_string(),
                JobStatus::Failed | JobStatus::Terminated => console::style(text).red().to_string(),
                JobStatus::Canceled | JobStatus::PendingFailed => console::style(text).yellow().to_string(),
                JobStatus::Running | JobStatus::Pending => console::style(text).cyan().to_string(),
                JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready | JobStatus::Disabled => text,
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

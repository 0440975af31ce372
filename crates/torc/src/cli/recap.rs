//! What a run is remembered by when it ends: what failed, what was retried and recovered, and what
//! took longest. It only collects; its size does not grow with the number of jobs.

use crate::output::{Output, escape, human};
use console::style;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use torc_model::ids::JobId;

/// Failures that the end repeats; `torc status` and `torc reports summary` have the rest.
const MAX_FAILURES: usize = 10;
/// Jobs that are named as the longest.
const MAX_LONGEST: usize = 3;
/// Recovered jobs that are named.
const MAX_RECOVERED: usize = 3;
/// Jobs whose retries are told apart; beyond it they are only counted.
const MAX_RETRIED: usize = 10_000;
/// Shorter than this nothing took long.
const LONG_SECONDS: f64 = 1.0;

/// A failure as it is told.
#[derive(Clone, Debug)]
pub struct Failure {
    /// `failed: sim_3 (job 3) after 0.2s: exit code 1`, without the first word.
    pub text: String,
    /// The last line of standard error.
    pub last_line: Option<String>,
}

/// Everything that the end tells.
#[derive(Default, Debug)]
pub struct Recap {
    failures: BTreeMap<JobId, Failure>,
    failed: usize,
    retried: BTreeSet<JobId>,
    recovered: Vec<String>,
    recovered_count: i64,
    /// Seconds and name, the longest first.
    longest: Vec<(f64, String)>,
    ended: usize,
}

impl Recap {
    /// An attempt of a job has succeeded.
    pub fn on_success(&mut self, job: JobId, name: &str, attempt: i64, seconds: f64) {
        self.ended += 1;
        self.measure(name, seconds);
        if attempt > 1 {
            self.recovered_count += 1;
            if self.recovered.len() < MAX_RECOVERED {
                self.recovered.push(name.to_owned());
            }
        }
        // A failure that recovery has tried again is none any more.
        if self.failed > 0 && self.failures.remove(&job).is_some() {
            self.failed -= 1;
        }
    }

    /// An attempt of a job has failed and the job runs again.
    pub fn on_retry(&mut self, job: JobId, name: &str, seconds: f64) {
        self.measure(name, seconds);
        if self.retried.len() < MAX_RETRIED {
            self.retried.insert(job);
        }
    }

    /// A job has failed for good.
    pub fn on_failure(&mut self, job: JobId, name: &str, seconds: f64, failure: Failure) {
        self.ended += 1;
        self.measure(name, seconds);
        let has_room = self.failures.len() < MAX_FAILURES;
        match self.failures.entry(job) {
            Entry::Occupied(mut known) => _ = known.insert(failure),
            Entry::Vacant(place) => {
                self.failed += 1;
                if has_room {
                    place.insert(failure);
                }
            }
        }
    }

    fn measure(&mut self, name: &str, seconds: f64) {
        let is_among = self.longest.len() < MAX_LONGEST
            || self.longest.last().is_some_and(|(least, _)| seconds > *least);
        // Most ends of a long run stop here.
        if !is_among {
            return;
        }
        self.longest.retain(|(known, other)| other != name || *known > seconds);
        if self.longest.iter().any(|(_, other)| other == name) {
            return;
        }
        let place = self.longest.partition_point(|(known, _)| *known >= seconds);
        self.longest.insert(place, (seconds, name.to_owned()));
        self.longest.truncate(MAX_LONGEST);
    }

    /// Tells it all.
    pub fn tell(&self, output: Output) {
        for line in self.lines() {
            output.talk(line);
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.retried.is_empty() || self.recovered_count > 0 {
            let retried = self.retried.len().max(self.recovered.len()) as i64;
            let mut text = format!("  retried: {}", human::count(retried, "job"));
            if self.recovered_count > 0 {
                let more =
                    if self.recovered_count > self.recovered.len() as i64 { ", ..." } else { "" };
                let names: Vec<_> = self.recovered.iter().map(|name| escape::line(name)).collect();
                text += &format!(
                    ", {} recovered ({}{more})",
                    human::grouped(self.recovered_count),
                    names.join(", ")
                );
            } else {
                text += ", none recovered";
            }
            lines.push(text);
        }
        let long = self.longest.iter().take_while(|(seconds, _)| *seconds >= LONG_SECONDS);
        let long: Vec<String> = long
            .map(|(seconds, name)| format!("{} {}", escape::line(name), human::seconds(*seconds)))
            .collect();
        if self.ended > 1 && !long.is_empty() {
            lines.push(format!("  longest: {}", long.join(", ")));
        }
        for failure in self.failures.values() {
            lines.push(told("failed", failure));
        }
        if self.failed > self.failures.len() {
            let more = (self.failed - self.failures.len()) as i64;
            lines.push(format!("and {} more failed", human::count(more, "job")));
        }
        lines
    }
}

/// `failed: sim_3 (job 3) after 0.2s: exit code 1`, and below it the last line of standard error.
pub fn told(word: &str, failure: &Failure) -> String {
    let word = match word {
        "failed" => style(format!("{word}:")).for_stderr().red().bold(),
        _ => style(format!("{word}:")).for_stderr().yellow(),
    };
    let mut text = format!("{word} {}", failure.text);
    if let Some(line) = &failure.last_line {
        // Colours of the job; what is left of escape sequences becomes visible.
        let plain = console::strip_ansi_codes(line);
        let line = escape::line(&plain);
        text += &format!("\n  | {}", console::truncate_str(&line, LINE, "…"));
    }
    text
}

/// Longest line of standard error that is repeated.
const LINE: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str, last_line: Option<&str>) -> Failure {
        Failure { text: text.into(), last_line: last_line.map(Into::into) }
    }

    #[test]
    fn the_end_tells_retries_longest_jobs_and_failures() {
        console::set_colors_enabled_stderr(false);
        let mut recap = Recap::default();
        recap.on_success(JobId(1), "a", 1, 0.2);
        recap.on_retry(JobId(2), "b", 3.0);
        recap.on_success(JobId(2), "b", 2, 12.0);
        recap.on_failure(
            JobId(3),
            "c",
            5.0,
            failure("c (job 3) after 5.0s: exit code 1", Some("no\u{7}")),
        );
        assert_eq!(
            recap.lines(),
            [
                "  retried: 1 job, 1 recovered (b)",
                "  longest: b 12s, c 5.0s",
                "failed: c (job 3) after 5.0s: exit code 1\n  | no\\u{7}",
            ]
        );
    }

    #[test]
    fn a_failure_that_was_recovered_is_not_repeated() {
        let mut recap = Recap::default();
        recap.on_failure(JobId(3), "c", 0.1, failure("c", None));
        recap.on_success(JobId(3), "c", 2, 0.1);
        assert_eq!(recap.lines(), ["  retried: 1 job, 1 recovered (c)"]);
    }

    #[test]
    fn many_failures_are_counted() {
        console::set_colors_enabled_stderr(false);
        let mut recap = Recap::default();
        for id in 0..1000 {
            recap.on_failure(JobId(id), "x", 0.1, failure("x", None));
        }
        let lines = recap.lines();
        assert_eq!(lines.len(), MAX_FAILURES + 1);
        assert_eq!(lines.last().map(String::as_str), Some("and 990 jobs more failed"));
    }
}

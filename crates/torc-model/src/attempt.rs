//! The parts of an attempt's end, each once: what it used, where its output is, how it ended, and what
//! was decided about it. Reports and views have the same fields, flat.

use crate::api::{CompletionReport, Evidence};
use crate::recovery::{Facts, Observed};
use crate::status::{Cause, EndDetail, Outcome};
use crate::words;

/// What an attempt used.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Wall time, by the monotonic clock.
    pub exec_seconds: Option<f64>,
    /// User and system time of the whole tree.
    pub cpu_seconds: Option<f64>,
    /// Highest memory use of the whole tree.
    pub peak_memory_bytes: Option<i64>,
    /// Mean memory use of the samples.
    pub avg_memory_bytes: Option<i64>,
    /// Highest CPU use, 100 per core.
    pub peak_cpu_percent: Option<f64>,
    /// Mean CPU use, 100 per core.
    pub avg_cpu_percent: Option<f64>,
}

/// Where an attempt's output is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Output {
    /// Standard output's file.
    pub stdout_path: Option<String>,
    /// Standard error's file.
    pub stderr_path: Option<String>,
    /// The end of standard error of a failure, decoded lossily.
    pub stderr_tail: Option<String>,
    /// Where that end begins in the file, in bytes.
    pub stderr_tail_start: Option<i64>,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ending {
    /// Return code.
    pub return_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Why it failed; absent for success.
    pub cause: Option<Cause>,
    /// What exactly failed or stopped it, where the cause leaves that open.
    pub detail: Option<EndDetail>,
    /// What a person should read.
    pub error: Option<String>,
    /// What decided the cause, strongest first.
    pub evidence: Vec<Evidence>,
}

/// What was decided about an attempt's end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// What the rules decided.
    pub outcome: Option<Outcome>,
    /// The decision in one sentence.
    pub text: Option<String>,
    /// The rule that matched.
    pub rule: Option<usize>,
}

impl CompletionReport {
    /// What it used.
    pub fn usage(&self) -> Usage {
        Usage {
            exec_seconds: Some(self.exec_seconds),
            cpu_seconds: self.cpu_seconds,
            peak_memory_bytes: self.peak_memory_bytes,
            avg_memory_bytes: self.avg_memory_bytes,
            peak_cpu_percent: self.peak_cpu_percent,
            avg_cpu_percent: self.avg_cpu_percent,
        }
    }

    /// Where its output is.
    pub fn output(&self) -> Output {
        Output {
            stdout_path: self.stdout_path.clone(),
            stderr_path: self.stderr_path.clone(),
            stderr_tail: self.stderr_tail.clone(),
            stderr_tail_start: self.stderr_tail_start,
        }
    }

    /// How it ended. A failure whose runner named no cause has that of its code or signal.
    pub fn ending(&self) -> Ending {
        let failed = self.return_code != 0 || self.signal.is_some();
        let by_code = if self.signal.is_some() { Cause::Signal } else { Cause::Exit };
        Ending {
            return_code: Some(self.return_code),
            signal: self.signal,
            cause: self.cause.or_else(|| failed.then_some(by_code)),
            detail: self.detail,
            error: self.error.clone().map(words::message),
            evidence: self.evidence.iter().cloned().map(Evidence::shown).collect(),
        }
    }
}

impl<'a> Facts<'a> {
    /// What an end tells; what the attempt ran and its limits are not part of it.
    pub fn of(
        ending: &'a Ending,
        usage: &Usage,
        output: &'a Output,
        observed: Option<&'a Observed>,
    ) -> Self {
        Self {
            cause: ending.cause,
            return_code: ending.return_code,
            signal: ending.signal,
            detail: ending.detail,
            error: ending.error.as_deref(),
            evidence: &ending.evidence,
            exec_seconds: usage.exec_seconds,
            peak_memory_bytes: usage.peak_memory_bytes,
            cpu_seconds: usage.cpu_seconds,
            stderr_tail: output.stderr_tail.as_deref().unwrap_or(""),
            stderr_tail_start: output.stderr_tail_start,
            observed,
            ..Self::default()
        }
    }
}

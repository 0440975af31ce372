//! From what steps did to the report that the server gets.

use super::failure::{Failure, Stop};
use super::run::Run;
use crate::attempt::{Lacking, Rules, judge, peak_memory, sinks, stdio, tail, to_i64};
use crate::observe;
use crate::process::Sink;
use crate::supervisor::{How, ProcessExit, StopReason};
use crate::time::now_ms;
use std::path::Path;
use std::time::Duration;
use torc_model::api::{AttemptRef, CompletionReport, Evidence};
use torc_model::status::{Cause, EndDetail, EvidenceSource};
use torc_model::steps::{ErrorKind, failure_line};

/// What all processes of an attempt used.
#[derive(Debug, Default)]
pub struct Sum {
    cpu: Duration,
    peak_memory_bytes: Option<u64>,
    peak_cpu_percent: Option<f64>,
    processes: u32,
}

impl Sum {
    /// Adds one more.
    pub fn add(&mut self, exit: &ProcessExit) {
        if matches!(exit.how, How::NotStarted(_)) {
            return;
        }
        self.processes += 1;
        self.cpu += exit.cpu;
        self.peak_memory_bytes = self.peak_memory_bytes.max(peak_memory(exit));
        self.peak_cpu_percent = [self.peak_cpu_percent, exit.usage.peak_cpu_percent]
            .into_iter()
            .flatten()
            .reduce(f64::max);
    }
}

/// How the attempt ended.
struct StepsEnd {
    return_code: i64,
    signal: Option<i64>,
    cause: Option<Cause>,
    detail: Option<EndDetail>,
    error: Option<String>,
    evidence: Vec<Evidence>,
}

/// Makes the report.
pub fn make(mut run: Run, end: Result<Option<Box<Failure>>, Stop>) -> Box<CompletionReport> {
    let mut verdict = match &end {
        Ok(None) => missing(&run),
        Ok(Some(failure)) => of_failure(&run, failure),
        Err(Stop::Fatal(failure)) => {
            run.record.report.fatal = true;
            let mut verdict = of_failure(&run, failure);
            let text = "its handler failed too, and `handler_failure_fatal` forbids another try";
            verdict.evidence.push(Evidence { source: EvidenceSource::Journal, text: text.into() });
            verdict
        }
        Err(Stop::Interrupted(exit, reason)) => of_stop(&run, exit.as_deref(), reason.as_ref()),
    };
    if let Ok(Some(failure)) | Err(Stop::Fatal(failure)) = &end {
        let remark = |text: String| Evidence { source: EvidenceSource::Journal, text };
        verdict.evidence.extend(std::mem::take(&mut run.record.remarks).into_iter().map(remark));
        run.record.report.failed_step = Some(failure.step.clone());
    }
    if !run.is_light {
        run.context.live.end(run.packet.id);
        torc_failpoint::hit("steps.before_report");
    }
    run.record.report.captures =
        run.scope.captures().iter().map(|(name, c)| (name.clone(), c.value.clone())).collect();
    let is_success = verdict.cause.is_none();
    let (mut stdout, mut stderr) = sinks(&run.context, &run.packet);
    let tail_of = if stderr == Sink::SameAsStdout { stdout.path() } else { stderr.path() };
    let (stderr_tail, stderr_tail_start) = tail_of.filter(|_| !is_success).and_then(tail).unzip();
    let observed = (!is_success).then(|| observe::observed(None, stdout.path(), tail_of));
    if is_success && stdio(&run.context, &run.packet).delete_on_success {
        let own = [stdout.path(), stderr.path()].into_iter().flatten();
        for path in own.chain(run.files.iter().map(std::path::PathBuf::as_path)) {
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "cannot remove a log file");
            }
        }
        (stdout, stderr) = (Sink::Null, Sink::Null);
    }
    let text = |path: Option<&Path>| path.map(|path| path.display().to_string());
    let stderr_path = if stderr == Sink::SameAsStdout { stdout.path() } else { stderr.path() };
    let seconds = run.clock.started.elapsed().as_secs_f64();
    let has_run = run.usage.processes > 0;
    let cpu = run.usage.cpu.as_secs_f64();
    // The steps of a plain success have nothing to tell that the attempt does not.
    let steps = (!(run.is_light && is_success))
        .then(|| serde_json::to_value(&run.record.report).unwrap_or_default());
    Box::new(CompletionReport {
        attempt: AttemptRef { id: run.packet.id, token: run.packet.token.clone() },
        return_code: verdict.return_code,
        signal: verdict.signal,
        cause: verdict.cause,
        detail: verdict.detail,
        error: verdict.error,
        evidence: verdict.evidence,
        started_ms: run.clock.started_ms,
        ended_ms: now_ms(),
        exec_seconds: seconds,
        cpu_seconds: has_run.then_some(cpu),
        peak_memory_bytes: run.usage.peak_memory_bytes.map(to_i64),
        avg_memory_bytes: None,
        peak_cpu_percent: run.usage.peak_cpu_percent,
        avg_cpu_percent: (has_run && seconds > 0.0).then(|| cpu / seconds * 100.0),
        stdout_path: text(stdout.path()),
        stderr_path: text(stderr_path),
        stderr_tail,
        stderr_tail_start,
        observed,
        script: run.script,
        steps,
    })
}

fn success() -> StepsEnd {
    StepsEnd {
        return_code: 0,
        signal: None,
        cause: None,
        detail: None,
        error: None,
        evidence: Vec::new(),
    }
}

fn missing(run: &Run) -> StepsEnd {
    let lacking = Lacking::find(&run.context, &run.packet, run.outputs.as_deref());
    if lacking.is_empty() {
        return success();
    }
    let text = format!("all steps succeeded, but {}", lacking.sentence());
    let evidence = vec![Evidence { source: EvidenceSource::Output, text: text.clone() }];
    StepsEnd {
        return_code: 1,
        signal: None,
        cause: Some(Cause::MissingOutput),
        detail: None,
        error: Some(text),
        evidence,
    }
}

fn of_failure(run: &Run, failure: &Failure) -> StepsEnd {
    let execution = &run.context.execution;
    let checked = failure
        .exit
        .as_ref()
        .map(|exit| judge(exit, &Rules::of(&run.context, &run.packet), &Lacking::default()));
    let evidence = checked.as_ref().map(|verdict| verdict.evidence.clone()).unwrap_or_default();
    let detail = checked.as_ref().and_then(|verdict| verdict.detail);
    let cause = match failure.kind {
        ErrorKind::Timeout | ErrorKind::Walltime => Cause::Timeout,
        ErrorKind::Spawn => Cause::SpawnError,
        ErrorKind::Exit
        | ErrorKind::Signal
        | ErrorKind::Agent
        | ErrorKind::Expect
        | ErrorKind::Validation
        | ErrorKind::Capture
        | ErrorKind::Variable => checked.and_then(|verdict| verdict.cause).unwrap_or(Cause::Exit),
    };
    let return_code = match failure.kind {
        // The attempt's own limit, as for a command.
        ErrorKind::Walltime => i64::from(execution.timeout_exit_code),
        _ => failure.code,
    };
    let error = failure_line(&failure.step, failure.kind, failure.code, &failure.message);
    StepsEnd {
        return_code,
        signal: failure.signal,
        cause: Some(cause),
        // Why it could not be started tells more than that a step was not.
        detail: detail.filter(|_| cause == Cause::SpawnError).or_else(|| Some(failure.kind.into())),
        error: Some(error),
        evidence,
    }
}

fn of_stop(run: &Run, exit: Option<&ProcessExit>, reason: Option<&StopReason>) -> StepsEnd {
    let stopped;
    let exit = match (exit, reason) {
        (Some(exit), _) => exit,
        (None, reason) => {
            // Nothing ran at that moment: as if a process had obeyed at once.
            let at = now_ms();
            stopped = ProcessExit {
                id: 0,
                how: How::Signal(libc::SIGTERM),
                started_ms: at,
                ended_ms: at,
                wall: Duration::ZERO,
                cpu: Duration::ZERO,
                peak_memory_bytes: 0,
                usage: Default::default(),
                stop: Some(reason.cloned().unwrap_or(StopReason::Stopped)),
                journal: Vec::new(),
                memory: None,
                machine_oom: false,
                survivors: Vec::new(),
                recent: None,
            };
            &stopped
        }
    };
    let verdict = judge(exit, &Rules::of(&run.context, &run.packet), &Lacking::default());
    StepsEnd {
        return_code: verdict.return_code,
        signal: verdict.signal,
        cause: verdict.cause,
        detail: verdict.detail,
        error: verdict.error,
        evidence: verdict.evidence,
    }
}

/// A time as `2026-01-31T12:00:00.123Z`.
pub fn rfc3339(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Civil date from a day count: eras of 400 years, years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, milli) =
        (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_not_measured_is_unknown() {
        let mut exit = ProcessExit {
            id: 0,
            how: How::Code(0),
            started_ms: 0,
            ended_ms: 1,
            wall: Duration::from_millis(1),
            cpu: Duration::ZERO,
            peak_memory_bytes: 0,
            usage: Default::default(),
            stop: None,
            journal: Vec::new(),
            memory: None,
            machine_oom: false,
            survivors: Vec::new(),
            recent: None,
        };
        let mut sum = Sum::default();
        sum.add(&exit);
        assert_eq!((sum.processes, sum.peak_memory_bytes), (1, None));
        exit.peak_memory_bytes = 300;
        sum.add(&exit);
        exit.peak_memory_bytes = 0;
        sum.add(&exit);
        assert_eq!((sum.processes, sum.peak_memory_bytes), (3, Some(300)));
    }

    #[test]
    fn times_read_as_people_write_them() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_827_696_789), "2000-02-29T12:34:56.789Z");
        assert_eq!(rfc3339(1_798_761_599_999), "2026-12-31T23:59:59.999Z");
    }
}

//! What the end of a process means: success, or a cause with its evidence.

use super::AttemptContext;
use crate::outputs::{self, Before};
use crate::supervisor::{How, ProcessExit, StopReason};
use crate::sys;
use std::time::Duration;
use torc_model::api::{AttemptPacket, Evidence, TOLD_TO_STOP};
use torc_model::plan::Execution;
use torc_model::status::{Cause, EndDetail, EvidenceSource};

/// Names at most this many missing files; the rest is a number.
const NAMED_FILES: usize = 10;

/// Output files that an attempt did not make.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lacking {
    pub(super) missing: Vec<String>,
    /// They were there before it and did not change.
    pub(super) old: Vec<String>,
    /// They are smaller than the job promises.
    pub(super) small: Vec<String>,
}

impl Lacking {
    /// Looks at the output files of an attempt that has ended.
    pub fn find(context: &AttemptContext, packet: &AttemptPacket, before: Option<&Before>) -> Self {
        // A job that saves its state and continues keeps what its earlier attempts wrote.
        let continues = context.checkpoint_exit_code.is_some() && packet.attempt_id > 1;
        let before = before.filter(|_| !continues);
        let mut lacking = Self::default();
        for (index, file) in packet.output_files.iter().enumerate() {
            // A file that was declared by its path has no name of its own.
            let name = || match file.name == file.path {
                true => format!("`{}`", file.path),
                false => format!("`{}` ({})", file.path, file.name),
            };
            let path = context.working_dir.join(&file.path);
            if !path.exists() {
                lacking.missing.push(name());
            } else if let Some(size) = outputs::too_small(&path, file.min_size) {
                lacking.small.push(match size {
                    0 => format!("{} is empty", name()),
                    _ => format!("{} has {size} of {} bytes", name(), file.min_size),
                });
            } else if before.is_some_and(|b| b.is_untouched(index, &context.working_dir)) {
                lacking.old.push(name());
            }
        }
        lacking
    }

    /// Nothing is lacking.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.old.is_empty() && self.small.is_empty()
    }

    /// What is wrong with the output files, to go after a `but`.
    pub fn sentence(&self) -> String {
        let missing = (!self.missing.is_empty())
            .then(|| format!("output files are missing: {}", named(&self.missing)));
        let old = (!self.old.is_empty()).then(|| {
            format!(
                "output files are older than this attempt, which did not write them: {}",
                named(&self.old)
            )
        });
        let small = (!self.small.is_empty())
            .then(|| format!("output files are too small: {}", named(&self.small)));
        missing.into_iter().chain(small).chain(old).collect::<Vec<_>>().join("; ")
    }
}

fn named(files: &[String]) -> String {
    let rest = files.len().saturating_sub(NAMED_FILES);
    let mut names = files[..files.len().min(NAMED_FILES)].join(", ");
    if rest > 0 {
        names += &format!(" and {rest} more");
    }
    names
}

/// What decides how an end is judged.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The workflow's settings.
    pub execution: &'a Execution,
    /// Exit code that means "continue me".
    pub checkpoint: Option<i64>,
    /// Success counts although the kernel killed a process at the memory limit.
    pub tolerates_oom: bool,
}

impl<'a> Rules<'a> {
    /// For an attempt.
    pub fn of(context: &'a AttemptContext, packet: &AttemptPacket) -> Self {
        Self {
            execution: &context.execution,
            checkpoint: context.checkpoint_exit_code,
            tolerates_oom: packet.strictness.tolerate_oom,
        }
    }
}

/// What an ended process means.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// As reported.
    pub return_code: i64,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Why it failed; absent for success.
    pub cause: Option<Cause>,
    /// What exactly failed or stopped it.
    pub detail: Option<EndDetail>,
    /// One sentence.
    pub error: Option<String>,
    /// What decided the cause.
    pub evidence: Vec<Evidence>,
}

impl Verdict {
    /// It failed in the script that recovers, not in the command.
    pub fn blame_the_script(&mut self) {
        if self.cause.is_some() {
            // It is the script that could not be started.
            let detail = self.detail.filter(|_| self.cause != Some(Cause::SpawnError));
            self.detail = detail.or(Some(EndDetail::RecoveryScript));
        }
    }
}

/// A piece of evidence.
pub fn evidence(source: EvidenceSource, text: String) -> Evidence {
    Evidence { source, text }
}

/// The cause of an end, from the strongest evidence to the weakest: what we did, what the kernel
/// counted, what files are there, what the program said.
pub fn judge(exit: &ProcessExit, rules: &Rules<'_>, lacking: &Lacking) -> Verdict {
    let Rules { execution, checkpoint, tolerates_oom } = *rules;
    let signal = match exit.how {
        How::Signal(signal) => Some(i64::from(signal)),
        How::Code(_) | How::NotStarted(_) => None,
    };
    let own_code = match &exit.how {
        How::Code(code) => i64::from(*code),
        How::Signal(signal) => i64::from(128 + signal),
        How::NotStarted(error) => i64::from(error.return_code),
    };
    let mut found = Verdict {
        return_code: own_code,
        signal,
        cause: None,
        detail: None,
        error: None,
        evidence: journal(exit),
    };
    let mut set = |return_code: i64, cause: Cause, error: String| {
        found.return_code = return_code;
        found.cause = Some(cause);
        found.error = Some(error);
    };
    // The signal that ended it when it obeyed; when it caught ours and left with a code, ours.
    let by_signal = 128
        + signal
            .or(exit.journal.last().map(|s| i64::from(s.signal)))
            .unwrap_or(i64::from(libc::SIGTERM));
    let kernel_kills = exit.memory.map_or(0, |m| m.oom_kills);
    match (&exit.stop, &exit.how) {
        (_, How::NotStarted(error)) => {
            set(own_code, Cause::SpawnError, error.message.clone());
            found.detail = error.detail;
        }
        (Some(StopReason::Canceled), _) => set(by_signal, Cause::Canceled, "canceled".into()),
        (Some(StopReason::Stopped), _) => {
            set(by_signal, Cause::Stopped, TOLD_TO_STOP.into());
            found.detail = Some(EndDetail::ToldToStop);
        }
        (Some(StopReason::NotOurs), _) => {
            set(by_signal, Cause::Stopped, "the attempt was given to another runner".into());
        }
        (Some(StopReason::OutOfContact), _) => {
            set(
                by_signal,
                Cause::Stopped,
                "the runner could not reach the server and ended its jobs".into(),
            );
        }
        // It was asked to end in time and saved its state: that is what the code is for.
        (Some(StopReason::RunnerTimeUp | StopReason::Timeout { .. }), How::Code(code))
            if checkpoint == Some(i64::from(*code)) =>
        {
            set(own_code, Cause::Checkpoint, "saved its state when its time was over".into());
        }
        // Not its own limit: another allocation may have the time.
        (Some(StopReason::RunnerTimeUp), _) => {
            set(
                by_signal,
                Cause::Walltime,
                "the allocation's time was over before the job's end".into(),
            );
            let text = "the walltime of its runner was nearly over";
            found.evidence.insert(0, evidence(EvidenceSource::Journal, text.into()));
        }
        (Some(StopReason::Timeout { limit }), _) => set(
            i64::from(execution.timeout_exit_code),
            Cause::Timeout,
            format!("ran longer than its limit of {} s", limit.as_secs_f64()),
        ),
        (Some(StopReason::Memory { used_bytes, limit_bytes }), _) => {
            set(
                i64::from(execution.oom_exit_code),
                Cause::Oom,
                "used more memory than its limit".into(),
            );
            found.evidence.push(evidence(
                EvidenceSource::Node,
                format!("{} were in use; the limit is {}", mib(*used_bytes), mib(*limit_bytes)),
            ));
        }
        // The job says that it copes with it, so it is no failure; but people should see it.
        (None, How::Code(0)) if tolerates_oom && lacking.is_empty() => {
            if kernel_kills > 0 {
                let text = format!(
                    "the kernel killed {kernel_kills} of its processes for exceeding the memory limit"
                );
                found.evidence.push(evidence(EvidenceSource::Kernel, text));
            }
        }
        // Whatever code the shell returned: a pipe or a next line hides the death of a part.
        (None, How::Code(_) | How::Signal(_))
            if kernel_kills > 0 && !(tolerates_oom && exit.how == How::Code(0)) =>
        {
            let error = match exit.how {
                How::Code(0) => "exit code 0, but a part of it used more memory than its limit",
                _ => "used more memory than its limit",
            };
            set(i64::from(execution.oom_exit_code), Cause::Oom, error.into());
            let peak = exit
                .memory
                .and_then(|m| m.peak_bytes)
                .map(|b| format!("; highest use {}", mib(b)))
                .unwrap_or_default();
            let text = format!(
                "the kernel killed {kernel_kills} of its processes for exceeding the limit{peak}"
            );
            found.evidence.insert(0, evidence(EvidenceSource::Kernel, text));
        }
        (None, How::Code(0)) if lacking.is_empty() => {}
        (None, How::Code(0)) => {
            let text = lacking.sentence();
            set(1, Cause::MissingOutput, format!("exit code 0, but {text}"));
            found.evidence.push(evidence(EvidenceSource::Output, text));
        }
        (None, How::Code(_) | How::Signal(_)) if exit.machine_oom => {
            set(
                i64::from(execution.oom_exit_code),
                Cause::Oom,
                "killed because the machine ran out of memory".into(),
            );
            let text = "the machine's count of out-of-memory kills rose when it died of SIGKILL";
            found.evidence.push(evidence(EvidenceSource::Kernel, text.into()));
        }
        (None, How::Code(code)) if checkpoint == Some(i64::from(*code)) => {
            set(own_code, Cause::Checkpoint, "saved its state and asked to be continued".into());
        }
        (None, How::Code(code)) => set(own_code, Cause::Exit, format!("exit code {code}")),
        (None, How::Signal(signal)) => {
            set(own_code, Cause::Signal, format!("killed by {}", sys::signal_name(*signal)));
        }
    }
    if found.cause.is_some() {
        found.evidence.extend(own_words(&exit.how));
    }
    if !exit.survivors.is_empty() {
        let text = format!("processes {:?} did not end although they were killed", exit.survivors);
        found.evidence.push(evidence(EvidenceSource::Node, text));
    }
    found
}

fn journal(exit: &ProcessExit) -> Vec<Evidence> {
    let line = |signal: i32, after: Duration| {
        evidence(
            EvidenceSource::Journal,
            format!("we sent {} after {:.1} s", sys::signal_name(signal), after.as_secs_f64()),
        )
    };
    // A tree that does not die is killed again and again; once is enough for the record.
    let mut lines: Vec<Evidence> = Vec::new();
    let mut last = None;
    for sent in &exit.journal {
        if last != Some(sent.signal) {
            lines.push(line(sent.signal, sent.after));
        }
        last = Some(sent.signal);
    }
    lines
}

fn own_words(how: &How) -> Option<Evidence> {
    match how {
        How::Code(code) => Some(evidence(EvidenceSource::Exit, format!("exit code {code}"))),
        How::Signal(signal) => {
            Some(evidence(EvidenceSource::Exit, format!("ended by {}", sys::signal_name(*signal))))
        }
        How::NotStarted(_) => None,
    }
}

/// The highest memory that is known. Too short to be sampled and smaller than we are: unknown, not
/// nothing.
pub fn peak_memory(exit: &ProcessExit) -> Option<u64> {
    let kernel = exit.memory.and_then(|memory| {
        // The kernel counts file cache too. What it killed had used all of that; of the others,
        // what is charged when all processes are gone is cache, and the rest was theirs together.
        match memory.oom_kills > 0 {
            true => memory.peak_bytes,
            false => memory.peak_bytes?.checked_sub(memory.cache_bytes?),
        }
    });
    Some(exit.peak_memory_bytes.max(kernel.unwrap_or(0))).filter(|peak| *peak > 0)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64)
}

//! Why an attempt ended as it did, from the strongest evidence to the weakest.
//!
//! | rank | evidence |
//! |---|---|
//! | 1 | our own journal: signals we sent, orders we gave |
//! | 2 | the kernel: out-of-memory counters, the signal that ended it |
//! | 3 | the scheduler |
//! | 4 | the node: what was measured on it |
//! | 5 | outputs that should be there |
//! | 6 | the program's own words, with their place |
//! | 7 | conventions of exit codes |
//!
//! Stronger evidence decides; weaker evidence that contradicts it lowers the confidence and is
//! shown.

use super::kind::Kind;
use super::text::{Found, terminal_error};
use crate::api::{AttemptView, Evidence};
use crate::core::signal_name;
use crate::status::{Cause, EndDetail, EvidenceSource};
use crate::units::Memory;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Below this confidence nobody acts without being asked.
pub const SURE_ENOUGH: f64 = 0.7;

/// A process that used at least this share of its limit when it was killed was most likely killed
/// for it.
const NEAR_LIMIT: f64 = 0.9;

/// What is known about an ended attempt.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts<'a> {
    /// What its runner or the server found; None: it succeeded.
    pub cause: Option<Cause>,
    /// Return code.
    pub return_code: Option<i64>,
    /// Signal that ended it.
    pub signal: Option<i64>,
    /// What exactly failed or stopped it.
    pub detail: Option<EndDetail>,
    /// What its runner or the server said to a person.
    pub error: Option<&'a str>,
    /// What decided the cause.
    pub evidence: &'a [Evidence],
    /// How long it ran.
    pub exec_seconds: Option<f64>,
    /// How long it might run.
    pub time_limit_seconds: Option<i64>,
    /// Highest memory use.
    pub peak_memory_bytes: Option<i64>,
    /// Memory it was given.
    pub memory_bytes: Option<i64>,
    /// End of standard error.
    pub stderr_tail: &'a str,
    /// Where that end begins in the file.
    pub stderr_tail_start: Option<i64>,
}

impl<'a> From<&'a AttemptView> for Facts<'a> {
    fn from(attempt: &'a AttemptView) -> Self {
        Self {
            cause: attempt.cause,
            return_code: attempt.return_code,
            signal: attempt.signal,
            detail: attempt.detail,
            error: attempt.error.as_deref(),
            evidence: &attempt.evidence,
            exec_seconds: attempt.exec_seconds,
            time_limit_seconds: attempt.time_limit_seconds,
            peak_memory_bytes: attempt.peak_memory_bytes,
            memory_bytes: attempt.memory_bytes,
            stderr_tail: attempt.stderr_tail.as_deref().unwrap_or(""),
            stderr_tail_start: attempt.stderr_tail_start,
        }
    }
}

/// What happened, how sure that is, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// What happened.
    pub kind: Kind,
    /// How sure that is, 0..1.
    pub confidence: f64,
    /// One sentence.
    pub summary: String,
    /// What decided, strongest first.
    pub proof: Vec<Proof>,
    /// What speaks against it.
    pub doubts: Vec<String>,
}

/// One piece of proof.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Proof {
    /// 1 (our own journal) to 7 (exit codes); lower is stronger.
    pub rank: i64,
    /// Where it comes from.
    pub source: EvidenceSource,
    /// One sentence, or the quoted words.
    pub text: String,
    /// Where the words begin in the file of standard error, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// Where they end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<i64>,
}

impl Proof {
    fn new(source: EvidenceSource, text: impl Into<String>) -> Self {
        Self { rank: source as i64 + 1, source, text: text.into(), start: None, end: None }
    }

    fn of_text(found: &Found, tail_start: i64) -> Self {
        let source =
            if found.by_scheduler { EvidenceSource::Scheduler } else { EvidenceSource::Text };
        let place = |at: usize| i64::try_from(at).ok()?.checked_add(tail_start);
        Self {
            start: place(found.range.start),
            end: place(found.range.end),
            ..Self::new(source, shortened(&found.line))
        }
    }
}

/// A line that fits on a card.
fn shortened(line: &str) -> String {
    const LONGEST: usize = 300;
    if line.chars().count() <= LONGEST {
        return line.trim().to_owned();
    }
    line.trim().chars().take(LONGEST).chain(['…']).collect()
}

impl Diagnosis {
    fn new(kind: Kind, confidence: f64, summary: impl Into<String>) -> Self {
        Self { kind, confidence, summary: summary.into(), proof: Vec::new(), doubts: Vec::new() }
    }

    /// Sure enough to act on.
    pub fn is_sure(&self) -> bool {
        self.confidence >= SURE_ENOUGH
    }

    /// The message that failures like this one share, for counting them together.
    pub fn message(&self) -> &str {
        self.words().unwrap_or(&self.summary)
    }

    /// The quoted words of the program or the scheduler that decided, if any did.
    pub fn words(&self) -> Option<&str> {
        let words = self
            .proof
            .iter()
            .find(|p| p.source == EvidenceSource::Text || p.rank == 3 && p.start.is_some());
        words.map(|p| p.text.as_str())
    }
}

/// Says why an attempt ended as it did. `None` for one that succeeded without anything odd.
pub fn diagnose(facts: &Facts<'_>) -> Option<Diagnosis> {
    let text = terminal_error(facts.stderr_tail);
    let Some(cause) = facts.cause else { return odd_success(facts) };
    // What ended the script says nothing about what the job needs.
    let is_script = facts.detail == Some(EndDetail::RecoveryScript)
        && !cause.is_stop()
        && cause != Cause::Canceled;
    let mut diagnosis = match cause {
        _ if is_script => {
            let error = facts.error.unwrap_or("the recovery script failed");
            Diagnosis::new(Kind::RecoveryScript, 0.99, error)
        }
        Cause::Oom => oom(facts),
        Cause::Timeout => timeout(facts),
        Cause::Lost => Diagnosis::new(Kind::Lost, 0.97, "its runner is gone"),
        Cause::Preempted => {
            Diagnosis::new(Kind::Preempted, 0.97, "the scheduler gave its node to another job")
        }
        Cause::NodeFail => Diagnosis::new(Kind::NodeFail, 0.97, "its node failed"),
        Cause::Walltime => Diagnosis::new(
            Kind::Walltime,
            0.99,
            "the time of its allocation was over before it had ended",
        ),
        Cause::Canceled => Diagnosis::new(Kind::Canceled, 0.99, "somebody canceled it"),
        Cause::Stopped => Diagnosis::new(Kind::Stopped, 0.99, "its runner was told to stop"),
        Cause::Checkpoint => {
            Diagnosis::new(Kind::Checkpoint, 0.99, "it saved its state and asked to be continued")
        }
        Cause::MissingOutput => Diagnosis::new(
            Kind::MissingOutput,
            0.99,
            facts.error.unwrap_or("a declared output file is not there"),
        ),
        Cause::SpawnError => spawn_error(facts),
        Cause::Signal => signal(facts, facts.signal.unwrap_or(0), 0.95, text.as_ref()),
        Cause::Exit => step(facts, text.is_some()).unwrap_or_else(|| exit(facts, text.as_ref())),
    };
    diagnosis.proof.extend(facts.evidence.iter().map(|e| Proof::new(e.source, shortened(&e.text))));
    if let Some(found) = &text {
        let is_verdict_of_text =
            matches!(cause, Cause::Exit | Cause::Signal | Cause::MissingOutput);
        if is_verdict_of_text || found.kind == diagnosis.kind {
            diagnosis.proof.push(Proof::of_text(found, facts.stderr_tail_start.unwrap_or(0)));
        }
    }
    if diagnosis.proof.is_empty()
        && let Some(error) = facts.error
    {
        diagnosis.proof.push(Proof::new(EvidenceSource::Exit, shortened(error)));
    }
    diagnosis.proof.sort_by_key(|p| p.rank);
    diagnosis.proof.dedup();
    // What contradicts it makes it less sure, but never turns it around.
    diagnosis.confidence *= 0.8f64.powi(diagnosis.doubts.len() as i32);
    Some(diagnosis)
}

/// It returned 0, yet the kernel killed a part of it: a warning, not a failure.
fn odd_success(facts: &Facts<'_>) -> Option<Diagnosis> {
    let kill = facts.evidence.iter().find(|e| e.source == EvidenceSource::Kernel)?;
    let mut diagnosis = Diagnosis::new(
        Kind::Oom,
        0.5,
        "it succeeded, but the kernel killed a part of it for lack of memory",
    );
    diagnosis.proof.push(Proof::new(EvidenceSource::Kernel, shortened(&kill.text)));
    diagnosis.doubts.push("it returned 0, so it may have coped with that".into());
    Some(diagnosis)
}

fn given(memory: Option<i64>) -> Option<Memory> {
    memory.and_then(|m| u64::try_from(m).ok()).filter(|m| *m > 0).map(Memory)
}

fn oom(facts: &Facts<'_>) -> Diagnosis {
    let summary = match (given(facts.memory_bytes), given(facts.peak_memory_bytes)) {
        (Some(limit), Some(peak)) => {
            format!("it used more than its {limit} of memory (highest use seen: {})", mib(peak))
        }
        (Some(limit), None) => format!("it used more than its {limit} of memory"),
        (None, Some(peak)) => {
            format!("the machine ran out of memory (highest use seen: {})", mib(peak))
        }
        (None, None) => "it ran out of memory".into(),
    };
    Diagnosis::new(Kind::Oom, 0.99, summary)
}

fn mib(memory: Memory) -> String {
    match memory.0 {
        bytes if bytes >= 10 << 30 => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
        bytes => format!("{:.0} MiB", bytes as f64 / (1u64 << 20) as f64),
    }
}

fn timeout(facts: &Facts<'_>) -> Diagnosis {
    let ran = facts
        .exec_seconds
        .map_or_else(String::new, |seconds| format!(": ended after {seconds:.1} s"));
    // A step has a limit of its own, and the line about it names that.
    let own = facts.error.filter(|_| facts.detail == Some(EndDetail::StepTimeout));
    let summary = match (own, facts.time_limit_seconds) {
        (Some(error), _) => shortened(error),
        (None, Some(limit)) => format!("it ran longer than its limit of {limit} s{ran}"),
        // A `timeout` beside the `runtime`: its runner's words name it.
        (None, None) => match facts.error {
            Some(error) => format!("it {}{ran}", shortened(error)),
            None => format!("it ran longer than it may{ran}"),
        },
    };
    Diagnosis::new(Kind::Timeout, 0.99, summary)
}

fn spawn_error(facts: &Facts<'_>) -> Diagnosis {
    let error = facts.error.unwrap_or("it could not be started");
    let kind = match terminal_error(error).map(|f| f.kind) {
        Some(Kind::MissingFile | Kind::CommandNotFound) => Kind::CommandNotFound,
        Some(
            kind @ (Kind::Permission
            | Kind::DiskFull
            | Kind::Quota
            | Kind::ProcessLimit
            | Kind::FileSystem
            | Kind::Oom),
        ) => match kind {
            Kind::Oom => Kind::ProcessLimit,
            other => other,
        },
        _ => Kind::SpawnError,
    };
    let mut diagnosis =
        Diagnosis::new(kind, 0.95, format!("it could not be started: {}", shortened(error)));
    diagnosis.proof.push(Proof::new(EvidenceSource::Kernel, shortened(error)));
    diagnosis
}

/// It was killed, directly (`certainty` high) or as a shell tells of its child (lower).
fn signal(facts: &Facts<'_>, number: i64, certainty: f64, text: Option<&Found>) -> Diagnosis {
    if let Some(found) = text.filter(|f| f.by_scheduler) {
        return Diagnosis::new(found.kind, found.confidence, format!("Slurm says: {}", found.line));
    }
    let name = signal_name(number);
    match number {
        9 => killed(facts, &name, certainty),
        4 | 5 | 6 | 7 | 8 | 11 | 31 => {
            // An abort is how programs end themselves, so their own words say more.
            if let Some(found) = text.filter(|f| {
                number == 6 && matches!(f.kind, Kind::Oom | Kind::GpuOom | Kind::DiskFull)
            }) {
                return by_words(facts, found);
            }
            Diagnosis::new(Kind::Crash, certainty, format!("it crashed: {name}"))
        }
        24 => {
            let mut diagnosis = Diagnosis::new(
                Kind::ProcessLimit,
                certainty,
                format!("a limit on CPU time ended it ({name})"),
            );
            diagnosis.doubts.push("`runtime` does not change this limit".into());
            diagnosis
        }
        25 => Diagnosis::new(
            Kind::Quota,
            certainty,
            format!("a limit on the size of files ended it ({name})"),
        ),
        _ => Diagnosis::new(
            Kind::Killed,
            certainty.min(0.8),
            format!("somebody else sent it {name}"),
        ),
    }
}

/// SIGKILL that was not ours: for lack of memory, if it was near its limit.
fn killed(facts: &Facts<'_>, name: &str, certainty: f64) -> Diagnosis {
    let (Some(limit), Some(peak)) = (given(facts.memory_bytes), given(facts.peak_memory_bytes))
    else {
        return Diagnosis::new(
            Kind::Killed,
            certainty.min(0.6),
            format!("somebody else sent it {name}"),
        );
    };
    let share = peak.0 as f64 / limit.0 as f64;
    if share < NEAR_LIMIT {
        return Diagnosis::new(
            Kind::Killed,
            certainty.min(0.7),
            format!("somebody else sent it {name}; it used {:.0} % of its memory", share * 100.0),
        );
    }
    let summary = format!("{name}, and it used {:.0} % of its {limit} of memory", share * 100.0);
    let mut diagnosis = Diagnosis::new(Kind::Oom, certainty.min(0.8), summary);
    diagnosis.proof.push(Proof::new(
        EvidenceSource::Node,
        format!("highest memory use {} of {limit}", mib(peak)),
    ));
    diagnosis
}

fn by_words(facts: &Facts<'_>, found: &Found) -> Diagnosis {
    let summary = match found.kind {
        Kind::ProgramError => shortened(&found.line),
        kind => format!("{}: {}", kind.title(), shortened(&found.line)),
    };
    let mut diagnosis = Diagnosis::new(found.kind, found.confidence, summary);
    if found.kind == Kind::Oom
        && let (Some(limit), Some(peak)) =
            (given(facts.memory_bytes), given(facts.peak_memory_bytes))
        && peak.0 < limit.0 / 2
    {
        diagnosis.doubts.push(format!("it never used more than {} of its {limit}", mib(peak)));
        diagnosis.confidence = diagnosis.confidence.min(0.6);
    }
    diagnosis
}

/// A step that failed for what it gave: then that says why, not the code of its program.
fn step(facts: &Facts<'_>, has_words: bool) -> Option<Diagnosis> {
    let error = facts.error?;
    match facts.detail? {
        EndDetail::StepCapture | EndDetail::StepVariable => {}
        // The program may have said more than the check, by words or by the code of a signal.
        EndDetail::StepExpect | EndDetail::StepValidation | EndDetail::StepAgent
            if !has_words && !matches!(facts.return_code, Some(126..=159)) => {}
        _ => return None,
    }
    Some(Diagnosis::new(Kind::Step, 0.95, shortened(error)))
}

fn exit(facts: &Facts<'_>, text: Option<&Found>) -> Diagnosis {
    let code = facts.return_code.unwrap_or(-1);
    if let Some(found) = text.filter(|f| f.by_scheduler) {
        return signal(facts, 0, 0.9, Some(found));
    }
    match (code, text) {
        (127, found) => {
            let words = found.filter(|f| {
                matches!(f.kind, Kind::CommandNotFound | Kind::MissingFile | Kind::MissingModule)
            });
            match words {
                Some(found) if found.kind == Kind::MissingModule => by_words(facts, found),
                Some(found) => Diagnosis::new(Kind::CommandNotFound, 0.95, shortened(&found.line)),
                None => Diagnosis::new(
                    Kind::CommandNotFound,
                    0.6,
                    "exit code 127: by convention a program was not found",
                ),
            }
        }
        (126, found) => match found.filter(|f| f.kind == Kind::Permission) {
            Some(found) => Diagnosis::new(Kind::Permission, 0.95, shortened(&found.line)),
            None => Diagnosis::new(
                Kind::Permission,
                0.6,
                "exit code 126: by convention a program may not be executed",
            ),
        },
        // How a shell tells that what it waited for died of a signal.
        (129..=159, found) => {
            let number = code - 128;
            let mut diagnosis = signal(facts, number, 0.85, found);
            diagnosis.proof.push(Proof::new(
                EvidenceSource::Exit,
                format!("exit code {code}: a shell saw {} end its child", signal_name(number)),
            ));
            diagnosis
        }
        (_, Some(found)) if found.kind == Kind::Killed => killed(facts, "SIGKILL", 0.75),
        (_, Some(found)) => by_words(facts, found),
        (_, None) => {
            Diagnosis::new(Kind::Unknown, 0.3, format!("it returned {code}, and nothing says why"))
        }
    }
}

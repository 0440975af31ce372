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

use super::fingerprint::program;
use super::kind::Kind;
use super::limits::{OwnLimit, asked_bytes, own_limit};
use super::nature::Nature;
use super::observed::Observed;
use super::pattern::ascii;
use super::progress::{progress, stagnation};
use super::rules::Rules;
use super::text::{Excerpt, Found, Stream, terminal_error};
use super::wait::asked_wait;
use crate::api::{AttemptView, Evidence};
use crate::signal;
use crate::status::{Cause, EndDetail, EvidenceSource};
use crate::units::Memory;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use utoipa::ToSchema;

/// Below this confidence nothing is done without being asked.
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
    /// Time on a CPU of all its processes.
    pub cpu_seconds: Option<f64>,
    /// What it ran.
    pub command: &'a str,
    /// End of standard error.
    pub stderr_tail: &'a str,
    /// Where that end begins in the file.
    pub stderr_tail_start: Option<i64>,
    /// What its runner saw beside that.
    pub observed: Option<&'a Observed>,
}

impl Facts<'_> {
    /// What it wrote, as far as that was kept.
    pub fn excerpts(&self) -> Vec<Excerpt> {
        match self.observed.filter(|observed| !observed.excerpts.is_empty()) {
            Some(observed) => observed.excerpts.clone(),
            None => Observed::of_tail(self.stderr_tail, self.stderr_tail_start).excerpts,
        }
    }
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
            cpu_seconds: attempt.cpu_seconds,
            command: "",
            stderr_tail: attempt.stderr_tail.as_deref().unwrap_or(""),
            stderr_tail_start: attempt.stderr_tail_start,
            observed: attempt.observed.as_ref(),
        }
    }
}

/// What happened, how sure that is, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diagnosis {
    /// What happened.
    pub kind: Kind,
    /// What helps against it.
    pub nature: Nature,
    /// How sure that is, 0..1.
    pub confidence: f64,
    /// One sentence.
    pub summary: String,
    /// The rule that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What it seems to need, where something was measured that tells.
    #[serde(default, skip_serializing_if = "Needs::is_empty")]
    pub needs: Needs,
    /// What decided, strongest first.
    pub proof: Vec<Proof>,
    /// What speaks against it.
    pub doubts: Vec<String>,
}

/// What an attempt seems to need, by what was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Needs {
    /// Memory: what it had, and what it asked for when it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<i64>,
    /// Time, by how far it had come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How long a service asked to wait before the next try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<f64>,
}

impl Needs {
    fn is_empty(&self) -> bool {
        self.memory_bytes.is_none() && self.seconds.is_none() && self.wait_seconds.is_none()
    }
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
    /// Where words of standard output stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Place>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// The first byte.
    pub start: i64,
    /// The byte after the last.
    pub end: i64,
}

impl Proof {
    fn new(source: EvidenceSource, text: impl Into<String>) -> Self {
        Self {
            rank: source as i64 + 1,
            source,
            text: text.into(),
            start: None,
            end: None,
            stdout: None,
        }
    }

    fn of_text(found: &Found) -> Self {
        let source =
            if found.by_scheduler { EvidenceSource::Scheduler } else { EvidenceSource::Text };
        let place = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
        let (start, end) = (place(found.range.start), place(found.range.end));
        let quote = Self::new(source, shortened(&found.quote));
        match found.stream {
            Stream::Stderr => Self { start: Some(start), end: Some(end), ..quote },
            Stream::Stdout => Self { stdout: Some(Place { start, end }), ..quote },
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
    /// What failures of many jobs have in common when one thing is behind them: the rule that
    /// decided, else the kind.
    pub fn common_cause(&self) -> &str {
        self.rule.as_deref().unwrap_or(self.kind.as_str())
    }

    fn new(kind: Kind, confidence: f64, summary: impl Into<String>) -> Self {
        Self {
            kind,
            nature: usual(kind),
            confidence,
            summary: summary.into(),
            rule: None,
            needs: Needs::default(),
            proof: Vec::new(),
            doubts: Vec::new(),
        }
    }

    fn nature(self, nature: Nature) -> Self {
        Self { nature, ..self }
    }

    /// It passes by itself.
    pub fn is_transient(&self) -> bool {
        self.nature == Nature::Transient
    }

    /// It tells what helps, as surely as is asked for: neither a person nor an agent has to be asked.
    /// An error of a program that no rule knows is most likely permanent, but that is a guess.
    pub fn is_decided(&self, threshold: f64) -> bool {
        let is_known = self.rule.is_some() || self.kind != Kind::ProgramError;
        self.confidence >= threshold && self.nature != Nature::Unclear && is_known
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

/// What helps against a kind of failure, if nothing else is known of it.
const fn usual(kind: Kind) -> Nature {
    match kind {
        Kind::Oom => Nature::Memory,
        Kind::Timeout => Nature::Time,
        Kind::Walltime
        | Kind::Preempted
        | Kind::NodeFail
        | Kind::Lost
        | Kind::Stopped
        | Kind::Checkpoint
        | Kind::Network
        | Kind::Killed => Nature::Transient,
        Kind::Unknown => Nature::Unclear,
        _ => Nature::Permanent,
    }
}

/// Says why an attempt ended as it did. `None` for one that succeeded without anything odd.
pub fn diagnose(facts: &Facts<'_>) -> Option<Diagnosis> {
    diagnose_with(Rules::in_force(), facts)
}

/// The same by these rules.
pub fn diagnose_with(rules: &Rules, facts: &Facts<'_>) -> Option<Diagnosis> {
    let Some(cause) = facts.cause else { return odd_success(facts) };
    let excerpts = facts.excerpts();
    // A verdict of the scheduler in the job's own output counts only if it ended as that says.
    let by_signal = facts.signal.is_some() || matches!(facts.return_code, Some(129..=159));
    let mut text = terminal_error(rules, &excerpts);
    if text.as_ref().is_some_and(|found| found.by_scheduler && !by_signal) {
        let without: Vec<Excerpt> = excerpts.iter().cloned().map(without_scheduler).collect();
        text = terminal_error(rules, &without);
    }
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
        Cause::Timeout => timeout(facts, &excerpts),
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
        Cause::Canceled => Diagnosis::new(Kind::Canceled, 0.99, "a user canceled it"),
        Cause::Stopped => Diagnosis::new(Kind::Stopped, 0.99, "its runner was told to stop"),
        Cause::Checkpoint => {
            Diagnosis::new(Kind::Checkpoint, 0.99, "it saved its state and asked to be continued")
        }
        Cause::MissingOutput => missing_output(facts, text.as_ref()),
        Cause::SpawnError => spawn_error(facts),
        Cause::Signal => signal(facts, facts.signal.unwrap_or(0), 0.95, text.as_ref()),
        Cause::Exit => {
            step(facts, text.is_some()).unwrap_or_else(|| exit(rules, facts, text.as_ref()))
        }
    };
    diagnosis.proof.extend(facts.evidence.iter().map(|e| Proof::new(e.source, shortened(&e.text))));
    if let Some(found) = text.as_ref().filter(|found| !found.quote.is_empty())
        && (cause.is_end_of_program() || found.kind == diagnosis.kind)
    {
        diagnosis.proof.push(Proof::of_text(found));
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
    diagnosis.confidence = calibrated(diagnosis.confidence);
    if diagnosis.is_transient() {
        diagnosis.needs.wait_seconds = asked_wait(&excerpts);
    }
    Some(diagnosis)
}

/// What the rules call `sure` is a judgement of one line. Measured on real failures the decision
/// was wrong half as often as that says: the other evidence, and what is usual, agree with it.
fn calibrated(sure: f64) -> f64 {
    ((1.0 - (1.0 - sure) * 0.5) * 1000.0).round() / 1000.0
}

fn without_scheduler(excerpt: Excerpt) -> Excerpt {
    let hidden = |line: &str| line.starts_with("slurmstepd:") || line.starts_with("srun: ");
    let blank = |line: &str| match hidden(line) && !line.starts_with("srun: error: Unable") {
        // As long as before, so that places stay right.
        true => " ".repeat(line.len()),
        false => line.to_owned(),
    };
    let text = excerpt.text.split('\n').map(blank).collect::<Vec<_>>().join("\n");
    Excerpt { text, ..excerpt }
}

/// It returned 0, but a file is missing: its words may say why.
fn missing_output(facts: &Facts<'_>, text: Option<&Found>) -> Diagnosis {
    let summary = facts.error.unwrap_or("a declared output file is not there");
    let missing = Diagnosis::new(Kind::MissingOutput, 0.95, summary);
    match text.filter(|found| !found.is_guess && found.nature == Nature::Transient) {
        Some(found) => Diagnosis {
            confidence: 0.85,
            summary: format!("{summary}; before that: {}", shortened(&found.line)),
            rule: found.rule.clone(),
            ..missing
        }
        .nature(Nature::Transient),
        None => missing,
    }
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
    Diagnosis::new(Kind::Oom, 0.95, summary)
}

fn mib(memory: Memory) -> String {
    match memory.0 {
        bytes if bytes >= 10 << 30 => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
        bytes => format!("{:.0} MiB", bytes as f64 / (1u64 << 20) as f64),
    }
}

fn timeout(facts: &Facts<'_>, excerpts: &[Excerpt]) -> Diagnosis {
    let ran = facts
        .exec_seconds
        .map_or_else(String::new, |seconds| format!(": ended after {seconds:.1} s"));
    // A step has a limit of its own, and the line about it names that.
    let own = facts.error.filter(|_| facts.detail == Some(EndDetail::StepTimeout));
    let summary = match (own, facts.time_limit_seconds) {
        (Some(error), _) => shortened(error),
        (None, Some(limit)) => match facts.detail {
            Some(EndDetail::JobTimeout) => {
                format!("it ran longer than its `timeout` of {limit} s{ran}")
            }
            Some(EndDetail::EnforcedRuntime) => {
                format!(
                    "it ran longer than its `runtime` of {limit} s, which `enforce_runtime` makes a limit{ran}"
                )
            }
            _ => format!("it ran longer than its limit of {limit} s{ran}"),
        },
        // A `timeout` beside the `runtime`: its runner's words name it.
        (None, None) => match facts.error {
            Some(error) => format!("it {}{ran}", shortened(error)),
            None => format!("it ran longer than it may{ran}"),
        },
    };
    if let Some(line) = stagnation(excerpts) {
        let summary = format!("{summary}, and it no longer got anywhere: {}", shortened(&line));
        return Diagnosis::new(Kind::Timeout, 0.9, summary).nature(Nature::Permanent);
    }
    if let Some(still) = hang(facts) {
        // What waits for another program may be answered next time; what waits for itself is not.
        let peer = facts.observed.and_then(|observed| observed.awaited_peer.as_deref());
        let (nature, waits) = match peer {
            Some(peer) => (Nature::Transient, format!(", waiting for an answer from {peer}")),
            None => (Nature::Permanent, String::new()),
        };
        let summary = format!("{summary}; {still}{waits}");
        let mut diagnosis = Diagnosis::new(Kind::Timeout, 0.85, summary).nature(nature);
        let stands = facts.observed.map_or(&[][..], |observed| &observed.stands);
        diagnosis
            .proof
            .extend(stands.iter().map(|line| Proof::new(EvidenceSource::Node, shortened(line))));
        return diagnosis;
    }
    let mut diagnosis = Diagnosis::new(Kind::Timeout, 0.95, summary);
    if let (Some(progress), Some(seconds)) = (progress(excerpts), facts.exec_seconds) {
        diagnosis.needs.seconds = Some(seconds / progress.share);
        diagnosis.summary += &format!(
            "; it had come to {:.0}%: {}",
            progress.share * 100.0,
            shortened(&progress.words)
        );
    }
    diagnosis
}

/// It had done nothing for most of its time: more of it would not help.
fn hang(facts: &Facts<'_>) -> Option<String> {
    /// Less of a CPU than this is no work.
    const IDLE: f64 = 0.05;
    /// Without a word for this share of the time.
    const SILENT: f64 = 0.6;
    /// Less than this a second is no more than a heartbeat.
    const IO_PER_SECOND: f64 = 64.0;
    /// Woken more often than this a second, something reaches it.
    const WAKEUPS_PER_SECOND: f64 = 2.0;
    let (observed, seconds) = (facts.observed?, facts.exec_seconds?);
    let silent = observed.silent_seconds?;
    if seconds <= 0.0 || silent < seconds * SILENT {
        return None;
    }
    let recent = observed.recent_seconds.filter(|s| *s > 0.0)?;
    let cpu = observed.recent_cpu_seconds? / recent;
    let io = observed.recent_io_bytes? as f64 / recent;
    let wakeups = observed.recent_wakeups? as f64 / recent;
    let is_still = cpu < IDLE && io < IO_PER_SECOND && wakeups < WAKEUPS_PER_SECOND;
    (is_still && !observed.would_go_on).then(|| {
        format!("for the last {recent:.1} s it used no CPU, read and wrote nothing: it hangs")
    })
}

fn spawn_error(facts: &Facts<'_>) -> Diagnosis {
    let error = facts.error.unwrap_or("it could not be started");
    let kind = match facts.detail {
        Some(EndDetail::StartNotFound) => Kind::CommandNotFound,
        Some(EndDetail::StartDenied) => Kind::Permission,
        Some(EndDetail::StartDiskFull) => Kind::DiskFull,
        Some(EndDetail::StartQuota) => Kind::Quota,
        Some(EndDetail::StartLimit) => Kind::ProcessLimit,
        Some(EndDetail::StartFileSystem) => Kind::FileSystem,
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
        let said =
            Diagnosis::new(found.kind, found.confidence, format!("Slurm says: {}", found.line));
        return said.nature(found.nature);
    }
    let name = signal::name(number);
    let gave_up = text.filter(|f| f.rule.is_some() && f.nature == Nature::Permanent);
    match number {
        // Its last words are about an error of its own: it has ended itself.
        9 | 15 if let Some(found) = gave_up.filter(|f| f.kind == Kind::ProgramError) => {
            let summary = format!("{name}, after it had said: {}", shortened(&found.line));
            Diagnosis::new(Kind::Killed, 0.7, summary).nature(Nature::Permanent)
        }
        9 => killed(facts, &name, certainty),
        4 | 5 | 6 | 7 | 8 | 11 | 31 => {
            // An abort is how programs end themselves, so their own words say more.
            let says_more = |f: &&Found| {
                number == 6
                    && (matches!(f.kind, Kind::Oom | Kind::GpuOom | Kind::DiskFull)
                        || f.class.is_some() && f.kind != Kind::Crash
                        || f.nature == Nature::Transient && !f.is_guess)
            };
            if let Some(found) = text.filter(says_more) {
                return by_words(facts, found);
            }
            Diagnosis::new(Kind::Crash, certainty, format!("it crashed: {name}"))
        }
        13 => Diagnosis::new(
            Kind::Killed,
            certainty.min(0.75),
            "it wrote to a pipe that nothing reads any more (SIGPIPE); it will do so again",
        )
        .nature(Nature::Permanent),
        14 => Diagnosis::new(
            Kind::Killed,
            certainty.min(0.75),
            "an alarm that it had set itself ended it (SIGALRM)",
        )
        .nature(Nature::Permanent),
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
            format!("another process sent it {name}"),
        ),
    }
}

/// SIGKILL that was not ours: for lack of memory, if it was near its limit.
fn killed(facts: &Facts<'_>, name: &str, certainty: f64) -> Diagnosis {
    let (Some(limit), Some(peak)) = (given(facts.memory_bytes), given(facts.peak_memory_bytes))
    else {
        return Diagnosis::new(
            Kind::Killed,
            certainty.min(0.75),
            format!("another process sent it {name}"),
        );
    };
    let share = peak.0 as f64 / limit.0 as f64;
    if share < NEAR_LIMIT {
        return Diagnosis::new(
            Kind::Killed,
            certainty.min(0.8),
            format!("another process sent it {name}; it used {:.0}% of its memory", share * 100.0),
        );
    }
    let summary = format!("{name}, and it used {:.0}% of its {limit} of memory", share * 100.0);
    let mut diagnosis = Diagnosis::new(Kind::Oom, certainty.min(0.9), summary);
    diagnosis.proof.push(Proof::new(
        EvidenceSource::Node,
        format!("highest memory use {} of {limit}", mib(peak)),
    ));
    diagnosis
}

fn by_words(facts: &Facts<'_>, found: &Found) -> Diagnosis {
    if found.kind == Kind::Oom {
        return memory_words(facts, found);
    }
    let summary = match found.kind {
        Kind::ProgramError => shortened(&found.line),
        kind => format!("{}: {}", kind.title(), shortened(&found.line)),
    };
    let mut diagnosis = Diagnosis::new(found.kind, found.confidence, summary).nature(found.nature);
    if is_race(facts, found) {
        diagnosis.summary += "; another part of the same build makes that file";
        diagnosis.confidence = 0.7;
        diagnosis.nature = Nature::Transient;
    }
    Diagnosis { rule: found.rule.clone(), ..diagnosis }
}

/// Parts of a parallel build do not wait for one another: the file that was missing is made by
/// another command of the same build.
fn is_race(facts: &Facts<'_>, found: &Found) -> bool {
    let words: Vec<&str> = facts.command.split_whitespace().collect();
    let is_build = words.iter().any(|w| ["make", "gmake", "ninja"].contains(w));
    let is_parallel = words.iter().any(|w| w.starts_with("-j") && *w != "-j1" || *w == "--jobs");
    if found.kind != Kind::MissingFile || !is_build || !is_parallel {
        return false;
    }
    let quoted = found.line.split(['\'', '‘', '’', '"', '`']).nth(1);
    let Some(file) = quoted.filter(|file| file.len() > 2) else { return false };
    facts
        .excerpts()
        .iter()
        .any(|e| e.text.contains(&format!("> {file}")) || e.text.contains(&format!("-o {file}")))
}

/// The program says that it was refused memory. More of ours helps only if ours was in the way: the
/// kernel kills at our limit and refuses nothing, so a refusal comes from a limit of its own,
/// unless the runtime sizes its heap by ours or its use came near.
fn memory_words(facts: &Facts<'_>, found: &Found) -> Diagnosis {
    /// Use that is near enough for a program that watches itself.
    const NEAR: f64 = 0.7;
    /// A single request beyond this many times the limit is a mistake, not a need.
    const ABSURD: u64 = 16;
    let said = shortened(&found.line);
    let new = |nature, sure, summary: String| Diagnosis {
        rule: found.rule.clone(),
        ..Diagnosis::new(Kind::Oom, sure, summary).nature(nature)
    };
    if let Some(own) = own_limit(facts.command, OwnLimit::Memory) {
        let summary = format!("{said}; its command sets the limit itself (`{own}`)");
        return new(Nature::Permanent, 0.92, summary);
    }
    if own_heap(&found.line) {
        let summary = format!("{said}; the limit is the program's own setting");
        return new(Nature::Permanent, 0.88, summary);
    }
    let Some(limit) = given(facts.memory_bytes) else {
        let summary = format!("{said}; it has no limit of ours that could be raised");
        return new(Nature::Permanent, 0.85, summary);
    };
    let peak = given(facts.peak_memory_bytes).map_or(0, |peak| peak.0);
    if let Some(asked) = asked_bytes(&found.line) {
        if asked > limit.0.saturating_mul(ABSURD) {
            let summary = format!("{said}; no machine is meant to have that much");
            return new(Nature::Permanent, 0.9, summary);
        }
        if peak.saturating_add(asked) > limit.0 {
            let mut diagnosis = new(Nature::Memory, 0.85, format!("out of memory: {said}"));
            diagnosis.needs.memory_bytes = i64::try_from(peak.saturating_add(asked)).ok();
            return diagnosis;
        }
    }
    if sized_by_limit(&found.line)
        || speaks_of(&found.line, limit)
        || peak as f64 >= limit.0 as f64 * NEAR
    {
        return new(Nature::Memory, 0.9, format!("out of memory: {said}"));
    }
    let summary = format!(
        "{said}; it never used more than {} of its {limit}, so a limit of its own was in the way",
        mib(Memory(peak))
    );
    new(Nature::Permanent, 0.8, summary)
}

/// The size that it names is our limit, or the share of it that it names as well: it has read the
/// limit, and watches itself.
fn speaks_of(line: &str, limit: Memory) -> bool {
    static SIZE: LazyLock<Regex> = LazyLock::new(|| ascii(r"(?i)(\d+(?:\.\d+)?)\s*([kmgt])i?b\b"));
    static SHARE: LazyLock<Regex> = LazyLock::new(|| ascii(r"(\d{1,3}(?:\.\d+)?) ?%"));
    let (size, share) = (&*SIZE, &*SHARE);
    let shares: Vec<f64> = share
        .captures_iter(line)
        .filter_map(|found| found[1].parse::<f64>().ok())
        .map(|percent| percent / 100.0)
        .chain([1.0])
        .collect();
    size.captures_iter(line).any(|found| {
        let Ok(number) = found[1].parse::<f64>() else { return false };
        let power = match found[2].to_ascii_lowercase().as_str() {
            "k" => 1,
            "m" => 2,
            "g" => 3,
            _ => 4,
        };
        // Written with either kind of unit.
        [1024f64, 1000f64].iter().any(|base| {
            let bytes = number * base.powi(power);
            shares.iter().any(|share| (bytes / (limit.0 as f64 * share) - 1.0).abs() < 0.02)
        })
    })
}

/// Runtimes that take a share of what the control group allows as their heap.
fn sized_by_limit(line: &str) -> bool {
    [
        "Java heap space",
        "GC overhead limit",
        "java.lang.OutOfMemoryError",
        "OutOfMemoryException",
        "JavaScript heap out of memory",
        "heap limit",
    ]
    .iter()
    .any(|words| line.contains(words))
}

/// Limits that are settings of the program and not of the machine.
fn own_heap(line: &str) -> bool {
    [
        "Allowed memory size of",
        "vector memory exhausted (limit",
        "vector memory limit",
        "Metaspace",
        "Compressed class space",
        "Maximum variable size allowed",
        "Heap exhausted",
    ]
    .iter()
    .any(|words| line.contains(words))
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

fn exit(rules: &Rules, facts: &Facts<'_>, text: Option<&Found>) -> Diagnosis {
    let code = facts.return_code.unwrap_or(-1);
    if let Some(found) = text.filter(|f| f.by_scheduler) {
        return signal(facts, 0, 0.9, Some(found));
    }
    let by_code = rules.by_exit(&program(facts.command), code);
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
                    0.85,
                    "exit code 127: by convention a program was not found",
                ),
            }
        }
        (126, Some(found)) if found.nature == Nature::Transient => by_words(facts, found),
        (126, found) => match found.filter(|f| f.kind == Kind::Permission) {
            Some(found) => Diagnosis::new(Kind::Permission, 0.95, shortened(&found.line)),
            None => Diagnosis::new(
                Kind::Permission,
                0.85,
                "exit code 126: by convention a program may not be executed",
            ),
        },
        // How `timeout` ends, and the wrappers that tell of it.
        (_, found)
            if let Some(own) = own_limit(facts.command, OwnLimit::Time).filter(|_| {
                matches!(code, 124 | 137 | 143) || found.is_some_and(|f| f.line.contains("124"))
            }) =>
        {
            let summary = format!("its command ended it after a time of its own (`{own}`)");
            Diagnosis::new(Kind::Timeout, 0.85, summary).nature(Nature::Permanent)
        }
        (124, None) => Diagnosis::new(
            Kind::Timeout,
            0.6,
            "exit code 124: by convention a limit of its own on time was reached",
        )
        .nature(Nature::Permanent),
        // How a shell tells that what it waited for died of a signal.
        (129..=159, found) => {
            let number = code - 128;
            let mut diagnosis = signal(facts, number, 0.85, found);
            diagnosis.proof.push(Proof::new(
                EvidenceSource::Exit,
                format!("exit code {code}: a shell saw {} end its child", signal::name(number)),
            ));
            diagnosis
        }
        (_, Some(found)) if found.kind == Kind::Killed && found.nature == Nature::Transient => {
            killed(facts, "a signal", 0.8)
        }
        // A program that asks to be tried again means it, whatever else it says.
        (_, found)
            if let Some(rule) = by_code.filter(|rule| {
                rule.nature == Nature::Transient
                    && found.is_none_or(|f| f.is_guess || f.nature == Nature::Unclear)
            }) =>
        {
            let said = found.map_or_else(String::new, |f| format!(": {}", shortened(&f.line)));
            let summary = format!("exit code {code} asks to be tried again{said}");
            let diagnosis = Diagnosis::new(rule.kind, rule.sure, summary).nature(rule.nature);
            Diagnosis { rule: Some(rule.id.clone()), ..diagnosis }
        }
        (_, Some(found)) => by_words(facts, found),
        (_, None) => match by_code {
            Some(rule) => {
                let summary = format!("exit code {code}, and its output does not say why");
                let diagnosis =
                    Diagnosis::new(rule.kind, rule.sure.min(0.8), summary).nature(rule.nature);
                Diagnosis { rule: Some(rule.id.clone()), ..diagnosis }
            }
            None => Diagnosis::new(
                Kind::Unknown,
                0.75,
                format!("exit code {code}, and its output does not say why"),
            ),
        },
    }
}

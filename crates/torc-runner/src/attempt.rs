//! One attempt: its recovery script, its command, and the report about both.
//!
//! States facts and never decides about a retry: that is the server's.

mod verdict;

pub use verdict::{Lacking, Rules, judge, peak_memory};

use crate::long::{self, Files};
use crate::monitor::Sample;
use crate::observe;
use crate::outputs::Before;
use crate::process::{OrderRest, ProcessOrder, Sink};
use crate::steps::Live;
use crate::supervisor::{How, ProcessExit, StopReason};
use crate::token_files::{TokenFile, TokenFiles};
use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use torc_model::api::{AttemptPacket, AttemptRef, BASE_PATH, CompletionReport, ScriptResult};
use torc_model::files;
use torc_model::ids::{JobId, RunnerId, WorkflowId};
use torc_model::plan::{Execution, OnScriptFailure, Shell, Stdio, StdioMode, list_variable};
use torc_model::status::{Cause, EndDetail, EvidenceSource};
use torc_model::token::Grant;
use verdict::evidence;

/// How much of the end of standard error a failure's report carries.
const TAIL_BYTES: u64 = 8 << 10;

/// What all attempts of a runner share.
#[derive(Debug)]
pub struct AttemptContext {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Its name.
    pub workflow_name: String,
    /// This runner's own key: the first part of every tag.
    pub key: String,
    /// Where logs go; absolute.
    pub output_dir: PathBuf,
    /// Where relative paths of files start.
    pub working_dir: PathBuf,
    /// This runner, as the server calls it.
    pub runner_id: RunnerId,
    /// Where attempts find their tokens.
    pub tokens: TokenFiles,
    /// The server.
    pub api_url: String,
    /// Certificates to trust when `api_url` is encrypted, instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// Environment for every job.
    pub env: BTreeMap<String, String>,
    /// How to treat output and limits.
    pub execution: Execution,
    /// Exit code that means "continue me".
    pub checkpoint_exit_code: Option<i64>,
    /// Where every look at what attempts use is kept, if it is.
    pub time_series: Option<PathBuf>,
    /// Tells the server what steps do while they do it.
    pub live: Arc<Live>,
}

impl AttemptContext {
    /// Marks process number `id` and its descendants.
    pub fn tag(&self, id: u64) -> String {
        format!("{}/{id}", self.key)
    }

    /// The variables of everything that this runner starts.
    pub fn common_env(&self, token: &TokenFile) -> Vec<(String, String)> {
        let mut env = vec![
            ("TORC_WORKFLOW_ID".into(), self.workflow_id.to_string()),
            ("TORC_OUTPUT_DIR".into(), self.output_dir.display().to_string()),
            ("TORC_WORKFLOW_SUBMISSION_DIR".into(), self.working_dir.display().to_string()),
            // With the path, as clients of Torc 1.0 expect it.
            ("TORC_API_URL".into(), format!("{}{BASE_PATH}", self.api_url)),
            ("TORC_TOKEN_FILE".into(), token.path().to_owned()),
        ];
        env.extend(self.tls_ca.iter().map(|ca| ("TORC_TLS_CA".into(), ca.display().to_string())));
        env
    }

    /// A file of this attempt beside its logs.
    pub fn log_path(&self, packet: &AttemptPacket, ending: &str) -> PathBuf {
        let attempt = (packet.job_id, packet.run_id, packet.attempt_id);
        log_path(&self.output_dir, self.workflow_id, attempt, ending)
    }
}

/// Where a runner with this output directory keeps a log of an attempt: `(job, run, attempt)`.
/// `ending` is `.o`, `.e`, or `.log` for both streams in one file.
pub fn log_path(
    output_dir: &Path,
    workflow: WorkflowId,
    (job, run, attempt): (JobId, i64, i64),
    ending: &str,
) -> PathBuf {
    let stem = files::attempt_stem(workflow, job, run, attempt);
    output_dir.join(files::LOGS).join(stem + ending)
}

/// An attempt that is being executed.
#[derive(Debug)]
pub struct Attempt {
    pub(crate) packet: AttemptPacket,
    gpus: Vec<String>,
    stage: Stage,
    pub(crate) script: Option<ScriptResult>,
    has_started: bool,
    /// Output files as they were before, unless those count as its own.
    pub(crate) outputs: Option<Arc<Before>>,
    /// Written with the first process.
    token: OnceLock<TokenFile>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Script,
    Command,
}

/// What follows the end of a process of an attempt.
#[derive(Debug)]
pub enum AfterProcess {
    /// Another process.
    Run(Box<ProcessOrder>),
    /// Its steps: what ran so far was only the recovery script.
    Steps(Box<Attempt>),
    /// The report, which needs a look at files.
    Report(Box<Finish>),
}

/// An attempt whose last process has ended.
#[derive(Debug)]
pub struct Finish {
    packet: AttemptPacket,
    stage: Stage,
    script: Option<ScriptResult>,
    exit: ProcessExit,
    outputs: Option<Arc<Before>>,
}

impl Attempt {
    /// An attempt that may use these GPUs.
    pub fn new(packet: AttemptPacket, gpus: Vec<String>) -> Self {
        let stage = if packet.recovery.is_some() { Stage::Script } else { Stage::Command };
        let is_watched =
            !packet.output_files.is_empty() && !packet.strictness.accept_existing_outputs;
        let outputs = is_watched.then(|| Arc::new(Before::new(&packet.output_files)));
        Self {
            packet,
            gpus,
            stage,
            script: None,
            has_started: false,
            outputs,
            token: OnceLock::new(),
        }
    }

    /// What was seen of it, as a line of the time series.
    pub fn sample_line(&self, sample: &Sample, cpu_percent: Option<f64>, at_ms: i64) -> String {
        let line = serde_json::json!({
            "timestamp_ms": at_ms,
            "job_id": self.packet.job_id,
            "job_name": self.packet.job_name,
            "run_id": self.packet.run_id,
            "attempt_id": self.packet.attempt_id,
            "cpu_percent": cpu_percent,
            "memory_bytes": sample.memory_bytes,
            "num_processes": sample.processes,
        });
        format!("{line}\n")
    }

    /// Its true peak, as the last line of its time series: however short it was, there is one.
    pub fn peak_line(&self, exit: &ProcessExit) -> String {
        let seconds = exit.wall.as_secs_f64();
        let line = serde_json::json!({
            "timestamp_ms": exit.ended_ms,
            "job_id": self.packet.job_id,
            "job_name": self.packet.job_name,
            "run_id": self.packet.run_id,
            "attempt_id": self.packet.attempt_id,
            "cpu_percent": (seconds > 0.0).then(|| exit.cpu.as_secs_f64() / seconds * 100.0),
            "memory_bytes": peak_memory(exit),
            "is_peak": true,
        });
        format!("{line}\n")
    }

    /// Names it to the server.
    pub fn reference(&self) -> AttemptRef {
        AttemptRef { id: self.packet.id, token: self.packet.token.clone() }
    }

    /// One of its processes runs: its name, if the server is to be told because it is the first.
    pub fn take_start(&mut self) -> Option<AttemptRef> {
        (!std::mem::replace(&mut self.has_started, true)).then(|| self.reference())
    }

    /// The next process to run, numbered `id`.
    pub fn order(&self, context: &AttemptContext, id: u64) -> ProcessOrder {
        match (self.stage, &self.packet.recovery) {
            (Stage::Script, Some(script)) => {
                let mut env = self.env(context, script.failed_attempt_id);
                env.push(("TORC_RETURN_CODE".into(), script.return_code.to_string()));
                let rest = self.rest(context, &script.script, &env);
                ProcessOrder {
                    id,
                    tag: context.tag(id),
                    text: script.script.clone(),
                    shell: self.shell(context),
                    rest,
                    argv: Vec::new(),
                    env,
                    dir: None,
                    stdin: None,
                    stdout: Sink::Create(context.log_path(&self.packet, "_recovery.o")),
                    stderr: Sink::Create(context.log_path(&self.packet, "_recovery.e")),
                    time_limit: u64::try_from(script.timeout_seconds).ok().map(Duration::from_secs),
                    memory_limit: None,
                }
            }
            (Stage::Script | Stage::Command, _) => {
                let (stdout, stderr) = sinks(context, &self.packet);
                let text = match &self.packet.invocation_script {
                    Some(before) => format!("{before} {}", self.packet.command),
                    None => self.packet.command.clone(),
                };
                let limit = self.packet.memory_bytes.filter(|_| context.execution.limit_resources);
                let env = self.env(context, self.packet.attempt_id);
                let rest = self.rest(context, &text, &env);
                ProcessOrder {
                    id,
                    tag: context.tag(id),
                    text,
                    shell: self.shell(context),
                    rest,
                    argv: Vec::new(),
                    env,
                    dir: None,
                    stdin: None,
                    stdout,
                    stderr,
                    time_limit: self
                        .packet
                        .time_limit_seconds
                        .and_then(|s| u64::try_from(s).ok())
                        .map(Duration::from_secs),
                    memory_limit: limit
                        .and_then(|bytes| u64::try_from(bytes).ok())
                        .filter(|bytes| *bytes > 0),
                }
            }
        }
    }

    /// How its shell text is run.
    pub fn shell(&self, context: &AttemptContext) -> Shell {
        self.packet.strictness.shell.unwrap_or(context.execution.shell)
    }

    /// What must be done before a process of it starts.
    fn rest(
        &self,
        context: &AttemptContext,
        text: &str,
        env: &[(String, String)],
    ) -> Option<Box<OrderRest>> {
        let dir = long::is_long(text, env).then(|| long_dir(context, &self.packet));
        let rest = OrderRest {
            files: Files { lists: lists(context, &self.packet), dir },
            outputs: self.outputs.clone(),
            tolerates_oom: self.packet.strictness.tolerate_oom,
            no_core: false,
        };
        rest.boxed()
    }

    fn token(&self, context: &AttemptContext) -> &TokenFile {
        self.token.get_or_init(|| {
            context.tokens.issue(&Grant::Job {
                workflow: context.workflow_id,
                runner: context.runner_id,
                job: self.packet.job_id,
                attempt: self.packet.id,
            })
        })
    }

    /// The variables of its processes.
    pub fn env(&self, context: &AttemptContext, attempt_id: i64) -> Vec<(String, String)> {
        let pairs = |map: &BTreeMap<String, String>| {
            map.iter().map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>()
        };
        let mut env = pairs(&context.env);
        env.extend(pairs(&self.packet.env));
        env.extend(context.common_env(self.token(context)));
        env.push(("TORC_JOB_ID".into(), self.packet.job_id.to_string()));
        env.push(("TORC_JOB_NAME".into(), self.packet.job_name.clone()));
        env.push(("TORC_RUN_ID".into(), self.packet.run_id.to_string()));
        env.push(("TORC_ATTEMPT_ID".into(), attempt_id.to_string()));
        env.extend((1..=self.packet.lists.len()).map(|nth| {
            (list_variable(nth), list_path(context, &self.packet, nth).display().to_string())
        }));
        if !self.gpus.is_empty() {
            let list = self.gpus.join(",");
            for name in ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] {
                env.push((name.into(), list.clone()));
            }
        }
        env
    }

    /// One of its processes has ended; a next one would be numbered `id`. With `stop` there is no
    /// next one.
    pub fn on_exit(
        mut self: Box<Self>,
        context: &AttemptContext,
        mut exit: ProcessExit,
        stop: Option<StopReason>,
        id: u64,
    ) -> (Option<Box<Self>>, AfterProcess) {
        if self.stage == Stage::Script {
            // A command that ended just before it was to be stopped has ended by itself; a script
            // is not the end.
            exit.stop = exit.stop.or(stop);
            let result = script_result(context, &self.packet, &exit);
            let on_failure =
                self.packet.recovery.as_ref().map(|r| r.on_failure).unwrap_or_default();
            let is_fatal = result.return_code != 0 && on_failure == OnScriptFailure::Fail;
            // A script that was ended for a reason that is not its own takes the whole attempt with
            // it.
            let is_stopped =
                exit.stop.as_ref().is_some_and(|stop| !matches!(stop, StopReason::Timeout { .. }));
            self.script = Some(result);
            if !is_fatal && !is_stopped {
                self.stage = Stage::Command;
                if self.packet.steps.is_some() {
                    return (None, AfterProcess::Steps(self));
                }
                let order = self.order(context, id);
                return (Some(self), AfterProcess::Run(Box::new(order)));
            }
        }
        let Self { packet, stage, script, outputs, .. } = *self;
        (None, AfterProcess::Report(Box::new(Finish { packet, stage, script, exit, outputs })))
    }
}

/// Where the `nth` list of paths is, counted from 1.
fn list_path(context: &AttemptContext, packet: &AttemptPacket, nth: usize) -> PathBuf {
    context.log_path(packet, &format!("_list{nth}.txt"))
}

/// The lists of paths of an attempt and where they go.
pub fn lists(context: &AttemptContext, packet: &AttemptPacket) -> Vec<(PathBuf, Vec<String>)> {
    let numbered = packet.lists.iter().enumerate();
    numbered.map(|(n, list)| (list_path(context, packet, n + 1), list.clone())).collect()
}

/// Where the long texts and values of an attempt go while it runs.
pub fn long_dir(context: &AttemptContext, packet: &AttemptPacket) -> PathBuf {
    context.log_path(packet, "_long")
}

fn script_result(
    context: &AttemptContext,
    packet: &AttemptPacket,
    exit: &ProcessExit,
) -> ScriptResult {
    let rules = Rules { checkpoint: None, ..Rules::of(context, packet) };
    let verdict = judge(exit, &rules, &Lacking::default());
    ScriptResult {
        return_code: verdict.return_code,
        exec_seconds: exit.wall.as_secs_f64(),
        timed_out: matches!(exit.stop, Some(StopReason::Timeout { .. })),
        stdout_path: Some(context.log_path(packet, "_recovery.o").display().to_string()),
        stderr_path: Some(context.log_path(packet, "_recovery.e").display().to_string()),
    }
}

/// Where the output of an attempt goes.
pub fn stdio(context: &AttemptContext, packet: &AttemptPacket) -> Stdio {
    packet.stdio.unwrap_or(context.execution.stdio)
}

/// The files that the output of an attempt goes to.
pub fn sinks(context: &AttemptContext, packet: &AttemptPacket) -> (Sink, Sink) {
    let file = |ending| Sink::Create(context.log_path(packet, ending));
    match stdio(context, packet).mode {
        StdioMode::Separate => (file(".o"), file(".e")),
        StdioMode::Combined => (file(".log"), Sink::SameAsStdout),
        StdioMode::NoStdout => (Sink::Null, file(".e")),
        StdioMode::NoStderr => (file(".o"), Sink::Null),
        StdioMode::None => (Sink::Null, Sink::Null),
    }
}

impl Finish {
    /// The report needs no look at any file.
    pub fn is_quick(&self, context: &AttemptContext) -> bool {
        self.exit.is_clean()
            && self.packet.output_files.is_empty()
            && is_short(context, &self.packet)
            && !stdio(context, &self.packet).delete_on_success
    }

    /// Looks at files and makes the report.
    pub fn report(self, context: &AttemptContext) -> CompletionReport {
        let Self { packet, stage, script, exit, outputs } = self;
        let has_ended_well =
            stage == Stage::Command && exit.how == How::Code(0) && exit.stop.is_none();
        let lacking = match has_ended_well {
            true => Lacking::find(context, &packet, outputs.as_deref()),
            false => Lacking::default(),
        };
        let rules = Rules::of(context, &packet);
        let mut verdict = judge(&exit, &rules, &lacking);
        // A recovery script has a limit of its own.
        if stage == Stage::Command && verdict.cause == Some(Cause::Timeout) {
            verdict.detail = Some(match packet.is_limited_by_runtime {
                true => EndDetail::EnforcedRuntime,
                false => EndDetail::JobTimeout,
            });
        }
        if !is_short(context, &packet) {
            long::remove(&long_dir(context, &packet));
        }
        let (mut stdout, mut stderr) = match stage {
            Stage::Command => sinks(context, &packet),
            Stage::Script => {
                verdict.blame_the_script();
                let file = |ending| Sink::Create(context.log_path(&packet, ending));
                (file("_recovery.o"), file("_recovery.e"))
            }
        };
        let is_success = verdict.cause.is_none();
        let tail_of = if stderr == Sink::SameAsStdout { stdout.path() } else { stderr.path() };
        let (stderr_tail, stderr_tail_start) =
            tail_of.filter(|_| !is_success).and_then(tail).unzip();
        let observed =
            (!is_success).then(|| observe::observed(Some(&exit), stdout.path(), tail_of));
        if is_success && stdio(context, &packet).delete_on_success {
            let lists: Vec<PathBuf> = lists(context, &packet).into_iter().map(|(p, _)| p).collect();
            let logs = [stdout.path(), stderr.path()].into_iter().flatten();
            for path in logs.chain(lists.iter().map(PathBuf::as_path)) {
                if let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a log file");
                }
            }
            (stdout, stderr) = (Sink::Null, Sink::Null);
        }
        let text = |path: Option<&Path>| path.map(|p| p.display().to_string());
        let stderr_path = if stderr == Sink::SameAsStdout { stdout.path() } else { stderr.path() };
        let seconds = exit.wall.as_secs_f64();
        let has_run = !matches!(exit.how, How::NotStarted(_));
        let cpu = exit.cpu.as_secs_f64();
        CompletionReport {
            attempt: AttemptRef { id: packet.id, token: packet.token },
            return_code: verdict.return_code,
            signal: verdict.signal,
            cause: verdict.cause,
            detail: verdict.detail,
            error: verdict.error,
            evidence: verdict.evidence,
            started_ms: exit.started_ms,
            ended_ms: exit.ended_ms,
            exec_seconds: seconds,
            cpu_seconds: has_run.then_some(cpu),
            peak_memory_bytes: peak_memory(&exit).filter(|_| has_run).map(to_i64),
            avg_memory_bytes: exit.usage.avg_memory_bytes().map(to_i64),
            peak_cpu_percent: exit.usage.peak_cpu_percent,
            avg_cpu_percent: (has_run && seconds > 0.0).then(|| cpu / seconds * 100.0),
            stdout_path: text(stdout.path()),
            stderr_path: text(stderr_path),
            stderr_tail,
            stderr_tail_start,
            observed,
            script,
            steps: None,
        }
    }
}

/// The report about an attempt that never started.
pub fn unstarted_report(
    packet: AttemptPacket,
    cause: Cause,
    error: &str,
    at_ms: i64,
) -> CompletionReport {
    let attempt = AttemptRef { id: packet.id, token: packet.token };
    CompletionReport {
        return_code: i64::from(128 + libc::SIGTERM),
        evidence: vec![evidence(EvidenceSource::Journal, "it was not started".into())],
        ..unseen_report(attempt, cause, error.into(), at_ms)
    }
}

/// The report about an attempt that was lost with its node.
pub fn lost_report(attempt: AttemptRef, node: &str, why: &str, at_ms: i64) -> CompletionReport {
    CompletionReport {
        return_code: -128,
        evidence: vec![evidence(EvidenceSource::Journal, format!("node {node}: {why}"))],
        ..unseen_report(attempt, Cause::NodeFail, format!("its node {node} was lost"), at_ms)
    }
}

/// The report about an attempt whose step did not come up.
pub fn step_failed_report(attempt: AttemptRef, why: &str, at_ms: i64) -> CompletionReport {
    let error = format!("Slurm did not start a step for it: {why}");
    CompletionReport { return_code: 127, ..unseen_report(attempt, Cause::SpawnError, error, at_ms) }
}

/// The report about an attempt of which nothing was measured.
fn unseen_report(attempt: AttemptRef, cause: Cause, error: String, at_ms: i64) -> CompletionReport {
    CompletionReport {
        attempt,
        return_code: 0,
        signal: None,
        cause: Some(cause),
        detail: None,
        error: Some(error),
        evidence: Vec::new(),
        started_ms: at_ms,
        ended_ms: at_ms,
        exec_seconds: 0.0,
        cpu_seconds: None,
        peak_memory_bytes: None,
        avg_memory_bytes: None,
        peak_cpu_percent: None,
        avg_cpu_percent: None,
        stdout_path: None,
        stderr_path: None,
        stderr_tail: None,
        stderr_tail_start: None,
        observed: None,
        script: None,
        steps: None,
    }
}

/// A number that the wire can carry.
pub fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Nothing of an attempt can have gone by file.
fn is_short(context: &AttemptContext, packet: &AttemptPacket) -> bool {
    let before = packet.invocation_script.as_ref().map_or(0, String::len);
    let script = packet.recovery.as_ref().map_or(0, |recovery| recovery.script.len());
    before + packet.command.len() < long::LONGEST
        && script < long::LONGEST
        && packet.env.values().chain(context.env.values()).all(|value| value.len() < long::SMALL)
}

/// The end of a file, decoded lossily, and where it begins; None when there is nothing to read.
pub fn tail(path: &Path) -> Option<(String, i64)> {
    let mut file = torc_fs::open(path, torc_fs::Trust::Log).ok()?;
    let mut start = file.metadata().ok()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    // A character that was cut in two would be decoded longer than it is, and every place after it
    // be wrong.
    let cut =
        if start > 0 { bytes.iter().take_while(|b| **b & 0xc0 == 0x80).count().min(3) } else { 0 };
    start += cut as u64;
    let text = String::from_utf8_lossy(bytes.get(cut..)?).into_owned();
    (!text.is_empty()).then(|| (text, to_i64(start)))
}

#[cfg(test)]
mod tests;

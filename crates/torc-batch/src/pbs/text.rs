//! The texts of OpenPBS: the script that goes to it, and what `qsub` and `qstat -x -f -w` answer.

use crate::gridengine::text::missing;
use crate::{Known, Look, ScriptInput, Submitted};
use torc_model::slurm::script::{memory_bytes, shell_quoted, walltime_seconds};
use torc_model::slurm::squeue::last_line;
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict};
use torc_model::status::Cause;

/// The whole script. What PBS has no word for is refused, not dropped.
pub fn script(submission: &ScriptInput<'_>) -> Result<String, String> {
    let scheduler = submission.scheduler;
    if scheduler.nodes > 1 || submission.one_worker_per_node {
        return Err("nodes: on PBS an allocation has one node".into());
    }
    if scheduler.qos.is_some() || scheduler.tmp.is_some() {
        let field = if scheduler.qos.is_some() { "qos" } else { "tmp" };
        return Err(format!(
            "{field}: PBS has no option for it; write what your site takes into `extra`"
        ));
    }
    if let Some(key) = submission.defaults.keys().find(|key| *key != "account") {
        return Err(format!(
            "slurm_defaults.{key}: is an option of `sbatch`, which PBS does not have"
        ));
    }
    let mut lines = String::from("#!/bin/bash\n");
    let mut add = |line: String| lines.push_str(&format!("#PBS {line}\n"));
    add(format!("-N {}", word("name", submission.name)?));
    if !scheduler.account.is_empty() {
        add(format!("-A {}", word("account", &scheduler.account)?));
    }
    if let Some(queue) = &scheduler.partition {
        add(format!("-q {}", word("partition", queue)?));
    }
    let mut chunk = format!("1:ncpus={}", scheduler.ntasks_per_node.unwrap_or(1));
    if let Some(bytes) = scheduler.mem.as_deref().and_then(memory_bytes) {
        chunk += &format!(":mem={}mb", bytes.div_ceil(1 << 20));
    }
    if let Some(gres) = &scheduler.gres {
        let gpus =
            gres.strip_prefix("gpu:").and_then(|rest| rest.rsplit(':').next()?.parse::<u32>().ok());
        let gpus = gpus.ok_or_else(|| format!("gres: `{gres}` is not `gpu:NUMBER`"))?;
        chunk += &format!(":ngpus={gpus}");
    }
    add(format!("-l select={chunk}"));
    let seconds = walltime_seconds(&scheduler.walltime).map_err(|error| error.to_string())?;
    // Hours may be more than 24: PBS has no days.
    add(format!(
        "-l walltime={:02}:{:02}:{:02}",
        seconds / 3600,
        seconds % 3600 / 60,
        seconds % 60
    ));
    for option in ["-V", "-r n", "-o /dev/null", "-j oe"] {
        add(option.into());
    }
    if submission.count > 1 {
        let at_once = if scheduler.serialize_allocations { Some(1) } else { submission.at_once };
        let limit = at_once.map_or(String::new(), |n| format!("%{}", n.max(1)));
        add(format!("-J 0-{}{limit}", submission.count - 1));
    }
    for line in scheduler.extra.iter().flat_map(|extra| extra.lines()).map(str::trim) {
        let line = line.strip_prefix("#PBS").map_or(line, str::trim);
        if line.chars().any(char::is_control) {
            return Err("extra: control characters are not allowed".into());
        }
        if !line.is_empty() {
            add(line.to_owned());
        }
    }
    let output = format!("{}/slurm_output_{}_sl", submission.output_dir, submission.name);
    let task = if submission.count > 1 { "${job}_${PBS_ARRAY_INDEX}" } else { "${job}" };
    let command: Vec<_> = submission.command.iter().map(|part| shell_quoted(part)).collect();
    Ok(format!(
        "{lines}job=${{PBS_JOBID%%[.[]*}}\nexec >>{output}\"{task}\".o 2>>{output}\"{task}\".e\ncd {} || exit 1\n\
         unset TORC_TOKEN TORC_TOKEN_FILE\nexec {}\n",
        shell_quoted(submission.work_dir),
        command.join(" "),
        output = shell_quoted(&output),
    ))
}

fn word<'a>(field: &str, value: &'a str) -> Result<&'a str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    match !value.is_empty() && !value.starts_with('-') && value.chars().all(is_plain) {
        true => Ok(value),
        false => {
            Err(format!("{field}: `{}` has characters that PBS cannot take", value.escape_debug()))
        }
    }
}

/// `12_1` as PBS writes it: `12[1]`.
pub fn native_id(id: &str) -> String {
    id.split_once('_').map_or_else(|| id.to_owned(), |(job, task)| format!("{job}[{task}]"))
}

/// The number in `12.server` or `12[].server`.
pub fn number_of(id: &str) -> Option<String> {
    let digits: String = id.trim().chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

/// `12.server` as Torc writes it: `12`; `12[1].server`: `12_1`.
fn own_id(id: &str) -> Option<String> {
    let number = number_of(id)?;
    let task = id.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(task, _)| task);
    match task {
        Some(task) if !task.is_empty() => Some(format!("{number}_{task}")),
        _ => Some(number),
    }
}

/// Reads the outcome of `qsub`.
pub fn submitted(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Submitted {
    let message = last_line(stderr).trim_start_matches("qsub: ").to_owned();
    match exit_code {
        None => Submitted::Ambiguous("qsub did not answer in time".into()),
        Some(0) => match stdout.lines().rev().find_map(number_of) {
            Some(id) => Submitted::Id(id),
            None => Submitted::Ambiguous(format!("qsub printed no job id: `{}`", stdout.trim())),
        },
        Some(_) if is_silence(stderr) => Submitted::Ambiguous(message),
        Some(_) if message.contains("would exceed") => Submitted::Later(message),
        Some(_) if stderr.contains("qsub: ") => Submitted::Refused(message),
        Some(code) => Submitted::Ambiguous(format!("qsub ended with {code}: {message}")),
    }
}

fn is_silence(stderr: &str) -> bool {
    ["cannot connect to server", "Connection refused", "End of File", "Premature end", "timed out"]
        .iter()
        .any(|text| stderr.contains(text))
}

/// One job, or one task of an array, as `qstat -x -f -w` shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Job {
    /// As Torc writes it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// A letter.
    pub state: String,
    /// Why it waits, or what became of it.
    pub comment: Option<String>,
    /// How its script ended; below zero, PBS's own reason.
    pub exit_status: Option<i64>,
}

/// Reads `qstat -x -f -w`. Jobs that PBS does not know are missing; anything else is no answer.
pub fn jobs(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Result<Vec<Job>, String> {
    let Some(code) = exit_code else { return Err("qstat did not answer in time".into()) };
    let is_about_a_job =
        |line: &str| line.contains("Unknown Job Id") || line.contains("job history");
    let trouble = stderr.lines().find(|line| !line.trim().is_empty() && !is_about_a_job(line));
    if let Some(trouble) = trouble.filter(|_| code != 0) {
        return Err(format!("qstat ended with {code}: {}", trouble.trim()));
    }
    let mut jobs: Vec<Job> = Vec::new();
    for line in stdout.lines() {
        if let Some(id) = line.strip_prefix("Job Id: ") {
            let id = own_id(id)
                .ok_or_else(|| format!("qstat named a job that we cannot read: `{id}`"))?;
            jobs.push(Job { id, ..Job::default() });
        } else if let (Some(job), Some((key, value))) =
            (jobs.last_mut(), line.trim().split_once(" = "))
        {
            match key {
                "Job_Name" => job.name = value.to_owned(),
                "job_state" => job.state = value.to_owned(),
                "comment" => job.comment = Some(value.to_owned()),
                "Exit_status" => job.exit_status = value.parse().ok(),
                _ => {}
            }
        }
    }
    Ok(jobs)
}

/// PBS's own reasons, as `Exit_status`.
const KILLED_FOR_MEMORY: i64 = -27;
const KILLED_FOR_WALLTIME: i64 = -29;

impl Job {
    fn verdict(&self) -> Verdict {
        let alive = |phase| Verdict::Alive { phase, reason: self.comment.clone() };
        match self.state.as_str() {
            "Q" | "H" | "W" | "T" => alive(AllocationPhase::Waiting),
            "R" | "S" | "U" | "B" => alive(AllocationPhase::Running),
            "E" => alive(AllocationPhase::Leaving),
            "F" | "X" | "M" => Verdict::Ended(self.ending()),
            other => Verdict::Unknown {
                why: format!("PBS named the state `{other}`, which is new to us"),
            },
        }
    }

    fn ending(&self) -> AllocationEnding {
        let (state, cause, text) = match self.exit_status {
            Some(KILLED_FOR_WALLTIME) => {
                ("TIMEOUT", Cause::Walltime, "the allocation reached its walltime")
            }
            Some(KILLED_FOR_MEMORY) => {
                ("OUT_OF_MEMORY", Cause::Oom, "the allocation used more memory than it asked for")
            }
            Some(0) => ("COMPLETED", Cause::Lost, "the allocation's script has ended"),
            Some(code) if code > 256 => {
                ("CANCELLED", Cause::Lost, "the allocation was ended by a signal")
            }
            Some(_) => ("FAILED", Cause::Lost, "the allocation's script failed"),
            None => ("CANCELLED", Cause::Lost, "the allocation was deleted before it started"),
        };
        let comment = self.comment.as_ref().map_or(String::new(), |c| format!(" ({c})"));
        AllocationEnding {
            state: state.to_owned(),
            cause,
            text: format!("PBS: {text}{comment}"),
            is_vanished: false,
        }
    }
}

/// Judges one allocation.
pub fn observe(known: &Known, jobs: &[Job], now_ms: i64) -> Look {
    let fits = |job: &&Job| {
        job.name == known.name
            && match &known.slurm_job_id {
                Some(id) => job.id == *id,
                None => {
                    job.id.split_once('_').and_then(|(_, task)| task.parse().ok())
                        == known.array_task
                }
            }
    };
    match jobs.iter().find(fits) {
        Some(job) => Look {
            verdict: job.verdict(),
            slurm_job_id: Some(job.id.clone()),
            is_missing: false,
            before: None,
            start: None,
        },
        None => missing(known, None, now_ms),
    }
}

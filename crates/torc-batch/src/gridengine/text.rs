//! Grid Engine's texts: the script that goes to it, and what `qsub`, `qstat` and `qacct` answer.

use crate::{Known, Look, ScriptInput, Submitted};
use torc_model::slurm::observe::VANISHED_AFTER_MS;
use torc_model::slurm::script::{memory_bytes, shell_quoted, walltime_seconds};
use torc_model::slurm::{AllocationEnding, AllocationPhase, Verdict, chain_of};
use torc_model::status::Cause;

/// The whole script. What Grid Engine has no word for is refused, not dropped.
pub fn script(submission: &ScriptInput<'_>) -> Result<String, String> {
    let scheduler = submission.scheduler;
    let no_word = |field: &str| {
        Err(format!(
            "{field}: Grid Engine has no option for it; write what your site takes into `extra`"
        ))
    };
    if scheduler.nodes > 1 || submission.one_worker_per_node {
        return Err("nodes: on Grid Engine an allocation has one node".into());
    }
    if scheduler.qos.is_some() {
        return no_word("qos");
    }
    if scheduler.gres.is_some() {
        return no_word("gres");
    }
    if scheduler.tmp.is_some() {
        return no_word("tmp");
    }
    if let Some(key) = submission.defaults.keys().find(|key| *key != "account") {
        return Err(format!(
            "slurm_defaults.{key}: is an option of `sbatch`, which Grid Engine does not have"
        ));
    }
    let extra: Vec<&str> =
        scheduler.extra.iter().flat_map(|extra| extra.lines()).map(str::trim).collect();
    let mut lines = String::from("#!/bin/bash\n");
    let mut add = |line: String| lines.push_str(&format!("#$ {line}\n"));
    add(format!("-N {}", word("name", submission.name)?));
    add("-S /bin/bash".into());
    if !scheduler.account.is_empty() {
        add(format!("-A {}", word("account", &scheduler.account)?));
    }
    if let Some(queue) = &scheduler.partition {
        add(format!("-q {}", word("partition", queue)?));
    }
    let seconds = walltime_seconds(&scheduler.walltime).map_err(|error| error.to_string())?;
    add(format!("-l h_rt={seconds}"));
    if let Some(bytes) = scheduler.mem.as_deref().and_then(memory_bytes) {
        add(format!("-l mem_free={}M", bytes.div_ceil(1 << 20)));
    }
    let slots = scheduler.ntasks_per_node.unwrap_or(1);
    if slots > 1 && !extra.iter().any(|line| line.contains("-pe ")) {
        add(format!("-pe smp {slots}"));
    }
    // The runner's end comes early enough by its own clock; `-notify` gives it a moment also when
    // Grid Engine ends it before its time. The script opens its own output, so that array tasks
    // have names as everywhere.
    for option in ["-V", "-r n", "-notify", "-o /dev/null", "-j y"] {
        add(option.into());
    }
    if submission.count > 1 {
        add(format!("-t 1-{}", submission.count));
        let at_once = if scheduler.serialize_allocations { Some(1) } else { submission.at_once };
        if let Some(at_once) = at_once {
            add(format!("-tc {}", at_once.max(1)));
        }
    }
    if let Some(chain) = chain_of(submission.name).filter(|_| scheduler.serialize_allocations) {
        add(format!("-hold_jid {chain}-*"));
    }
    for line in extra.iter().filter(|line| !line.is_empty()) {
        let line = line.strip_prefix("#$").map_or(*line, str::trim);
        if line.chars().any(char::is_control) {
            return Err("extra: control characters are not allowed".into());
        }
        add(line.to_owned());
    }
    let output = format!("{}/slurm_output_{}_sl", submission.output_dir, submission.name);
    let task = if submission.count > 1 { "${JOB_ID}_$((SGE_TASK_ID - 1))" } else { "${JOB_ID}" };
    let command: Vec<_> = submission.command.iter().map(|part| shell_quoted(part)).collect();
    Ok(format!(
        "{lines}exec >>{output}\"{task}\".o 2>>{output}\"{task}\".e\ncd {} || exit 1\ntrap '' USR2\n\
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
        false => Err(format!(
            "{field}: `{}` has characters that Grid Engine cannot take",
            value.escape_debug()
        )),
    }
}

/// What `qsub` ends with when the user or the cluster has as many jobs as are allowed now.
const TRY_AGAIN: i32 = 25;

/// Reads the outcome of `qsub -terse`.
pub fn submitted(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Submitted {
    let said = stderr.lines().find_map(|line| line.trim().strip_prefix("Unable to run job: "));
    match (exit_code, said) {
        (None, _) => Submitted::Ambiguous("qsub did not answer in time".into()),
        (Some(0), _) => {
            // `7`, or `7.1-3:1` for an array.
            let line = stdout.lines().rev().map(str::trim).find(|line| !line.is_empty());
            let id = line.and_then(|line| line.split('.').next()).unwrap_or_default();
            match !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) {
                true => Submitted::Id(id.to_owned()),
                false => {
                    Submitted::Ambiguous(format!("qsub printed no job id: `{}`", stdout.trim()))
                }
            }
        }
        (Some(_), Some(why)) if is_silence(stderr) => Submitted::Ambiguous(why.to_owned()),
        (Some(TRY_AGAIN), Some(why)) => Submitted::Later(why.to_owned()),
        (Some(_), Some(why)) => Submitted::Refused(why.to_owned()),
        (Some(code), None) => {
            Submitted::Ambiguous(format!("qsub ended with {code}: {}", stderr.trim()))
        }
    }
}

/// The master was not reached, or its answer did not reach us.
fn is_silence(stderr: &str) -> bool {
    let texts = [
        "commlib error",
        "unable to send message",
        "unable to contact",
        "timeout",
        "got no response",
    ];
    texts.iter().any(|text| stderr.contains(text))
}

/// One job, or one task of an array, that Grid Engine has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// As Torc writes it: `7`, or `7_0` for the first task.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Letters, such as `qw`, `r`, `Eqw`, `dr`.
    pub state: String,
}

/// Reads `qstat -g d -xml`.
pub fn rows(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Result<Vec<Row>, String> {
    match exit_code {
        Some(0) if stdout.contains("</job_info>") => {}
        Some(0) => return Err("qstat printed a list without an end".into()),
        Some(code) => return Err(format!("qstat ended with {code}: {}", last(stderr))),
        None => return Err("qstat did not answer in time".into()),
    }
    let blocks = stdout.split("<job_list").skip(1);
    blocks
        .map(|block| {
            let block = block.split("</job_list>").next().unwrap_or_default();
            let read = || {
                let number = tag(block, "JB_job_number")?;
                let task = tag(block, "tasks").and_then(|task| task.parse::<i64>().ok());
                let id = match task {
                    Some(task) => format!("{number}_{}", task - 1),
                    None => number.to_owned(),
                };
                let (name, state) = (tag(block, "JB_name")?, tag(block, "state")?);
                Some(Row { id, name: name.to_owned(), state: state.to_owned() })
            };
            read().ok_or_else(|| "qstat printed a job that we cannot read".to_owned())
        })
        .collect()
}

fn tag<'a>(block: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = block.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text.trim())
}

fn last(text: &str) -> &str {
    torc_model::slurm::squeue::last_line(text)
}

impl Row {
    /// What its letters mean.
    pub fn verdict(&self) -> Verdict {
        let has = |letters: &str| self.state.chars().any(|letter| letters.contains(letter));
        let alive = |phase, reason: Option<&str>| Verdict::Alive {
            phase,
            reason: reason.map(str::to_owned),
        };
        match () {
            () if has("d") => alive(AllocationPhase::Leaving, None),
            () if has("E") => alive(
                AllocationPhase::Waiting,
                Some(
                    "Grid Engine holds it after an error; `qstat -j` tells which, `qmod -cj` lets it try again",
                ),
            ),
            () if has("h") && has("q") => alive(AllocationPhase::Waiting, Some("held")),
            () if has("q") => alive(AllocationPhase::Waiting, None),
            () if has("rtRsST") => alive(AllocationPhase::Running, None),
            () => Verdict::Unknown {
                why: format!("Grid Engine named the state `{}`, which is new to us", self.state),
            },
        }
    }
}

/// One record of `qacct -j`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// As Torc writes it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `failed`: 0 if Grid Engine itself met no trouble.
    pub failed: i64,
    /// What stands behind that number.
    pub failed_text: String,
    /// How the script ended.
    pub exit_status: i64,
    /// Seconds that it ran.
    pub seconds: f64,
    /// Seconds that it asked for.
    pub limit: Option<f64>,
}

/// Reads `qacct -j`. No record, whatever the reason, is no verdict.
pub fn records(stdout: &str) -> Vec<Record> {
    let blocks = stdout.split("==============================================================");
    blocks.filter(|block| block.contains("jobnumber")).map(record).collect()
}

fn record(block: &str) -> Record {
    let get = |key: &str| {
        let found = block.lines().find_map(|line| line.strip_prefix(key));
        found.filter(|rest| rest.starts_with(' ')).map_or("", str::trim)
    };
    let number = |text: &str| text.split_whitespace().next().and_then(|n| n.parse().ok());
    let id = match get("taskid").parse::<i64>() {
        Ok(task) => format!("{}_{}", get("jobnumber"), task - 1),
        Err(_) => get("jobnumber").to_owned(),
    };
    let limit = get("category").split("h_rt=").nth(1);
    let limit = limit.and_then(|rest| rest.split([',', ' ']).next()).and_then(|n| n.parse().ok());
    Record {
        id,
        name: get("jobname").to_owned(),
        failed: number(get("failed")).unwrap_or(0),
        failed_text: get("failed").split_once(':').map_or("", |(_, text)| text.trim()).to_owned(),
        exit_status: number(get("exit_status")).unwrap_or(0),
        seconds: get("ru_wallclock").trim_end_matches('s').parse().unwrap_or(0.0),
        limit,
    }
}

/// `failed` of a job that the master ended at a limit of its own: time, CPU time or memory.
const ENDED_AT_LIMIT: i64 = 37;
/// `failed` of a job that a signal ended.
const SIGNALED: i64 = 100;

impl Record {
    /// What its end meant for the attempts in it.
    pub fn ending(&self) -> AllocationEnding {
        let is_over_time = self.limit.is_some_and(|limit| self.seconds >= limit);
        let (state, cause, text) = match self.failed {
            ENDED_AT_LIMIT | SIGNALED if is_over_time => {
                ("TIMEOUT", Cause::Walltime, "the allocation reached its walltime".to_owned())
            }
            0 if self.exit_status == 0 => {
                ("COMPLETED", Cause::Lost, "the allocation's script has ended".to_owned())
            }
            0 => ("FAILED", Cause::Lost, "the allocation's script failed".to_owned()),
            SIGNALED => {
                ("CANCELLED", Cause::Lost, "the allocation was ended by a signal".to_owned())
            }
            _ => ("FAILED", Cause::Lost, format!("Grid Engine met trouble: {}", self.failed_text)),
        };
        AllocationEnding {
            state: state.to_owned(),
            cause,
            text: format!("Grid Engine's accounting: {text}"),
            is_vanished: false,
        }
    }
}

/// Judges one allocation by its row, else by its record, else by how long it has been missing.
pub fn observe(known: &Known, rows: &[Row], records: &[Record], now_ms: i64) -> Look {
    let fits = |id: &str| match &known.slurm_job_id {
        Some(own) => own == id,
        None => id.split_once('_').and_then(|(_, task)| task.parse().ok()) == known.array_task,
    };
    if let Some(row) = rows.iter().find(|row| row.name == known.name && fits(&row.id)) {
        return Look {
            verdict: row.verdict(),
            slurm_job_id: Some(row.id.clone()),
            is_missing: false,
            before: None,
            start: None,
        };
    }
    let found = records.iter().rev().find(|r| r.name == known.name && fits(&r.id));
    missing(known, found.map(Record::ending), now_ms)
}

/// What is not in the queue: over as the records say, or as long absence says.
pub fn missing(known: &Known, ending: Option<AllocationEnding>, now_ms: i64) -> Look {
    let is_old = known
        .missing_since_ms
        .is_some_and(|since| now_ms.saturating_sub(since) >= VANISHED_AFTER_MS);
    let verdict = match ending {
        Some(ending) => Verdict::Ended(ending),
        None if is_old => Verdict::Ended(AllocationEnding {
            text: "the batch system no longer knows this allocation".into(),
            ..AllocationEnding::vanished()
        }),
        None => Verdict::Unknown { why: "not in the queue; a second look will tell".into() },
    };
    Look { verdict, slurm_job_id: None, is_missing: true, before: None, start: None }
}

//! The text of a submission script.
//!
//! Every value that comes from a user is checked or quoted, so that nothing can add an `#SBATCH`
//! line or shell text. The one exception is documented: each line of a scheduler's `extra` becomes
//! one `#SBATCH` line as it stands.

use super::{chain_of, clock, parse_clock};
use crate::plan::SlurmScheduler;
use crate::units::{Memory, Runtime};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Options that Torc writes itself; `slurm_defaults` may not set them.
pub const MANAGED: [&str; 13] = [
    "partition",
    "nodes",
    "walltime",
    "time",
    "mem",
    "gres",
    "name",
    "job-name",
    "array",
    "output",
    "error",
    "chdir",
    "parsable",
];

/// What a script is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptInput<'a> {
    /// How to ask for nodes.
    pub scheduler: &'a SlurmScheduler,
    /// Options for every allocation of the workflow.
    pub defaults: &'a BTreeMap<String, Value>,
    /// Unique name of the allocation, or of the array of allocations.
    pub name: &'a str,
    /// So many equal allocations, as an array; 1 is no array.
    pub count: u32,
    /// At most so many of them at a time.
    pub at_once: Option<u32>,
    /// Where the output of the allocation goes.
    pub output_dir: &'a str,
    /// Where it runs.
    pub work_dir: &'a str,
    /// The runner's program and arguments.
    pub command: &'a [String],
    /// One runner on each node.
    pub one_worker_per_node: bool,
    /// The runner begins to end its jobs so many seconds before the end of the allocation.
    pub end_seconds: u64,
}

/// Slurm's signal comes so much earlier than the runner must begin to end its jobs: it has to ask
/// how much time is left.
const SIGNAL_SPARE_SECONDS: u64 = 30;
/// Slurm's bound of `--signal`.
const MAX_SIGNAL_SECONDS: u64 = 65_535;

/// A value that cannot be handed to Slurm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The field, such as `partition`.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for ScriptError {}

fn bad(field: &str, message: impl Into<String>) -> ScriptError {
    ScriptError { field: field.to_owned(), message: message.into() }
}

/// Seconds of a walltime, in Slurm's notation or as a friendly duration (`2h30m`).
pub fn walltime_seconds(text: &str) -> Result<u64, ScriptError> {
    match parse_clock(text) {
        Some(Some(seconds)) if seconds > 0 => Ok(seconds),
        Some(_) => Err(bad(
            "walltime",
            format!("`{text}` is not a limited time; write it like `04:00:00`"),
        )),
        None => match Runtime::parse(text) {
            Ok(Runtime(seconds)) if seconds > 0 => Ok(seconds),
            _ => Err(bad(
                "walltime",
                format!("`{text}` is not a walltime; write it like `04:00:00` or `1-12:00:00`"),
            )),
        },
    }
}

/// The whole script.
pub fn render(submission: &ScriptInput<'_>) -> Result<String, ScriptError> {
    let scheduler = submission.scheduler;
    let mut lines = ScriptLines::default();
    let chain = chain_of(submission.name).filter(|_| scheduler.serialize_allocations);
    lines.word("job-name", chain.unwrap_or(submission.name))?;
    if !scheduler.account.is_empty() {
        lines.word("account", &scheduler.account)?;
    }
    lines.option("partition", scheduler.partition.as_deref())?;
    lines.option("qos", scheduler.qos.as_deref())?;
    lines.push("nodes", &scheduler.nodes.max(1).to_string());
    if scheduler.nodes > 1 {
        // A node that fails takes its own jobs with it, not the allocation.
        lines.flag("no-kill");
    }
    // Slurm counts in minutes and rounds up; the runner keeps to the exact time it is told.
    lines.push("time", &clock(walltime_seconds(&scheduler.walltime)?));
    if let Some(mem) = &scheduler.mem {
        lines.push("mem", &memory("mem", mem)?);
    }
    if let Some(tasks) = scheduler.ntasks_per_node {
        lines.push("ntasks-per-node", &tasks.to_string());
    }
    lines.option("gres", scheduler.gres.as_deref())?;
    if let Some(tmp) = &scheduler.tmp {
        lines.push("tmp", &memory("tmp", tmp)?);
    }
    let per_file = if submission.count > 1 { "%A_%a" } else { "%j" };
    let output_dir = submission.output_dir.replace('%', "%%");
    for (option, end) in [("output", "o"), ("error", "e")] {
        let path = format!("{output_dir}/slurm_output_{}_sl{per_file}.{end}", submission.name);
        lines.push(option, &quoted(option, &path)?);
    }
    lines.push("chdir", &quoted("chdir", submission.work_dir)?);
    // A second life of the same allocation must not cut off the log of the first.
    lines.push("open-mode", "append");
    if submission.count > 1 {
        let at_once = if scheduler.serialize_allocations { Some(1) } else { submission.at_once };
        let limit = at_once.map_or(String::new(), |n| format!("%{}", n.max(1)));
        lines.push("array", &format!("0-{}{limit}", submission.count - 1));
    }
    if chain.is_some() {
        // Slurm starts one job of this name at a time, in the order in which they were sent.
        let user = submission.defaults.get("dependency").and_then(Value::as_str);
        let dependency = user.map_or("singleton".to_owned(), |user| format!("{user},singleton"));
        lines.push("dependency", &quoted("slurm_defaults.dependency", &dependency)?);
    }
    // The runner knows its end by itself; the signal lets it ask again, since an operator may have
    // changed the time limit. In a short allocation Slurm would send it at once.
    let signal = (submission.end_seconds + SIGNAL_SPARE_SECONDS).min(MAX_SIGNAL_SECONDS);
    let is_signaled = 2 * signal <= walltime_seconds(&scheduler.walltime)?;
    if is_signaled && !submission.defaults.contains_key("signal") {
        lines.push("signal", &format!("B:USR2@{signal}"));
    }
    let requeues = add_defaults(&mut lines, submission)?;
    if !requeues {
        lines.flag("no-requeue");
    }
    for line in scheduler
        .extra
        .iter()
        .flat_map(|extra| extra.lines())
        .map(str::trim)
        .filter(|l| !l.is_empty())
    {
        let line = line.strip_prefix("#SBATCH").map_or(line, str::trim);
        if line.chars().any(char::is_control) {
            return Err(bad("extra", "control characters are not allowed"));
        }
        lines.text += &format!("#SBATCH {line}\n");
    }
    let command: Vec<_> = submission.command.iter().map(|part| shell_quoted(part)).collect();
    let command = command.join(" ");
    let start = if submission.one_worker_per_node {
        // srun refuses to choose between memory settings that it finds in the environment.
        "unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU\n\
         exec srun --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" \
         --kill-on-bad-exit=0 --wait=0 "
    } else {
        "exec "
    };
    // The submitter's own rights stay behind; the runner reads a token of its own from a private
    // file.
    // `exec` keeps an ignored signal ignored until the runner listens for it.
    Ok(format!(
        "#!/bin/bash\n{}trap '' USR2\nunset TORC_TOKEN TORC_TOKEN_FILE\n{start}{command}\n",
        lines.text
    ))
}

/// Adds `slurm_defaults`; answers whether they ask for requeuing.
fn add_defaults(
    lines: &mut ScriptLines,
    submission: &ScriptInput<'_>,
) -> Result<bool, ScriptError> {
    let mut requeues = false;
    for (key, value) in submission.defaults {
        let option = key.replace('_', "-");
        let field = format!("slurm_defaults.{key}");
        if MANAGED.contains(&option.to_ascii_lowercase().as_str()) {
            return Err(bad(&field, "Torc sets this option itself, from the scheduler"));
        }
        let plain =
            !option.is_empty() && option.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !plain || option.starts_with('-') {
            return Err(bad(&field, "not the long name of an `sbatch` option"));
        }
        if option == "requeue" || option == "no-requeue" {
            requeues = (option == "requeue") == (*value != Value::Bool(false));
            if requeues {
                lines.flag("requeue");
            }
            continue;
        }
        // What the scheduler says itself wins.
        if lines.options.contains(&option) {
            continue;
        }
        match value {
            Value::Bool(true) | Value::Null => lines.flag(&option),
            Value::Bool(false) => {}
            Value::Number(number) => lines.push(&option, &number.to_string()),
            Value::String(text) if text.is_empty() => lines.flag(&option),
            Value::String(text) => lines.push(&option, &quoted(&field, text)?),
            Value::Array(_) | Value::Object(_) => {
                return Err(bad(&field, "only texts, numbers and booleans"));
            }
        }
    }
    Ok(requeues)
}

#[derive(Default)]
struct ScriptLines {
    text: String,
    options: Vec<String>,
}

impl ScriptLines {
    fn flag(&mut self, option: &str) {
        self.text += &format!("#SBATCH --{option}\n");
        self.options.push(option.to_owned());
    }

    fn push(&mut self, option: &str, value: &str) {
        self.text += &format!("#SBATCH --{option}={value}\n");
        self.options.push(option.to_owned());
    }

    fn word(&mut self, option: &str, value: &str) -> Result<(), ScriptError> {
        if value.is_empty() || !value.chars().all(is_plain) {
            return Err(bad(
                option,
                format!("`{}` has characters that Slurm cannot take", value.escape_debug()),
            ));
        }
        self.push(option, value);
        Ok(())
    }

    fn option(&mut self, option: &str, value: Option<&str>) -> Result<(), ScriptError> {
        value.map_or(Ok(()), |value| self.word(option, value))
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.,:/=+@*()[]%".contains(c)
}

/// A value on an `#SBATCH` line: as it is, or in double quotes.
fn quoted(field: &str, value: &str) -> Result<String, ScriptError> {
    if !value.is_empty() && value.chars().all(is_plain) {
        return Ok(value.to_owned());
    }
    if value.chars().any(|c| c.is_control() || matches!(c, '"' | '\\' | '`' | '$')) {
        return Err(bad(
            field,
            format!("`{}` has characters that Slurm cannot take", value.escape_debug()),
        ));
    }
    Ok(format!("\"{value}\""))
}

/// `8g`, `180GB` and `0` (all of the node) in Slurm's notation.
fn memory(field: &str, text: &str) -> Result<String, ScriptError> {
    let size = match text.trim().parse::<u64>() {
        // A bare number is megabytes to Slurm.
        Ok(megabytes) => {
            return Ok(
                format!("{megabytes}M").replace("0M", if megabytes == 0 { "0" } else { "0M" })
            );
        }
        Err(_) => Memory::parse(text).map_err(|e| bad(field, e.0))?,
    };
    Ok(format!("{}M", size.0.div_ceil(1 << 20)))
}

/// What `mem` asks for; `None` when it names no size of its own (`0` is all of the node).
pub fn memory_bytes(text: &str) -> Option<u64> {
    let bytes = match text.trim().parse::<u64>() {
        // A bare number is megabytes to Slurm.
        Ok(megabytes) => megabytes.checked_mul(1 << 20)?,
        Err(_) => Memory::parse(text).ok()?.0,
    };
    (bytes > 0).then_some(bytes)
}

/// One word for the shell, whatever it contains.
pub fn shell_quoted(text: &str) -> String {
    if !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=+@%,".contains(c))
    {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scheduler() -> SlurmScheduler {
        SlurmScheduler {
            name: "s".into(),
            account: "acct".into(),
            nodes: 2,
            walltime: "04:00:00".into(),
            ..SlurmScheduler::default()
        }
    }

    fn script(
        scheduler: &SlurmScheduler,
        defaults: &[(&str, Value)],
        count: u32,
    ) -> Result<String, ScriptError> {
        let defaults = defaults.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        render(&ScriptInput {
            scheduler,
            defaults: &defaults,
            name: "torc-wf5-a1",
            count,
            at_once: None,
            output_dir: "/scratch/my out",
            work_dir: "/scratch/me",
            command: &["/opt/torc".into(), "it's".into()],
            one_worker_per_node: false,
            end_seconds: 20,
        })
    }

    #[test]
    fn a_script_says_all_and_no_more() {
        let full = SlurmScheduler {
            partition: Some("gpu-h100".into()),
            mem: Some("180g".into()),
            gres: Some("gpu:2".into()),
            qos: Some("high".into()),
            ntasks_per_node: Some(4),
            tmp: Some("1t".into()),
            extra: Some("--reservation=r1\n#SBATCH --mail-type=END".into()),
            ..scheduler()
        };
        let text = script(
            &full,
            &[("mail_user", Value::from("a@b.c")), ("comment", Value::from("my run"))],
            3,
        );
        assert_eq!(
            text.as_deref(),
            Ok("#!/bin/bash\n\
                #SBATCH --job-name=torc-wf5-a1\n\
                #SBATCH --account=acct\n\
                #SBATCH --partition=gpu-h100\n\
                #SBATCH --qos=high\n\
                #SBATCH --nodes=2\n\
                #SBATCH --no-kill\n\
                #SBATCH --time=04:00:00\n\
                #SBATCH --mem=184320M\n\
                #SBATCH --ntasks-per-node=4\n\
                #SBATCH --gres=gpu:2\n\
                #SBATCH --tmp=1048576M\n\
                #SBATCH --output=\"/scratch/my out/slurm_output_torc-wf5-a1_sl%A_%a.o\"\n\
                #SBATCH --error=\"/scratch/my out/slurm_output_torc-wf5-a1_sl%A_%a.e\"\n\
                #SBATCH --chdir=/scratch/me\n\
                #SBATCH --open-mode=append\n\
                #SBATCH --array=0-2\n\
                #SBATCH --signal=B:USR2@50\n\
                #SBATCH --comment=\"my run\"\n\
                #SBATCH --mail-user=a@b.c\n\
                #SBATCH --no-requeue\n\
                #SBATCH --reservation=r1\n\
                #SBATCH --mail-type=END\n\
                trap '' USR2\n\
                unset TORC_TOKEN TORC_TOKEN_FILE\n\
                exec /opt/torc 'it'\\''s'\n")
        );
    }

    #[test]
    fn defaults_can_not_take_over_what_torc_manages() {
        for key in ["time", "Partition", "job_name", "output", "array"] {
            assert!(script(&scheduler(), &[(key, Value::from("x"))], 1).is_err(), "{key}");
        }
        let text = script(
            &scheduler(),
            &[("account", Value::from("other")), ("requeue", Value::from(true))],
            1,
        );
        let text = text.unwrap_or_default();
        assert!(
            text.contains("--account=acct\n") && !text.contains("other"),
            "the scheduler's own account wins"
        );
        assert!(text.contains("#SBATCH --requeue\n") && !text.contains("no-requeue"));
    }

    #[test]
    fn slurm_is_asked_for_a_signal_early_enough_unless_the_user_asks_for_one() {
        let with = |defaults: &[(&str, Value)], walltime: &str| -> Vec<String> {
            let scheduler = SlurmScheduler { walltime: walltime.into(), ..scheduler() };
            let text = script(&scheduler, defaults, 1).unwrap_or_default();
            text.lines()
                .filter_map(|l| l.strip_prefix("#SBATCH --signal="))
                .map(str::to_owned)
                .collect()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(with(&[], "04:00:00"), ["B:USR2@50".to_owned()]);
        assert_eq!(with(&[], "00:01:00"), none, "it would come at once");
        let own = [("signal", Value::from("B:TERM@300"))];
        assert_eq!(with(&own, "04:00:00"), ["B:TERM@300".to_owned()]);
    }

    #[test]
    fn links_of_a_chain_have_one_name_and_run_one_at_a_time() {
        let chained = SlurmScheduler { serialize_allocations: true, ..scheduler() };
        let defaults = BTreeMap::from([("dependency".to_owned(), Value::from("afterok:7"))]);
        let text = |name: &str, defaults: &BTreeMap<String, Value>| {
            render(&ScriptInput {
                scheduler: &chained,
                defaults,
                name,
                count: 1,
                at_once: None,
                output_dir: "/o",
                work_dir: "/w",
                command: &["torc".into()],
                one_worker_per_node: false,
                end_seconds: 20,
            })
            .unwrap_or_default()
        };
        let link = text("torc-wf1-s1-0000000a-0000000b", &BTreeMap::new());
        assert!(link.contains("#SBATCH --job-name=torc-wf1-s1-0000000a\n"), "{link}");
        assert!(link.contains("#SBATCH --dependency=singleton\n"), "{link}");
        assert!(link.contains("/o/slurm_output_torc-wf1-s1-0000000a-0000000b_sl%j.o\n"), "{link}");
        let both = text("torc-wf1-s1-0000000a-0000000b", &defaults);
        assert!(both.contains("#SBATCH --dependency=afterok:7,singleton\n"), "{both}");
        assert_eq!(both.matches("dependency").count(), 1, "{both}");
    }

    #[test]
    fn memory_follows_slurm() {
        for (text, want) in
            [("0", "0"), ("500", "500M"), ("10", "10M"), ("8g", "8192M"), ("1.5GB", "1536M")]
        {
            assert_eq!(memory("mem", text).as_deref(), Ok(want), "{text}");
        }
        assert!(memory("mem", "lots").is_err());
    }

    proptest! {
        /// Whatever a user writes into a field, the lines of the script stay the ones that Torc
        /// wrote.
        #[test]
        fn no_value_adds_a_line(value in "[\\PC\n\r\t\"'#$`\\\\]{0,30}", field in 0..6usize) {
            let mut scheduler = scheduler();
            let mut defaults = Vec::new();
            match field {
                0 => scheduler.account = value.clone(),
                1 => scheduler.partition = Some(value.clone()),
                2 => scheduler.gres = Some(value.clone()),
                3 => scheduler.qos = Some(value.clone()),
                4 => defaults.push(("comment", Value::from(value.clone()))),
                _ => scheduler.walltime = value.clone(),
            }
            if let Ok(text) = script(&scheduler, &defaults, 1) {
                let head: Vec<_> = text.lines().skip(1).take_while(|l| l.starts_with("#SBATCH --")).collect();
                let rest: Vec<_> = text.lines().skip(1 + head.len()).collect();
                prop_assert_eq!(rest, vec!["trap '' USR2", "unset TORC_TOKEN TORC_TOKEN_FILE", "exec /opt/torc 'it'\\''s'"]);
                prop_assert!(head.len() <= 13, "{}", text);
            }
        }
    }
}

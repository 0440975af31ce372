//! The keys of the spec: the one table that drives the reader, its suggestions, the KDL mapping,
//! the writers and the JSON Schema.

use crate::checks;
use crate::node::Node;
use crate::read::Reader;
use std::collections::HashMap;
use std::sync::LazyLock;
use torc_model::status::Trigger;

/// A job's priority is one of these.
pub const PRIORITIES: std::ops::RangeInclusive<i64> = -1_000_000_000..=1_000_000_000;

/// What a value may look like and what it becomes in the canonical form.
#[derive(Clone, Copy)]
pub enum Shape {
    /// Any text; numbers and booleans are taken as they are spelled.
    Text,
    /// Text of one line: it ends up in a file where a line break would begin something else.
    Line,
    /// The name of something: one line, of a decent length, that cannot lead out of a directory.
    Name,
    /// The name of a file, or its path.
    FileName,
    /// A name or a list of names; canonical as one text with commas between.
    Labels,
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds.
    Int(i64, i64),
    /// A number within bounds.
    Number(f64, f64),
    /// `8g`, `1.5GB`; canonical in the largest whole unit.
    Memory,
    /// `2h30m`, `02:30:00`; canonical as ISO 8601.
    Runtime,
    /// The same, longer than nothing.
    Timeout,
    /// A duration or a number of seconds; canonical as a number of seconds.
    Seconds,
    /// As Slurm takes it; canonical `HH:MM:SS` or `D-HH:MM:SS`. A bare number is minutes, as for
    /// `sbatch`.
    Walltime,
    /// As Slurm takes it: a whole number with an optional unit letter.
    SlurmMemory,
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    /// A signal by name or number; canonical `SIGTERM`.
    Signal,
    /// A signal and how many seconds early it comes: `TERM@120`.
    EarlySignal,
    /// A regular expression.
    Regex,
    /// A list; a single value stands for a list of one.
    List(&'static Shape),
    /// A map with keys of the user's choice.
    Map(KeyRule, &'static Shape),
    /// A map with known keys.
    Object(&'static Object),
    /// Anything.
    Json,
    /// Anything; a text that is a JSON object is read as such.
    Metadata,
    /// Values of one parameter: text in Torc's syntax, a number, or a list of scalars.
    ParameterValues,
    /// Steps of a job or what belongs to them; read by [`crate::steps`].
    Steps(crate::steps::Part),
    /// Accepted for the sake of older files, with a warning that says why nothing happens.
    Ignored(&'static str),
    /// Refused with a word of explanation.
    Refused(&'static str),
}

/// What the keys of a [`Shape::Map`] may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeyRule {
    /// `[A-Za-z_][A-Za-z0-9_]*`
    Identifier,
    /// Names of environment variables.
    Environment,
    /// Long options of `sbatch`.
    SlurmOption,
    /// What other things are called.
    Name,
}

/// One key.
pub struct Field {
    /// Its name.
    pub key: &'static str,
    /// Other names for it, in every format.
    pub aliases: &'static [&'static str],
    /// Names for it in KDL, where lists are written as repeated nodes; the first is the one we
    /// write.
    pub kdl: &'static [&'static str],
    /// Its value.
    pub shape: Shape,
    /// It must be there.
    pub required: bool,
    /// For the JSON Schema.
    pub doc: &'static str,
}

/// A map with known keys.
pub struct Object {
    /// With its article, for messages: `a job`.
    pub name: &'static str,
    /// For the JSON Schema.
    pub id: &'static str,
    /// Its keys, in the canonical order.
    pub fields: &'static [Field],
    /// A lone scalar stands for a map with only this key.
    pub shorthand: Option<&'static str>,
    /// Rules between its keys; sees the canonical form.
    pub check: Option<fn(&mut Reader<'_>, &Node)>,
}

/// The keys of all fields, numbered.
struct Known {
    keys: Vec<&'static str>,
    numbers: HashMap<&'static str, usize>,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut known = Known { keys: Vec::new(), numbers: HashMap::new() };
    for field in OBJECTS.iter().flat_map(|object| object.fields) {
        if !known.numbers.contains_key(field.key) {
            known.numbers.insert(field.key, known.keys.len());
            known.keys.push(field.key);
        }
    }
    known
});

/// A key of any field, as the tables have it.
pub fn known(key: &str) -> Option<&'static str> {
    number(key).map(|(_, key)| key)
}

/// The number of a key of any field, and the key as the tables have it.
pub fn number(key: &str) -> Option<(usize, &'static str)> {
    KNOWN.numbers.get_key_value(key).map(|(key, number)| (*number, *key))
}

/// The key with a number that [`number`] gave.
pub fn numbered(number: usize) -> &'static str {
    KNOWN.keys[number]
}

impl Object {
    /// The field with this key or alias.
    pub fn field(&self, key: &str, kdl: bool) -> Option<&'static Field> {
        self.fields.iter().find(|field| {
            field.key == key || field.aliases.contains(&key) || (kdl && field.kdl.contains(&key))
        })
    }
}

pub(crate) const fn field(key: &'static str, shape: Shape, doc: &'static str) -> Field {
    Field { key, aliases: &[], kdl: &[], shape, required: false, doc }
}

impl Field {
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(crate) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn kdl(mut self, names: &'static [&'static str]) -> Self {
        self.kdl = names;
        self
    }
}

const NAMES: Shape = Shape::List(&Shape::Name);
const FILES: Shape = Shape::List(&Shape::FileName);
const REGEXES: Shape = Shape::List(&Shape::Regex);
const TEXTS: Shape = Shape::List(&Shape::Text);
const ENVIRONMENT: Shape = Shape::Map(KeyRule::Environment, &Shape::Text);
const PARAMETERS: Shape = Shape::Map(KeyRule::Identifier, &Shape::ParameterValues);
const MODE: Shape = Shape::Word(|| vec!["product", "zip"]);
const COUNT: i64 = u32::MAX as i64;
const MONTH: i64 = 31 * 86_400;

/// The whole file.
pub static WORKFLOW: Object = Object {
    name: "the workflow",
    id: "workflow",
    shorthand: None,
    check: Some(checks::workflow),
    fields: &[
        field("name", Shape::Name, "Name of the workflow.").required(),
        field("user", Shape::Line, "Who it belongs to; the user who creates it unless set."),
        field("description", Shape::Text, "Free text."),
        field("project", Shape::Line, "Free text to group workflows by."),
        field("metadata", Shape::Metadata, "Any data to keep with the workflow."),
        field(
            "variables",
            Shape::Map(KeyRule::Identifier, &Shape::Text),
            "Constants: `{name}` stands for the value in every text of the file.",
        ),
        field("env", ENVIRONMENT, "Environment variables of every job; a job's own win."),
        field(
            "shell",
            SHELL,
            "How shell text is run: `strict` means after `set -euo pipefail` in bash; `default` unless set.",
        ),
        field(
            "enforce_runtime",
            Shape::Bool,
            "`runtime` ends attempts like `timeout`, instead of only planning; false unless set.",
        ),
        field(
            "limits",
            Shape::Map(KeyRule::Name, &Shape::Int(0, 1_000_000)),
            "How many jobs may use something at once, where the server does not say so already; see `uses`.",
        ),
        field(
            "parameters",
            PARAMETERS,
            "Parameters that jobs, files and user data take with `use_parameters`.",
        ),
        field(
            "parameter_mode",
            MODE,
            "How shared parameters combine: every combination, or side by side.",
        ),
        field(
            "parameters_file",
            Shape::Text,
            "CSV, JSON or JSONL file with one set of parameter values per row.",
        ),
        field(
            "use_pending_failed",
            Shape::Bool,
            "Failures that no rule covers wait for a verdict instead of failing.",
        ),
        field(
            "auto_recover",
            Shape::Object(&AUTO_RECOVER),
            "The server itself lets failed jobs run again where that helps: `true`, or budgets.",
        ),
        field(
            "recovery_rules",
            Shape::List(&Shape::Object(&RECOVERY_RULE)),
            "What words, exceptions and exit codes of its programs mean; they win over what Torc knows.",
        ),
        field("default_failure_handler", Shape::Name, "Failure handler of jobs that name none."),
        field(
            "checkpoint_exit_code",
            Shape::Int(1, 255),
            "Exit code that means: state saved, start me again.",
        ),
        field(
            "compare_files_by",
            Shape::Word(|| vec!["mtime", "content"]),
            "How reinitialize tells that an input file changed: by its time and size, or by what it contains.",
        ),
        field(
            "order",
            Shape::Word(|| vec!["critical_path", "submission"]),
            "Which ready job of one priority starts first: the one with the longest chain of jobs after it, or the one that stands first in the file.",
        ),
        field(
            "disown_seconds",
            Shape::Int(60, MONTH),
            "A silent runner without proof of death is given up after this long; 43200 (12 hours) unless set.",
        ),
        field(
            "classification_threshold",
            Shape::Number(0.0, 1.0),
            "An agent's verdict below this confidence waits for a person; 0.8 unless set.",
        ),
        field(
            "agent",
            Shape::Steps(crate::steps::Part::Agent),
            "The agent program that `claude` steps call.",
        ),
        field("resource_monitor", Shape::Object(&RESOURCE_MONITOR), "How resource use is watched."),
        field("execution_config", Shape::Object(&EXECUTION), "How limits and output are treated.")
            .alias(&["execution"]),
        field(
            "compute_node_wait_for_new_jobs_seconds",
            Shape::Int(0, MONTH),
            "A runner in an allocation leaves after this long without work; 90 unless set.",
        ),
        field(
            "compute_node_ignore_workflow_completion",
            Shape::Bool,
            "Runners stay although the workflow is complete.",
        ),
        field(
            "compute_node_wait_for_healthy_database_minutes",
            Shape::Int(0, 100_000),
            "How long a runner keeps trying to reach the server; 20 unless set.",
        ),
        field(
            "compute_node_min_time_for_new_jobs_seconds",
            Shape::Int(0, MONTH),
            "A runner takes no new job when less time than this is left; 300 unless set.",
        ),
        field(
            "compute_node_expiration_buffer_seconds",
            Shape::Ignored("runners now stop by themselves in time"),
            "No effect.",
        ),
        field("jobs_sort_method", Shape::Ignored("give jobs a `priority` instead"), "No effect."),
        field(
            "enable_ro_crate",
            Shape::Bool,
            "`torc run` writes the RO-Crate `ro-crate_wfID` beside the logs when the workflow is complete; false unless set.",
        ),
        field(
            "dynamic_jobs",
            Shape::Object(&DYNAMIC),
            "Running jobs may add jobs; they may not unless set.",
        ),
        field(
            "access_groups",
            NAMES,
            "Groups of users who may see and change it, besides its owner; see `torc access-groups`.",
        ),
        field(
            "datasets",
            Shape::Refused("declare a directory as one of `files`"),
            "Not supported.",
        ),
        field(
            "slurm_defaults",
            Shape::Map(KeyRule::SlurmOption, &Shape::Json),
            "Any `sbatch` option for every allocation.",
        ),
        field(
            "resource_requirements",
            Shape::List(&Shape::Object(&REQUIREMENTS)),
            "What jobs need to run.",
        ),
        field(
            "failure_handlers",
            Shape::List(&Shape::Object(&HANDLER)),
            "Named lists of retry rules.",
        )
        .kdl(&["failure_handler"]),
        field(
            "slurm_schedulers",
            Shape::List(&Shape::Object(&SCHEDULER)),
            "How to ask Slurm for nodes.",
        )
        .kdl(&["slurm_scheduler"]),
        field("files", Shape::List(&Shape::Object(&FILE)), "Files that jobs read and write.")
            .kdl(&["file"]),
        field(
            "user_data",
            Shape::List(&Shape::Object(&USER_DATA)),
            "Pieces of JSON that jobs read and write.",
        ),
        field("jobs", Shape::List(&Shape::Object(&JOB)), "The jobs.").required().kdl(&["job"]),
        field("actions", Shape::List(&Shape::Object(&ACTION)), "What happens at which trigger.")
            .kdl(&["action"]),
    ],
};

/// A job.
pub static JOB: Object = Object {
    name: "a job",
    id: "job",
    shorthand: None,
    check: Some(checks::job),
    fields: &[
        field("name", Shape::Name, "Unique name; with `{parameter}` one job per value.").required(),
        field("command", Shape::Text, "Shell text."),
        field("steps", Shape::Steps(crate::steps::Part::Steps), "Steps instead of a command."),
        field("map", Shape::Steps(crate::steps::Part::Map), "One instance of the steps per item."),
        field(
            "reduce",
            Shape::Steps(crate::steps::Part::Reduce),
            "Runs over the results of a map job.",
        ),
        field(
            "on_failure",
            Shape::Steps(crate::steps::Part::Handler),
            "What runs when a step fails.",
        ),
        field("on_success", Shape::Steps(crate::steps::Part::Steps), "What runs after success."),
        field("resume", Shape::Steps(crate::steps::Part::Resume), "Where a new attempt begins."),
        field("dir", Shape::Steps(crate::steps::Part::Dir), "Directory the steps run in."),
        field("invocation_script", Shape::Text, "Text put before the command."),
        field("parameters", PARAMETERS, "One instance per combination of values."),
        field("parameter_mode", MODE, "Every combination of the values, or side by side."),
        field("parameters_file", Shape::Text, "CSV, JSON or JSONL file with one instance per row."),
        field("use_parameters", NAMES, "Names of the workflow's parameters to take."),
        field(
            "use_parameters_file",
            Shape::Bool,
            "One instance per row of the workflow's `parameters_file`; false unless set.",
        ),
        field("depends_on", NAMES, "Jobs that must succeed first.")
            .alias(&["blocked_by", "blocked_by_job_names"])
            .kdl(&["depends_on", "depends_on_job", "blocked_by_job"]),
        field("depends_on_regexes", REGEXES, "The same, by regular expression.")
            .alias(&["blocked_by_regexes", "blocked_by_job_name_regexes"])
            .kdl(&["depends_on_regexes", "depends_on_regex", "blocked_by_job_regex"]),
        field("input_files", FILES, "Files it reads, by name or by path.")
            .alias(&["input_file_names"])
            .kdl(&["input_file"]),
        field("input_file_regexes", REGEXES, "The same, by regular expression.")
            .alias(&["input_file_name_regexes"])
            .kdl(&["input_file_regex"]),
        field("output_files", FILES, "Files it writes, by name or by path.")
            .alias(&["output_file_names"])
            .kdl(&["output_file"]),
        field("output_file_regexes", REGEXES, "The same, by regular expression.")
            .alias(&["output_file_name_regexes"])
            .kdl(&["output_file_regex"]),
        field("input_user_data", NAMES, "User data it reads.").alias(&["input_user_data_names"]),
        field("input_user_data_regexes", REGEXES, "The same, by regular expression.")
            .alias(&["input_user_data_name_regexes"])
            .kdl(&["input_user_data_regex"]),
        field("output_user_data", NAMES, "User data it produces.")
            .alias(&["output_user_data_names", "output_data_names"]),
        field("output_user_data_regexes", REGEXES, "The same, by regular expression.")
            .alias(&["output_user_data_name_regexes"])
            .kdl(&["output_user_data_regex"]),
        field("resource_requirements", Shape::Name, "What it needs, by name.")
            .alias(&["resource_requirements_name"]),
        field("cpus", Shape::Int(1, COUNT), "CPUs, without an entry of `resource_requirements`.")
            .alias(&["num_cpus"]),
        field("gpus", Shape::Int(0, COUNT), "GPUs, in the same way.").alias(&["num_gpus"]),
        field("memory", Shape::Memory, "Memory, such as `2g`, in the same way."),
        field(
            "time",
            Shape::Runtime,
            "How long an attempt is expected to take, in the same way. Plans only: `timeout` ends it.",
        )
        .alias(&["runtime"]),
        field("failure_handler", Shape::Name, "What to do when it fails, by name."),
        field(
            "retries",
            Shape::Int(0, 999_999),
            "How often it starts again after a failure that no rule of its failure handler matches; 0 unless set.",
        ),
        field("scheduler", Shape::Name, "Slurm scheduler that gets its nodes, by name.")
            .alias(&["scheduler_name"]),
        field(
            "cancel_on_blocking_job_failure",
            Shape::Bool,
            "Canceled when a dependency fails; true unless set.",
        ),
        field(
            "priority",
            Shape::Int(*PRIORITIES.start(), *PRIORITIES.end()),
            "Higher runs first; 0 unless set.",
        ),
        field("env", ENVIRONMENT, "Its environment variables."),
        field("timeout", Shape::Timeout, "An attempt is ended after this long."),
        field(
            "enforce_runtime",
            Shape::Bool,
            "Its `runtime` ends an attempt, too; as the workflow says unless set.",
        ),
        field(
            "shell",
            SHELL,
            "`strict` or `default`, as for the workflow, whose setting it has unless set.",
        ),
        field(
            "tolerate_oom",
            Shape::Bool,
            "It may succeed although the kernel killed a process of it at its memory limit; false unless set.",
        ),
        field(
            "accept_existing_outputs",
            Shape::Bool,
            "Output files that were there before and did not change count as made; false unless set.",
        ),
        field("non_empty", Shape::Bool, "Its output files must not be empty; false unless set."),
        field("min_size", Shape::Memory, "Its output files must have at least this size."),
        field(
            "max_lost_retries",
            Shape::Int(0, 1_000_000),
            "How often it starts again after its runner was lost; 3 unless set.",
        ),
        field("uses", NAMES, "Named limits it takes one unit of while it runs."),
        field("label", Shape::Labels, "Only runners with this label, or with all of several, take it.")
            .alias(&["labels"]),
        field("stdio", Shape::Object(&STDIO), "Where its output goes."),
        field(
            "supports_termination",
            Shape::Ignored("every job now gets the termination signal first"),
            "No effect.",
        ),
        field(
            "input_datasets",
            Shape::Refused("declare a directory as one of `files`"),
            "Not supported.",
        ),
        field(
            "output_datasets",
            Shape::Refused("declare a directory as one of `files`"),
            "Not supported.",
        ),
    ],
};

static FILE: Object = Object {
    name: "a file",
    id: "file",
    shorthand: None,
    check: Some(checks::parameterised),
    fields: &[
        field("name", Shape::Name, "Unique name.").required(),
        field("path", Shape::Line, "Path, relative to the directory the workflow runs in.")
            .required(),
        field("non_empty", Shape::Bool, "Who writes it must not leave it empty; false unless set."),
        field("min_size", Shape::Memory, "Who writes it must write at least so much."),
        field("parameters", PARAMETERS, "One file per combination of values."),
        field("parameter_mode", MODE, "Every combination of the values, or side by side."),
        field("parameters_file", Shape::Text, "CSV, JSON or JSONL file with one instance per row."),
        field("use_parameters", NAMES, "Names of the workflow's parameters to take."),
        field(
            "use_parameters_file",
            Shape::Bool,
            "One instance per row of the workflow's `parameters_file`; false unless set.",
        ),
        field(
            "identifier",
            Shape::Line,
            "DOI, URN or another identifier, for `torc export ro-crate`.",
        ),
        field("st_mtime", Shape::Ignored("times are read from the files themselves"), "No effect."),
    ],
};

static USER_DATA: Object = Object {
    name: "user data",
    id: "user_data",
    shorthand: None,
    check: Some(checks::parameterised),
    fields: &[
        field("name", Shape::Name, "Unique name.").required(),
        field("data", Shape::Json, "Its value, unless a job produces it."),
        field("is_ephemeral", Shape::Bool, "Cleared when the workflow is reinitialized."),
        field("parameters", PARAMETERS, "One piece per combination of values."),
        field("parameter_mode", MODE, "Every combination of the values, or side by side."),
        field("parameters_file", Shape::Text, "CSV, JSON or JSONL file with one instance per row."),
        field("use_parameters", NAMES, "Names of the workflow's parameters to take."),
        field(
            "use_parameters_file",
            Shape::Bool,
            "One instance per row of the workflow's `parameters_file`; false unless set.",
        ),
    ],
};

static REQUIREMENTS: Object = Object {
    name: "resource requirements",
    id: "resource_requirements",
    shorthand: None,
    check: Some(checks::requirements),
    fields: &[
        field("name", Shape::Name, "Unique name.").required(),
        field("num_cpus", Shape::Int(1, COUNT), "CPUs; 1 unless set.").alias(&["cpus"]),
        field("num_gpus", Shape::Int(0, COUNT), "GPUs; 0 unless set.").alias(&["gpus"]),
        field("num_nodes", Shape::Int(1, COUNT), "Nodes; 1 unless set.").alias(&["nodes"]),
        field("memory", Shape::Memory, "Memory, such as `8g`; not counted unless set."),
        field(
            "runtime",
            Shape::Runtime,
            "How long an attempt is expected to take, such as `2h`. Plans only: `timeout` and `enforce_runtime` end it.",
        )
        .alias(&["time"]),
    ],
};

static HANDLER: Object = Object {
    name: "a failure handler",
    id: "failure_handler",
    shorthand: None,
    check: Some(checks::handler),
    fields: &[
        field("name", Shape::Name, "Unique name.").required(),
        field("rules", Shape::List(&Shape::Object(&RULE)), "What to do about which failure.")
            .required()
            .kdl(&["rule"]),
    ],
};

static RULE: Object = Object {
    name: "a rule",
    id: "rule",
    shorthand: None,
    check: Some(checks::rule),
    fields: &[
        field("exit_codes", Shape::List(&Shape::Int(-1024, 1024)), "Return codes it matches.")
            .kdl(&["exit_codes", "exit_code"]),
        field(
            "match_all_exit_codes",
            Shape::Bool,
            "Matches every failure that no precise rule matches.",
        ),
        field("signals", Shape::List(&Shape::Signal), "Signals it matches.")
            .kdl(&["signals", "signal"]),
        field("causes", Shape::List(&Shape::Word(causes)), "Causes it matches, also by what `torc why` calls them; `transient` is what passes by itself.")
            .kdl(&["causes", "cause"]),
        field(
            "stderr_matches",
            REGEXES,
            "Regular expressions of which one must match the end of standard error.",
        ),
        field("recovery_script", Shape::Text, "Shell text that runs before the next attempt."),
        field(
            "max_retries",
            Shape::Int(0, 1_000_000),
            "A retry is allowed while the attempt's number is lower: 0 or 1 for none, 3 unless set.",
        )
        .alias(&["max_attempts"]),
        field("backoff", Shape::Object(&BACKOFF), "How long to wait before the next attempt."),
        field(
            "script_timeout",
            Shape::Timeout,
            "The recovery script is killed after this long; 10 minutes unless set.",
        ),
        field(
            "on_script_failure",
            Shape::Word(|| vec!["continue", "fail"]),
            "What a failing recovery script means.",
        ),
    ],
};

static BACKOFF: Object = Object {
    name: "a backoff",
    id: "backoff",
    shorthand: Some("delay_seconds"),
    check: None,
    fields: &[
        field("delay_seconds", Shape::Seconds, "Wait before the first retry.")
            .required()
            .alias(&["delay"]),
        field("factor", Shape::Number(1.0, 1000.0), "Growth per retry; 2 unless set."),
        field("max_seconds", Shape::Seconds, "Longest wait.").alias(&["max", "max_delay"]),
        field("jitter", Shape::Number(0.0, 1.0), "0.1 spreads the wait over 90% to 110%."),
    ],
};

static STDIO: Object = Object {
    name: "stdio",
    id: "stdio",
    shorthand: Some("mode"),
    check: None,
    fields: &[
        field(
            "mode",
            Shape::Word(|| vec!["separate", "combined", "no_stdout", "no_stderr", "none"]),
            "Which output files there are.",
        ),
        field("delete_on_success", Shape::Bool, "Remove them when the attempt succeeds."),
    ],
};

static RESOURCE_MONITOR: Object = Object {
    name: "the resource monitor",
    id: "resource_monitor",
    shorthand: None,
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Record peaks and averages; true unless set."),
        field("granularity", GRANULARITY, "`time_series` keeps every sample as well."),
        field(
            "sample_interval_seconds",
            Shape::Number(0.1, 86_400.0),
            "Time between samples; 5 unless set.",
        ),
        field(
            "jobs",
            Shape::Object(&MONITOR_JOBS),
            "The same settings as later Torc releases write them.",
        ),
        field(
            "compute_node",
            Shape::Object(&MONITOR_NODE),
            "Also sample CPUs, memory, GPUs and disk of every machine as a whole.",
        ),
        field(
            "flush_interval_seconds",
            Shape::Ignored("samples are written when the attempt ends"),
            "No effect.",
        ),
        field("generate_plots", Shape::Ignored("plots are made on demand"), "No effect."),
    ],
};

const SHELL: Shape = Shape::Word(|| vec!["default", "strict"]);
const GRANULARITY: Shape = Shape::Word(|| vec!["summary", "time_series"]);

static MONITOR_JOBS: Object = Object {
    name: "the resource monitor's jobs",
    id: "resource_monitor_jobs",
    shorthand: None,
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Record peaks and averages; true unless set."),
        field("granularity", GRANULARITY, "`time_series` keeps every sample as well."),
    ],
};

static MONITOR_NODE: Object = Object {
    name: "the resource monitor's machines",
    id: "resource_monitor_compute_node",
    shorthand: Some("enabled"),
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Sample machines; false unless set."),
        field("granularity", Shape::Ignored("every sample of a machine is kept"), "No effect."),
    ],
};

static RECOVERY_RULE: Object = Object {
    name: "a recovery rule",
    id: "recovery_rule",
    shorthand: None,
    check: None,
    fields: &[
        field("rule", Shape::Name, "Its name.").required(),
        field("kind", Shape::Word(kinds), "What happened.").required(),
        field("nature", Shape::Word(natures), "What helps.").required(),
        field("sure", Shape::Number(0.0, 1.0), "How sure that is; 0.9 unless set."),
        field("first", Shape::Bool, "It outranks other rules of its list."),
        field("generic", Shape::Bool, "The class says nothing by itself: the message decides."),
        field(
            "says",
            TEXTS,
            "Phrases of the message that ended the program: `*` is anything, `#` a number, `@` one of `codes`.",
        ),
        field("codes", TEXTS, "What `@` stands for."),
        field("classes", TEXTS, "Classes of exceptions."),
        field(
            "programs",
            TEXTS,
            "Programs whose exit codes are meant; every program's unless set.",
        ),
        field("exits", Shape::List(&Shape::Int(0, 255)), "Exit codes."),
        field("source", Shape::Text, "Where that is written down."),
        field("examples", TEXTS, "Texts that it must decide."),
        field("unlike", TEXTS, "Texts that it must not decide."),
    ],
};

/// A file of rules.
pub static RULES_FILE: Object = Object {
    name: "the file of rules",
    id: "rules_file",
    shorthand: None,
    check: None,
    fields: &[
        field("source", Shape::Text, "Where all of it is written down."),
        field("rules", Shape::List(&Shape::Object(&RECOVERY_RULE)), "The rules.").required(),
    ],
};

static AUTO_RECOVER: Object = Object {
    name: "automatic recovery",
    id: "auto_recover",
    shorthand: Some("enabled"),
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Whether it does anything; true where the others are set."),
        field("max_retries", Shape::Int(1, 1000), "Retries of one job in a run; 6 unless set."),
        field(
            "max_retries_per_cause",
            Shape::Int(1, 1000),
            "Retries of one job in a run for the same cause; 3 unless set.",
        ),
        field(
            "max_workflow_retries",
            Shape::Int(1, COUNT),
            "Retries of all jobs in a run; one for each job and at least 50 unless set.",
        ),
        field(
            "confidence",
            Shape::Number(0.5, 1.0),
            "A diagnosis must be at least this sure; 0.8 unless set.",
        ),
        field(
            "max_memory",
            Shape::Memory,
            "Memory is raised to this at most; to that of the largest machine seen unless set.",
        ),
        field("max_runtime", Shape::Timeout, "Time is raised to this at most."),
        field(
            "delay_seconds",
            Shape::Seconds,
            "The longest wait before the first retry, three times as long before each further one; 10 unless set.",
        ),
        field("max_delay_seconds", Shape::Seconds, "The longest wait of all; 600 unless set."),
    ],
};

static EXECUTION: Object = Object {
    name: "the execution config",
    id: "execution_config",
    shorthand: None,
    check: None,
    fields: &[
        field(
            "mode",
            Shape::Word(|| vec!["direct", "slurm", "auto"]),
            "How jobs are started in a Slurm allocation: `direct` by the worker, which `auto` chooses as well, or `slurm` in a step of their own each, which Slurm shows and accounts; `direct` unless set.",
        ),
        field(
            "limit_resources",
            Shape::Bool,
            "Memory is a limit, not only a wish; true unless set.",
        ),
        field("termination_signal", Shape::Signal, "Asks a job to end; SIGTERM unless set."),
        field(
            "sigterm_lead_seconds",
            Shape::Seconds,
            "Time between that signal and SIGKILL, also before the end of an allocation; 10 unless set.",
        )
        .alias(&["grace_seconds"]),
        field(
            "timeout_exit_code",
            Shape::Int(1, 255),
            "Return code recorded for a timeout; 152 unless set.",
        ),
        field(
            "oom_exit_code",
            Shape::Int(1, 255),
            "Return code recorded for memory use beyond the limit; 137 unless set.",
        ),
        field("stdio", Shape::Object(&STDIO), "Where output goes unless a job says otherwise."),
        field(
            "sigkill_headroom_seconds",
            Shape::Seconds,
            "SIGKILL comes this long before the end of an allocation, and the signal `sigterm_lead_seconds` earlier; 10 unless set.",
        ),
        field(
            "staggered_start",
            Shape::Ignored("claims do not compete, so nothing needs staggering"),
            "No effect.",
        ),
        field(
            "srun_termination_signal",
            Shape::EarlySignal,
            "Signal before the end of an allocation and how many seconds earlier than SIGKILL it comes, such as `TERM@120`; `termination_signal` and `sigterm_lead_seconds` unless set.",
        ),
        field("enable_cpu_bind", Shape::Ignored("jobs are not started through srun"), "No effect."),
        field("srun_mpi", Shape::Ignored("jobs are not started through srun"), "No effect."),
    ],
};

static DYNAMIC: Object = Object {
    name: "dynamic jobs",
    id: "dynamic_jobs",
    shorthand: Some("allowed"),
    check: None,
    fields: &[
        field("allowed", Shape::Bool, "Running jobs may add jobs; true unless set."),
        field(
            "max_iterations",
            Shape::Int(1, 1_000_000),
            "How often jobs of one lineage may add jobs in a run; 1000 unless set.",
        ),
        field(
            "max_jobs",
            Shape::Int(1, 1_000_000),
            "How many jobs may be added in a run in all; 100000 unless set.",
        ),
    ],
};

static SCHEDULER: Object = Object {
    name: "a Slurm scheduler",
    id: "slurm_scheduler",
    shorthand: None,
    check: None,
    fields: &[
        field("name", Shape::Name, "Unique name.").required(),
        field("account", Shape::Line, "Who pays."),
        field("partition", Shape::Line, "Partition."),
        field("nodes", Shape::Int(1, COUNT), "Nodes per allocation; 1 unless set."),
        field("walltime", Shape::Walltime, "Length of an allocation; `01:00:00` unless set."),
        field("mem", Shape::SlurmMemory, "Memory per node."),
        field("gres", Shape::Line, "Generic resources, such as `gpu:1`."),
        field("qos", Shape::Line, "Quality of service."),
        field("ntasks_per_node", Shape::Int(1, COUNT), "Tasks per node."),
        field("tmp", Shape::SlurmMemory, "Local disk."),
        field("extra", Shape::Line, "Further options for the `#SBATCH` lines."),
        field(
            "serialize_allocations",
            Shape::Bool,
            "Run one allocation at a time, those of later requests included.",
        ),
    ],
};

static ACTION: Object = Object {
    name: "an action",
    id: "action",
    shorthand: None,
    check: Some(checks::action),
    fields: &[
        field("trigger_type", Shape::Word(triggers), "When.").required(),
        field("action_type", Shape::Word(|| vec!["run_commands", "schedule_nodes"]), "What.")
            .required(),
        field("jobs", NAMES, "Jobs that the trigger watches.")
            .alias(&["job_names"])
            .kdl(&["jobs", "job"]),
        field("job_name_regexes", REGEXES, "The same, by regular expression.")
            .kdl(&["job_name_regexes", "job_name_regex"]),
        field("commands", TEXTS, "Shell commands, one after the other.").kdl(&["command"]),
        field("scheduler", Shape::Name, "Slurm scheduler, by name.").alias(&["scheduler_name"]),
        field(
            "scheduler_type",
            Shape::Word(|| vec!["slurm", "local"]),
            "`slurm` unless set; with `local` nothing is asked for, and jobs wait for runners.",
        ),
        field("num_allocations", Shape::Int(1, 100_000), "How many allocations; 1 unless set."),
        field(
            "start_one_worker_per_node",
            Shape::Bool,
            "One runner on each node instead of one per allocation.",
        ),
        field(
            "max_parallel_jobs",
            Shape::Int(1, COUNT),
            "At most this many jobs at once, whatever they need.",
        ),
        field("persistent", Shape::Bool, "Once per runner instead of once."),
    ],
};

/// Objects whose unknown keys are warned of instead of refused. The monitor only watches, so that no
/// job runs differently by a key that is passed over, and files of Torc have keys of several
/// releases there.
pub const PASSES_OVER_UNKNOWN: [&str; 2] = ["resource_monitor", "resource_monitor_jobs"];

/// Everything with known keys.
pub static OBJECTS: [&Object; 17] = [
    &WORKFLOW,
    &JOB,
    &FILE,
    &USER_DATA,
    &REQUIREMENTS,
    &HANDLER,
    &RULE,
    &BACKOFF,
    &STDIO,
    &RESOURCE_MONITOR,
    &MONITOR_JOBS,
    &EXECUTION,
    &DYNAMIC,
    &AUTO_RECOVER,
    &RECOVERY_RULE,
    &SCHEDULER,
    &ACTION,
];

fn kinds() -> Vec<&'static str> {
    torc_model::recovery::Kind::ALL.iter().map(|kind| kind.as_str()).collect()
}

fn natures() -> Vec<&'static str> {
    torc_model::recovery::Nature::ALL.iter().map(|nature| nature.as_str()).collect()
}

fn causes() -> Vec<&'static str> {
    torc_model::recovery::FailureName::words()
}

fn triggers() -> Vec<&'static str> {
    Trigger::ALL.iter().map(|trigger| trigger.as_str()).collect()
}

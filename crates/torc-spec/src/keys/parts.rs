//! The keys of everything that stands inside of a workflow or a job.

use super::*;

pub static FILE: Object = Object {
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

pub static USER_DATA: Object = Object {
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

pub static REQUIREMENTS: Object = Object {
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

pub static HANDLER: Object = Object {
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

pub static RULE: Object = Object {
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

pub static BACKOFF: Object = Object {
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

pub static STDIO: Object = Object {
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

pub static RESOURCE_MONITOR: Object = Object {
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

pub const SHELL: Shape = Shape::Word(|| vec!["default", "strict"]);
pub const GRANULARITY: Shape = Shape::Word(|| vec!["summary", "time_series"]);

pub static MONITOR_JOBS: Object = Object {
    name: "the resource monitor's jobs",
    id: "resource_monitor_jobs",
    shorthand: None,
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Record peaks and averages; true unless set."),
        field("granularity", GRANULARITY, "`time_series` keeps every sample as well."),
    ],
};

pub static MONITOR_NODE: Object = Object {
    name: "the resource monitor's machines",
    id: "resource_monitor_compute_node",
    shorthand: Some("enabled"),
    check: None,
    fields: &[
        field("enabled", Shape::Bool, "Sample machines; false unless set."),
        field("granularity", Shape::Ignored("every sample of a machine is kept"), "No effect."),
    ],
};

pub static RECOVERY_RULE: Object = Object {
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

pub static AUTO_RECOVER: Object = Object {
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

pub static EXECUTION: Object = Object {
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

pub static DYNAMIC: Object = Object {
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

pub static SCHEDULER: Object = Object {
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

pub static ACTION: Object = Object {
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

//! The keys of a workflow and of a job.

use super::*;

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

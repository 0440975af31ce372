//! Words that other tools have for the same thing: a user of Snakemake, Nextflow, make, a CI
//! system or Slurm tries these first, and is told ours.

use crate::keys::Object;

/// What to say about a key of another tool.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Our key that it stands for.
    pub meant: &'static str,
    /// What to write.
    pub help: &'static str,
}

struct Row {
    words: &'static [&'static str],
    answer: Answer,
}

const fn row(words: &'static [&'static str], meant: &'static str, help: &'static str) -> Row {
    Row { words, answer: Answer { meant, help } }
}

const JOB: [Row; 16] = [
    row(
        &[
            "needs",
            "deps",
            "dependencies",
            "dependency",
            "requires",
            "after",
            "upstream",
            "parents",
            "wait_for",
        ],
        "depends_on",
        "write `depends_on: [NAME, ...]` for jobs; a job also waits for the writers of its `input_files`",
    ),
    row(
        &["resources", "requirements", "limits"],
        "resource_requirements",
        "write `cpus`, `gpus`, `memory` and `time` here, or `resource_requirements: NAME` for an entry of \
         the workflow's `resource_requirements`",
    ),
    row(
        &["cores", "threads", "cpu", "ncpus", "n_cpus", "cpus_per_task", "num_threads", "ncores"],
        "cpus",
        "write `cpus: 2`",
    ),
    row(&["mem", "ram", "mem_mb", "mem_gb", "memory_mb"], "memory", "write `memory: 2g`"),
    row(&["gpu", "ngpus", "n_gpus", "accelerators"], "gpus", "write `gpus: 1`"),
    row(
        &["walltime", "time_limit", "time_min", "max_time", "max_runtime", "duration"],
        "time",
        "write `time: 2h` for how long it is expected to take, or `timeout: 2h` to end it then",
    ),
    row(
        &[
            "retry",
            "max_retries",
            "attempts",
            "max_attempts",
            "restarts",
            "restart_times",
            "num_retries",
        ],
        "retries",
        "write `retries: 3` for three more attempts, or `failure_handler: NAME` for rules by exit code",
    ),
    row(
        &["inputs", "input", "in", "sources", "src", "reads"],
        "input_files",
        "write `input_files: [PATH, ...]`; names of the workflow's `files` count, too",
    ),
    row(
        &["outputs", "output", "out", "targets", "target", "outs", "products", "writes"],
        "output_files",
        "write `output_files: [PATH, ...]`; names of the workflow's `files` count, too",
    ),
    row(
        &["script", "run", "cmd", "exec", "bash", "sh", "commands", "args", "shell_command"],
        "command",
        "write `command: TEXT`, or `steps` for several",
    ),
    row(&["environment", "envvars", "env_vars", "vars"], "env", "write `env: {NAME: VALUE}`"),
    row(
        &["matrix", "params", "foreach", "for_each", "with_items", "scatter", "wildcards", "array"],
        "parameters",
        "write `parameters: {x: [1, 2]}` and `{x}` in the name for one job per value, or `map` for a list \
         that an earlier job finds",
    ),
    row(
        &["queue", "partition", "executor", "cluster"],
        "scheduler",
        "write `scheduler: NAME` for an entry of the workflow's `slurm_schedulers`",
    ),
    row(&["id", "title", "rule", "job"], "name", "write `name: NAME`"),
    row(&["tags", "runs_on"], "label", "write `label: NAME` for runners that were started with it"),
    row(
        &["allow_failure", "ignore_errors", "continue_on_error", "optional", "when"],
        "cancel_on_blocking_job_failure",
        "write `cancel_on_blocking_job_failure: false` in the jobs that go ahead although it failed",
    ),
];

const WORKFLOW: [Row; 7] = [
    row(
        &["rules", "stages", "processes", "targets", "pipeline"],
        "jobs",
        "write `jobs:`, a list of maps with `name` and `command`",
    ),
    row(
        &["resources", "requirements"],
        "resource_requirements",
        "write `resource_requirements:`, a list, or `cpus`, `memory` and `time` in the jobs",
    ),
    row(&["environment", "envvars", "env_vars"], "env", "write `env: {NAME: VALUE}`"),
    row(&["vars", "constants", "config"], "variables", "write `variables: {NAME: VALUE}`"),
    row(&["params", "matrix"], "parameters", "write `parameters: {x: [1, 2]}`"),
    row(&["handlers", "error_handlers"], "failure_handlers", "write `failure_handlers:`, a list"),
    row(
        &["inputs", "outputs", "artifacts", "datasets_in"],
        "files",
        "write `files:`, a list of maps with `name` and `path`, or paths in the jobs' `input_files`",
    ),
];

const RULE: [Row; 2] = [
    row(
        &["retries", "retry", "attempts", "restarts"],
        "max_retries",
        "write `max_attempts: 3`; `max_retries` is the same number: a retry is allowed while the \
         attempt's number is lower",
    ),
    row(&["delay", "wait", "sleep"], "backoff", "write `backoff: 10s`"),
];

/// What to say about a key that is none of ours but of another tool.
pub fn answer(object: &Object, key: &str) -> Option<Answer> {
    let rows: &[Row] = match object.id {
        "job" => &JOB,
        "workflow" => &WORKFLOW,
        "rule" => &RULE,
        _ => return None,
    };
    // `depends-on`, `dependsOn` and `DEPENDS_ON` are the same word.
    let mut word = String::with_capacity(key.len() + 2);
    for c in key.chars() {
        if c.is_ascii_uppercase() && word.ends_with(|last: char| last.is_ascii_lowercase()) {
            word.push('_');
        }
        word.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    rows.iter().find(|row| row.words.contains(&word.as_str())).map(|row| row.answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys;

    #[test]
    fn every_answer_names_a_key_of_its_object_and_no_word_of_ours_is_foreign() {
        let find = |id: &str| keys::OBJECTS.iter().find(|object| object.id == id).unwrap();
        for (id, rows) in [("job", &JOB[..]), ("workflow", &WORKFLOW), ("rule", &RULE)] {
            let object = find(id);
            for row in rows {
                assert!(object.field(row.answer.meant, false).is_some(), "{}", row.answer.meant);
                assert!(row.answer.help.contains('`'), "{}", row.answer.help);
                for word in row.words {
                    assert!(object.field(word, false).is_none(), "{id}: {word} is a key");
                    assert!(answer(object, word).is_some());
                }
            }
        }
        assert!(answer(find("job"), "max-retries").is_some());
        assert!(answer(find("job"), "timeLimit").is_some());
        assert!(answer(find("job"), "frobnicate").is_none());
    }
}

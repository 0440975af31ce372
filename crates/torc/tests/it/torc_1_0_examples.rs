//! The examples of Torc 1.0.0, executed: every file that needs no cluster ends as its own documents and rules say.
//!
//! Scripts that come with the examples run as they are. Most examples call programs that are not there (`train.py`, `wget` of
//! an address that does not exist); for these a stand-in writes what the job has declared as its outputs.

use crate::dynamic::torc_1_0_lab;
use crate::support::{TORC, Test, text};
use crate::torc_1_0_files::specs;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// How many jobs of an example complete, fail and are canceled.
struct Ends(&'static str, [i64; 3]);

/// Examples without a cluster, in all formats that they come in.
const EXAMPLES: &[Ends] = &[
    Ends("json/data_pipeline_parameterized.json5", [36, 0, 0]),
    Ends("json/diamond_workflow.json5", [4, 0, 0]),
    Ends("json/failure_handler_simulation.json", [18, 0, 0]),
    Ends("json/hundred_jobs_parameterized.json5", [100, 0, 0]),
    Ends("json/hundred_jobs_workflow.json5", [100, 0, 0]),
    Ends("json/hyperparameter_sweep.json5", [38, 0, 0]),
    Ends("json/hyperparameter_sweep_shared_params.json5", [38, 0, 0]),
    Ends("json/sample_workflow.json", [3, 0, 0]),
    Ends("json/sample_workflow.json5", [3, 0, 0]),
    Ends("json/simulation_sweep.json5", [49, 0, 0]),
    Ends("json/variables_demo.json", [6, 0, 0]),
    Ends("json/variables_demo.json5", [6, 0, 0]),
    Ends("json/workflow_actions_data_pipeline.json5", [14, 0, 0]),
    Ends("json/workflow_actions_ml_training.json5", [10, 0, 0]),
    Ends("json/workflow_actions_simple.json5", [3, 0, 0]),
    Ends("json/zip_parameter_mode.json5", [6, 0, 0]),
    Ends("kdl/diamond_workflow.kdl", [4, 0, 0]),
    Ends("kdl/failure_handler_simulation.kdl", [18, 0, 0]),
    Ends("kdl/hundred_jobs_parameterized.kdl", [101, 0, 0]),
    Ends("kdl/hyperparameter_sweep.kdl", [38, 0, 0]),
    Ends("kdl/hyperparameter_sweep_shared_params.kdl", [38, 0, 0]),
    Ends("kdl/mixed_workload.kdl", [121, 0, 0]),
    // Its `invocation_script` is one line that begins with `#!`, so that the command behind it is a comment: it does nothing,
    // and the declared output is missing.
    Ends("kdl/sample_workflow.kdl", [1, 1, 1]),
    Ends("kdl/variables_demo.kdl", [6, 0, 0]),
    Ends("kdl/workflow_actions_ml_training.kdl", [5, 0, 0]),
    Ends("kdl/workflow_actions_simple.kdl", [3, 0, 0]),
    Ends("kdl/zip_parameter_mode.kdl", [6, 0, 0]),
    Ends("subgraphs/subgraphs_workflow_no_slurm.json5", [15, 0, 0]),
    Ends("subgraphs/subgraphs_workflow_no_slurm.kdl", [15, 0, 0]),
    Ends("subgraphs/subgraphs_workflow_no_slurm.yaml", [15, 0, 0]),
    Ends("yaml/data_pipeline_parameterized.yaml", [36, 0, 0]),
    Ends("yaml/diamond_workflow.yaml", [4, 0, 0]),
    Ends("yaml/failure_handler_demo.yaml", [4, 0, 0]),
    Ends("yaml/failure_handler_simulation.yaml", [18, 0, 0]),
    Ends("yaml/fan_in_with_regexes.yaml", [30, 0, 0]),
    Ends("yaml/hundred_jobs_parameterized.yaml", [100, 0, 0]),
    Ends("yaml/hyperparameter_sweep.yaml", [38, 0, 0]),
    Ends("yaml/hyperparameter_sweep_shared_params.yaml", [38, 0, 0]),
    Ends("yaml/parameterized_from_csv.yaml", [4, 0, 0]),
    Ends("yaml/parameterized_from_json.yaml", [4, 0, 0]),
    // Its jobs only `echo`, but declare files that they write.
    Ends("yaml/parameterized_shared_table.yaml", [0, 4, 5]),
    Ends("yaml/parameterized_user_data.yaml", [3, 0, 0]),
    Ends("yaml/priority_workflow.yaml", [5, 0, 0]),
    // `torc ro-crate create` is answered with what to do here; the other jobs do not depend on it.
    Ends("yaml/ro_crate_provenance.yaml", [4, 1, 0]),
    Ends("yaml/sample_workflow.yaml", [3, 0, 0]),
    Ends("yaml/simple_retry.yaml", [2, 0, 0]),
    Ends("yaml/simulation_sweep.yaml", [49, 0, 0]),
    Ends("yaml/stdio_configuration.yaml", [4, 0, 0]),
    Ends("yaml/variables_demo.yaml", [6, 0, 0]),
    Ends("yaml/workflow_actions_data_pipeline.yaml", [14, 0, 0]),
    Ends("yaml/workflow_actions_ml_training.yaml", [10, 0, 0]),
    Ends("yaml/workflow_actions_simple.yaml", [3, 0, 0]),
    Ends("yaml/zip_parameter_mode.yaml", [8, 0, 0]),
];

/// Examples that are not executed here, and why.
const NOT_HERE: &[(&str, &str)] = &[
    ("slurm", "asks for nodes of a cluster"),
    ("chained_allocations", "asks for nodes of a cluster"),
    ("single_allocation_mpi_stages", "asks for nodes of a cluster"),
    ("subgraphs_workflow.", "asks for nodes of a cluster"),
    ("kdl/workflow_actions_data_pipeline", "sleeps for 20 s; its other formats run"),
    ("multi_stage_barrier_pattern", "starts 2,104 programs"),
    ("resource_monitoring_demo", "computes for a minute"),
    ("direct_mode_checkpointing", "trains for minutes, into `/workspace`"),
    ("dynamic_orchestrator_local", "a test of its own runs it with its Python client"),
    ("labeled_jobs", "a test of its own brings the runners that it wants"),
];

/// Stands in for programs that the examples call and do not bring. `outputs` has a line per job and file.
const STAND_IN: &str = r#"#!/bin/bash
case $0 in
    */python | */python3) [[ $1 == -* || -f $1 ]] && exec "$EXAMPLE_PYTHON" "$@" ;;
    */wget)
        while [[ $# -gt 0 ]]; do
            [[ $1 == -O ]] && { mkdir -p "$(dirname "$2")"; tar -czf "$2" --files-from /dev/null; }
            shift
        done ;;
esac
grep -s "^$TORC_JOB_NAME	" "$HOME/outputs" | cut -f 2 | while read -r path; do
    mkdir -p "$(dirname "$path")"
    echo made > "$path"
done
"#;

/// Directories at the root that examples write to: below the test's directory instead.
const ROOTED: &str =
    "Users|data|results|models|reports|workspace|configs|logs|analysis|scripts|shared|projects";

fn list(value: &Value, key: &str) -> Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no list: {value}")).clone()
}

/// A directory with the examples, the stand-ins, and the input files that this one needs.
fn prepared(lab: &Path, file: &str) -> Test {
    let test = Test::new().file("stand-in", STAND_IN).file("seed", "RANDOM=7\n");
    test.shell(&format!(
        r#"set -e
        cp -r "$LAB/examples" .
        chmod +x stand-in
        mkdir -p bin scripts tests/scripts archives
        for name in bin/{{python,python3,wget,curl,aws}} scripts/{{prep,work,post,aggregate}}.sh run_simulation \
            tests/scripts/{{preprocess,postprocess,work}}.sh; do cp stand-in $name; done
        cp examples/scripts/conda_setup.sh scripts/
        sed -i -E "s#([ \"'=])/({ROOTED})/#\1made/\2/#g" "examples/{file}""#
    ))
    .env("LAB", lab)
    .success();
    let first = |call: &[&str]| test.torc([&["--dir", "first", "-f", "json"], call].concat());
    first(&["create", &format!("examples/{file}")]).success();
    for file in list(&first(&["files", "list-required-existing"]).success().json(), "items") {
        let path = test.path(text(&file["path"]));
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, "a,b\n").expect("an input");
    }
    let files = list(&first(&["files", "list"]).success().json(), "items");
    let paths: HashMap<&str, &str> =
        files.iter().map(|file| (text(&file["name"]), text(&file["path"]))).collect();
    let relations = list(&first(&["job-dependencies", "job-file"]).success().json(), "relations");
    let outputs = relations.iter().filter(|one| one["kind"] == "output_file");
    let lines = outputs
        .map(|one| format!("{}\t{}\n", text(&one["job_name"]), paths[text(&one["item_name"])]));
    test.write("outputs", &lines.collect::<String>());
    test
}

/// Runs an example to its end. `RANDOM` of its shell scripts begins the same each time (`BASH_ENV`), so that jobs which fail
/// by chance fail by the same chance.
fn executed(lab: &Path, file: &str) -> ([i64; 3], String) {
    let test = prepared(lab, file);
    let programs = Path::new(TORC).parent().expect("a directory").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let done = test
        .torc(["run", &format!("examples/{file}"), "--ignore-resources", "-j", "8"])
        .env("PATH", format!("{}:{programs}:{path}", test.path("bin").display()))
        .env("EXAMPLE_PYTHON", lab.join("python/bin/python"))
        .env("BASH_ENV", test.path("seed"))
        .done();
    let counts = test.torc(["-f", "json", "status"]).success().json()["counts"].clone();
    let ends = ["completed", "failed", "canceled"].map(|end| counts[end].as_i64().unwrap_or(0));
    let code = if ends[1] + ends[2] == 0 { 0 } else { 1 };
    assert_eq!(done.code, Some(code), "{file}: {counts}\n{}", done.stderr);
    (ends, done.stderr)
}

/// A part of the examples; parts run side by side.
fn part_ends_as_told(part: usize, parts: usize) {
    let Some(lab) = torc_1_0_lab() else { return };
    let mut wrong = Vec::new();
    for Ends(file, expected) in EXAMPLES.iter().skip(part).step_by(parts) {
        let (ends, said) = executed(&lab, file);
        if ends != *expected {
            wrong.push(format!("{file}: {ends:?}, and not {expected:?}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn examples_end_as_their_documents_say_1_of_4() {
    part_ends_as_told(0, 4);
}

#[test]
fn examples_end_as_their_documents_say_2_of_4() {
    part_ends_as_told(1, 4);
}

#[test]
fn examples_end_as_their_documents_say_3_of_4() {
    part_ends_as_told(2, 4);
}

#[test]
fn examples_end_as_their_documents_say_4_of_4() {
    part_ends_as_told(3, 4);
}

#[test]
fn no_example_is_forgotten() {
    let Some(lab) = torc_1_0_lab() else { return };
    let all =
        specs(&lab).into_iter().filter_map(|f| f.strip_prefix("examples/").map(str::to_owned));
    for file in all {
        let is_run = EXAMPLES.iter().any(|Ends(run, _)| *run == file);
        let is_left_out = NOT_HERE.iter().any(|(part, _)| file.contains(part));
        assert!(is_run || is_left_out, "{file} is neither executed nor left out for a reason");
    }
}

/// Its jobs want runners with labels: a plain runner leaves them, one that has all labels of a job takes it.
#[test]
fn labeled_jobs_go_to_runners_with_their_labels() {
    let Some(lab) = torc_1_0_lab() else { return };
    let test = prepared(&lab, "yaml/labeled_jobs.yaml");
    test.torc(["run", "examples/yaml/labeled_jobs.yaml", "-j", "8"]).exit(1);
    assert_eq!(test.statuses()[4..], ["postprocess ready", "render blocked"]);
    test.torc(["run", "1", "--label", "windows", "--label", "gpu"]).exit(0);
    assert!(test.statuses().iter().all(|job| job.ends_with(" completed")), "{:?}", test.statuses());
}

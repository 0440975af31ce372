//! Moving: a workflow with its past from one server to another, and specs out of what people have.

use crate::support::{Test, text};
use serde_json::{Value, json};
use torc_model::api::UpdateJob;
use torc_model::units::{Memory, Runtime};

fn json(test: &Test, call: &[&str]) -> Value {
    test.torc([&["-f", "json"], call].concat()).success().json()
}

const PAST: &str = "\
name: past
use_pending_failed: true
files: [{name: out, path: out.txt}]
user_data: [{name: note}]
failure_handlers:
  - {name: again, rules: [{exit_codes: [9], max_retries: 3}]}
jobs:
  - {name: a, command: 'echo hi > out.txt; torc user-data update note 5', output_files: [out], output_user_data: [note]}
  - {name: b, command: 'test $TORC_ATTEMPT_ID = 2 || exit 9', failure_handler: again, depends_on: [a]}
  - {name: c, command: 'exit 4', depends_on: [a]}
  - {name: d, command: 'true', depends_on: [c]}
  - {name: 't_{i}', command: 'true', parameters: {i: '1:3'}}
";

/// What must be the same on both sides: everything but ids and paths.
fn told(test: &Test, workflow: &str) -> Value {
    let jobs = json(test, &["jobs", "list", workflow]);
    let pick = |row: &Value, keys: &[&str]| -> Value {
        keys.iter()
            .map(|key| ((*key).to_owned(), row[*key].clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let of = |list: &Value, keys: &[&str]| -> Vec<Value> {
        list["items"].as_array().expect("a list").iter().map(|row| pick(row, keys)).collect()
    };
    let results = json(test, &["results", "list", workflow, "--all-runs"]);
    let history = [
        "job_name",
        "run_id",
        "attempt_id",
        "state",
        "return_code",
        "ended_ms",
        "cause",
        "origin",
        "stderr_tail",
    ];
    json!({
        "jobs": of(&jobs, &["name", "status", "status_reason", "attempt_id", "return_code", "num_cpus", "family"]),
        "results": of(&results, &history),
        "data": of(&json(test, &["user-data", "list", workflow]), &["name", "data"]),
        "status": pick(&json(test, &["status", workflow]), &["counts", "run_id", "is_complete"]),
    })
}

#[test]
fn a_workflow_moves_with_its_past() {
    let here = Test::new().spec(PAST);
    here.run();
    here.torc(["jobs", "update", "t_2", "--cpus", "2"]).success();
    here.torc(["workflows", "export", "--full", "-o", "all.json"]).success();
    let there = Test::new().file("all.json", &here.read("all.json"));
    there.torc(["exec", "-c", "true"]).success();
    let made = json(&there, &["workflows", "import", "all.json"]);
    assert_eq!((made["id"].as_i64(), made["job_count"].as_i64()), (Some(2), Some(7)));
    assert_eq!(told(&here, "1"), told(&there, "2"));
    // Events came along, verdicts too, and a second export says the same as the first.
    let kinds = |test: &Test, workflow: &str| -> Vec<String> {
        let events = json(test, &["events", workflow]);
        let list = events["events"].as_array().expect("a list").clone();
        list.iter()
            .filter(|e| e["job_id"].is_number())
            .map(|e| text(&e["kind"]).to_owned())
            .collect()
    };
    assert_eq!(kinds(&here, "1"), kinds(&there, "2"));
    // It goes on there: the verdict, and what waits for it.
    there.torc(["jobs", "classify", "2/c", "--fail", "--reason", "known"]).success();
    assert_eq!(json(&there, &["status", "2"])["counts"]["canceled"], 1);
    there.torc(["jobs", "update", "2/c", "--command", "true"]).success();
    there.torc(["run", "2"]).success();
    assert_eq!(json(&there, &["status", "2"])["counts"]["completed"], 7);
    there.torc(["server", "doctor"]).success();
    there.torc(["workflows", "import", "all.json", "--name", "other", "--without-past"]).success();
    assert_eq!(json(&there, &["status", "other"])["run_id"], 0);
}

/// What may be changed of a job, with a value for each that is not the usual one. No field is left out,
/// so that a new one is tried by the test below.
fn changes_of_a_job() -> Value {
    json!(UpdateJob {
        status: None,
        reason: None,
        by: None,
        priority: Some(4),
        held: None,
        memory: Some(Memory(2 << 30)),
        runtime: Some(Runtime(7200)),
        num_cpus: Some(3),
        num_gpus: Some(1),
    })
}

#[test]
fn changes_of_a_job_are_shown_exported_and_imported() {
    let changes = changes_of_a_job();
    let changes = changes.as_object().expect("fields");
    let here =
        Test::new().spec("name: w\njobs: [{name: a, command: 'true', cpus: 2, memory: 1g}]\n");
    here.torc(["create", "workflow.yaml"]).success();
    for (field, value) in changes {
        let option = format!("--{}", field.replace('_', "-"));
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        here.torc(["jobs", "update", "a", &option, &value]).success();
    }
    here.torc(["workflows", "export", "1", "-o", "spec.json"]).success();
    here.torc(["workflows", "export", "1", "--full", "-o", "all.json"]).success();
    here.torc(["create", "spec.json"]).success();
    let there = Test::new().file("all.json", &here.read("all.json"));
    there.torc(["workflows", "import", "all.json"]).success();
    for (test, workflow) in [(&here, "1"), (&here, "2"), (&there, "1")] {
        let job = json(test, &["jobs", "get", "a", "-w", workflow]);
        for (field, value) in changes {
            assert_eq!(job[field], *value, "{field} in {workflow}");
        }
    }
}

#[test]
fn what_had_not_ended_runs_after_the_move() {
    let here = Test::new().spec("name: half\njobs:\n  - {name: a, command: 'exit 3'}\n  - {name: b, command: 'echo b > b.txt'}\n  - {name: c, command: 'true'}\n");
    here.torc(["create", "workflow.yaml"]).success();
    here.torc(["jobs", "hold", "b", "c"]).success();
    here.torc(["run", "1", "--time-limit", "5s"]).done();
    here.torc(["workflows", "export", "--full", "-o", "half.json"]).success();
    let there = Test::new().file("half.json", &here.read("half.json"));
    there.torc(["workflows", "import", "half.json"]).success();
    there.torc(["jobs", "release", "b", "c"]).success();
    there.torc(["run", "1"]).done();
    let counts = json(&there, &["status", "1"])["counts"].clone();
    assert_eq!((counts["completed"].as_i64(), counts["failed"].as_i64()), (Some(2), Some(1)));
    assert_eq!(json(&there, &["jobs", "attempts", "a"])["total_count"], 1);
    there.torc(["server", "doctor"]).success();
}

#[test]
fn other_files_are_refused_as_exports() {
    let test =
        Test::new().spec(PAST).file("new.json", "{\"torc_export\": 99}").file("bad.json", "{");
    test.torc(["workflows", "import", "workflow.yaml"]).exit(2).tells("is not JSON");
    test.torc(["workflows", "import", "new.json"]).exit(2).tells("version 99");
    test.torc(["workflows", "import", "bad.json"]).exit(2).tells("is not JSON");
}

#[test]
fn an_export_of_torc_1_0_becomes_a_workflow() {
    let export = json!({
        "export_version": "1.0", "exported_at": "2026-11-01T00:00:00Z",
        "workflow": {"id": 7, "name": "old", "user": "ann", "run_id": 2, "description": "moved", "env": {"X": "1"}},
        "files": [{"id": 3, "workflow_id": 7, "name": "f", "path": "f.txt", "st_mtime": 1.5}],
        "user_data": [{"id": 9, "workflow_id": 7, "name": "u", "data": {"k": 1}, "is_ephemeral": false}],
        "resource_requirements": [{"id": 4, "workflow_id": 7, "name": "r", "num_cpus": 1, "num_gpus": 0, "num_nodes": 1, "memory": "64m", "runtime": "PT1M"}],
        "slurm_schedulers": [], "local_schedulers": [],
        "failure_handlers": [{"id": 5, "workflow_id": 7, "name": "h", "rules": "[{\"exit_codes\": [3], \"max_retries\": 2}]"}],
        "jobs": [
            {"id": 11, "workflow_id": 7, "name": "a", "command": "echo x > f.txt", "status": "completed", "output_file_ids": [3], "resource_requirements_id": 4, "attempt_id": 1},
            {"id": 12, "workflow_id": 7, "name": "b", "command": "cat f.txt", "status": "ready", "depends_on_job_ids": [11], "input_file_ids": [3], "input_user_data_ids": [9], "failure_handler_id": 5},
        ],
        "workflow_actions": [{"id": 1, "workflow_id": 7, "trigger_type": "on_workflow_complete", "action_type": "run_commands", "action_config": {"commands": ["echo over"]}, "trigger_count": 0, "required_triggers": 1, "executed": false, "persistent": false, "is_recovery": false}],
        "results": [{"id": 1, "job_id": 11, "workflow_id": 7, "run_id": 2, "attempt_id": 1, "compute_node_id": 1, "return_code": 0, "exec_time_minutes": 0.5, "completion_time": "2026-11-01T10:00:00Z", "status": "completed", "peak_memory_bytes": 1000}],
    });
    let test = Test::new().file("old.json", &export.to_string()).file("f.txt", "x\n");
    test.torc(["workflows", "import", "old.json"])
        .success()
        .says("created workflow 1 `old`: 2 jobs");
    assert_eq!(test.statuses(), ["a completed", "b uninitialized"]);
    let result = json(&test, &["results", "list", "1", "--all-runs"])["items"][0].clone();
    assert_eq!((result["exec_seconds"].as_f64(), text(&result["job_name"])), (Some(30.0), "a"));
    test.torc(["run", "1"]).success();
    assert_eq!(test.statuses(), ["a completed", "b completed"]);
}

#[test]
fn an_array_script_becomes_a_spec_that_runs() {
    let script = "#!/bin/bash\n#SBATCH --job-name=sweep\n#SBATCH --array=1-5:2%2\n#SBATCH -c 2 --mem-per-cpu=50M\n#SBATCH --time=00:10:00\n#SBATCH --account=abc --dependency=afterok:1\necho \"$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT $1\" > out_$SLURM_ARRAY_TASK_ID\n";
    let test = Test::new().file("job.sh", script);
    test.torc(["import", "sbatch", "job.sh", "-o", "workflow.yaml", "--", "it's"])
        .success()
        .tells("not taken over: `--dependency`")
        .tells("torc slurm generate");
    test.torc(["run", "workflow.yaml", "--ignore-resources"]).success();
    assert_eq!(test.statuses(), ["sweep_1 completed", "sweep_3 completed", "sweep_5 completed"]);
    assert_eq!(test.read("out_3"), "3 of 3 it's\n");
    let job = json(&test, &["jobs", "get", "sweep_5"]);
    assert_eq!(
        (job["num_cpus"].as_i64(), text(&job["memory"]), text(&job["runtime"])),
        (Some(2), "100m", "PT10M")
    );
    assert_eq!(json(&test, &["limits", "list"])["items"][0]["max"], 2);
    test.torc(["import", "sbatch", "job.sh", "-o", "workflow.yaml"])
        .exit(2)
        .tells("is there already");
}

#[test]
fn lines_of_parallel_and_xargs_become_specs_that_run() {
    let test = Test::new().file("names", "one\ntwo words\n");
    test.torc([
        "import",
        "parallel",
        "parallel -j2 'echo {1}-{2} > {1}_{#}' ::: a b ::: x",
        "-o",
        "p.yaml",
    ])
    .success();
    test.torc(["run", "p.yaml"]).success();
    assert_eq!((test.read("a_1"), test.read("b_2")), ("a-x\n".into(), "b-x\n".into()));
    test.torc(["import", "xargs", "xargs -P2 -I{} touch 'got {}' -a names", "-o", "x.yaml"])
        .exit(2);
    test.torc(["import", "xargs", "xargs -P2 -a names -I{} touch 'got {}'", "-o", "x.yaml"])
        .success();
    test.torc(["run", "x.yaml"]).success();
    assert!(test.exists("got two words") && test.exists("got one"));
    test.torc(["import", "parallel", "parallel --pipe wc"])
        .exit(2)
        .tells("`--pipe` of parallel is not known here");
}

#[test]
fn wfformat_goes_out_and_comes_back() {
    let test = Test::new().spec("name: wf\nfiles: [{name: f, path: f.txt}]\njobs:\n  - {name: a, command: 'echo {{x}} > f.txt', output_files: [f]}\n  - {name: b, command: cat f.txt, input_files: [f]}\n");
    test.run().expect(0);
    test.torc(["export", "wfformat", "-o", "wf.json"]).success();
    let wf: Value = serde_json::from_str(&test.read("wf.json")).expect("JSON");
    let tasks = &wf["workflow"]["specification"]["tasks"];
    assert_eq!((text(&tasks[1]["parents"][0]), text(&tasks[0]["children"][0])), ("a", "b"));
    let again = Test::new().file("wf.json", &test.read("wf.json"));
    again.torc(["import", "wfformat", "wf.json", "-o", "again.yaml"]).success();
    again.torc(["run", "again.yaml"]).success();
    assert_eq!(again.statuses(), ["a completed", "b completed"]);
    let sleepy = again.torc(["import", "wfformat", "wf.json", "--sleep"]).success();
    assert!(sleepy.stdout.contains("command: sleep 0"), "{}", sleepy.stdout);
}

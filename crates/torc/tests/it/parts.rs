//! Parts of a spec that commands read and change: files, requirements, schedulers, actions, jobs.

use crate::support::{Test, text};
use serde_json::Value;

const SPEC: &str = "\
name: parts
files:
  - {name: raw, path: raw.txt}
  - {name: clean, path: clean.txt}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 64m, runtime: 10m}
slurm_schedulers:
  - {name: big, account: a, nodes: 1, walltime: '01:00:00'}
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: [echo begun > begun.txt]}
user_data:
  - {name: note, data: {x: 1}}
jobs:
  - {name: make, command: cp raw.txt clean.txt, input_files: [raw], output_files: [clean], resource_requirements: small}
  - {name: use, command: 'cat ${files.input.clean}', resource_requirements: small, input_user_data: [note]}
  - {name: 't_{i}', command: 'echo {i}', parameters: {i: '1:3'}}
";

fn ran() -> Test {
    let test = Test::new().spec(SPEC).file("raw.txt", "data\n");
    test.run().expect(0);
    test
}

fn json(test: &Test, call: &[&str]) -> Value {
    test.torc([&["-f", "json"], call].concat()).success().json()
}

#[test]
fn files_are_listed_changed_and_taken_out() {
    let test = ran();
    let files = json(&test, &["files", "list"]);
    assert_eq!((files["total_count"].as_i64(), files["items"] == files["files"]), (Some(2), true));
    let clean = json(&test, &["files", "get", "clean"]);
    assert_eq!((text(&clean["written_by"][0]), text(&clean["read_by"][0])), ("make", "use"));
    assert_eq!(json(&test, &["files", "list", "--produced-by", "make"])["total_count"], 1);
    let needed = json(&test, &["files", "list-required-existing"]);
    assert_eq!(
        (text(&needed["files"][0]["name"]), &needed["files"][0]["exists"]),
        ("raw", &true.into())
    );
    // Nothing happens in a dry run.
    let plan = json(&test, &["files", "update", "clean", "--path", "c2.txt", "--dry-run"]);
    assert_eq!((plan["dry_run"] == true, plan["revision"] == 1), (true, true));
    // The name is another everywhere, also inside of commands.
    test.torc(["files", "update", "clean", "--name", "tidy"])
        .success()
        .says("changed file `clean`");
    let spec = json(&test, &["workflows", "export"]).to_string();
    assert!(spec.contains("${files.input.tidy}") && !spec.contains("\"clean\""), "{spec}");
    test.torc(["files", "create", "--name", "more", "--path", "more.txt"]).success();
    test.torc(["files", "delete", "more"]).success();
    test.torc(["files", "get", "tidi"]).exit(2).tells("did you mean `tidy`?");
    test.torc(["files", "delete", "raw"]).exit(2).tells("raw");
    test.torc(["workflows", "history"]).success().says("4");
}

#[test]
fn requirements_and_jobs_get_other_needs() {
    let test = ran();
    let calls = ["resource-requirements", "update", "small", "--memory", "128m", "--num-cpus", "2"];
    test.torc(calls).success().says("changed resource requirements `small`");
    let job = json(&test, &["jobs", "get", "use"]);
    assert_eq!((job["num_cpus"].as_i64(), text(&job["memory"])), (Some(2), "128m"));
    // One job of its own, and it stays so when the spec is applied again.
    let job = json(&test, &["jobs", "update", "t_2", "--cpus", "3", "--gpus", "0"]);
    assert_eq!(job["num_cpus"], 3);
    test.torc(["resource-requirements", "update", "small", "--runtime", "20m"]).success();
    assert_eq!(json(&test, &["jobs", "get", "t_2"])["num_cpus"], 3);
    test.torc(["jobs", "update", "t_2", "--cpus", "0"]).exit(2).tells("more than zero");
    // A spec that says something new wins.
    let mut spec = json(&test, &["workflows", "export"]);
    let jobs = spec["jobs"].as_array_mut().expect("a list");
    let entry = jobs.iter_mut().find(|job| job["name"] == "t_{i}").expect("it is there");
    entry["resource_requirements"] = "small".into();
    test.write("new.json", &spec.to_string());
    test.torc(["workflows", "reinitialize", "--spec", "new.json"]).success();
    assert_eq!(json(&test, &["jobs", "get", "t_2"])["num_cpus"], 2);
    let adjusted = json(&test, &["why", "t_2"]);
    assert!(adjusted.to_string().contains("num_cpus"), "{adjusted}");
}

#[test]
fn a_command_is_changed_for_all_jobs_of_an_entry() {
    let test = ran();
    test.torc(["jobs", "update", "t_1", "--command", "echo other"])
        .exit(2)
        .tells("the entry of the spec that makes t_1 (job 3 of workflow 1) makes t_2")
        .tells("name all jobs of the entry");
    test.torc(["jobs", "update", "t_1", "t_2", "t_3", "--command", "echo other {i}"]).success();
    assert_eq!(text(&json(&test, &["jobs", "get", "t_3"])["command"]), "echo other 3");
    test.torc(["jobs", "update", "use", "--label", "gpu", "--label", "big"]).success();
    test.torc(["jobs", "update", "use", "--no-labels"]).success();
    test.torc(["jobs", "update", "use"]).exit(2).tells("nothing to change");
    test.torc(["run", "1"]).success();
    let statuses = test.statuses();
    assert!(statuses.iter().all(|job| job.ends_with(" completed")), "{statuses:?}");
    assert_eq!(json(&test, &["jobs", "attempts", "t_3"])["total_count"], 2);
    assert_eq!(json(&test, &["jobs", "attempts", "make"])["total_count"], 1);
}

#[test]
fn schedulers_and_actions_are_changed() {
    let test = ran();
    test.torc(["slurm", "schedulers", "update", "big", "--walltime", "02:00:00"]).success();
    let big = json(&test, &["slurm", "schedulers", "get", "big"]);
    assert_eq!(text(&big["walltime"]), "02:00:00");
    // The words of Torc 1.0.0 mean the same.
    assert_eq!(json(&test, &["slurm", "list", "1"])["total_count"], 1);
    let actions = json(&test, &["workflows", "list-actions", "1"]);
    let id = actions["actions"][0]["id"].to_string();
    test.torc(["workflows", "update-action", "1", &id, "--command", "echo anew"]).success();
    let actions = json(&test, &["workflows", "list-actions", "1"]);
    assert_eq!(actions["actions"][0]["what"]["commands"][0], "echo anew");
    let id = actions["actions"][0]["id"].to_string();
    test.torc(["workflows", "update-action", "1", "999", "--command", "x"])
        .exit(2)
        .tells("no action 999");
    test.torc(["workflows", "delete-action", "1", &id]).success();
    assert_eq!(json(&test, &["workflows", "list-actions", "1"])["total_count"], 0);
}

#[test]
fn a_workflow_is_renamed_archived_and_asked_whether_it_is_over() {
    let test = ran();
    test.torc(["workflows", "is-complete", "1"]).success().says("is complete");
    test.torc(["workflows", "reset-status", "1"]).success();
    test.torc(["workflows", "is-complete", "1"]).exit(1).says("is not complete");
    let call =
        ["workflows", "update", "1", "--name", "new", "--project", "p", "--metadata", "{\"a\": 1}"];
    let view = json(&test, &call);
    assert_eq!((text(&view["name"]), &view["metadata"]["a"]), ("new", &1.into()));
    test.torc(["workflows", "update", "1"]).exit(2).tells("nothing to change");
    test.torc(["workflows", "archive", "true", "1"]).success();
    assert_eq!(json(&test, &["workflows", "list"])["total_count"], 0);
    test.torc(["workflows", "archive", "false", "1"]).success();
    assert_eq!(json(&test, &["workflows", "list"])["items"][0]["name"], "new");
    assert_eq!(json(&test, &["status", "1"])["jobs_by_status"]["completed"], 0);
}

#[test]
fn what_depends_on_what_is_listed() {
    let test = ran();
    let pairs = |kind: &str| -> Vec<String> {
        let list = json(&test, &["job-dependencies", kind]);
        let rows = list["relations"].as_array().expect("a list");
        rows.iter()
            .map(|r| {
                format!("{} {} {}", text(&r["job_name"]), text(&r["kind"]), text(&r["item_name"]))
            })
            .collect()
    };
    assert_eq!(pairs("job-job"), ["use depends_on make"]);
    assert_eq!(
        pairs("job-file"),
        ["make input_file raw", "make output_file clean", "use input_file clean"]
    );
    assert_eq!(pairs("job-user-data"), ["use input_user_data note"]);
    assert_eq!(json(&test, &["compute-nodes", "get", "1"])["id"], 1);
}

#[test]
fn corrections_take_factors_and_a_choice() {
    let test = Test::new().spec(
        "name: c\nresource_requirements: [{name: r, memory: 1g, runtime: PT1S}]\njobs:\n  - {name: a, command: sleep 1.2, resource_requirements: r}\n  - {name: b, command: sleep 1.2, resource_requirements: r}\n",
    );
    test.run().expect(0);
    let plan = json(&test, &["reports", "correct", "--dry-run", "--runtime-multiplier", "10"]);
    assert_eq!((plan["changed"].as_i64(), plan["dry_run"] == true), (Some(0), true));
    assert!(text(&plan["items"][0]["suggested_runtime"]) >= "PT12S", "{plan}");
    let done = json(&test, &["reports", "correct", "--job", "a", "--no-downsize"]);
    assert_eq!(done["changed"], 1);
    assert_eq!(text(&json(&test, &["jobs", "get", "b"])["runtime"]), "PT1S");
    assert_ne!(text(&json(&test, &["jobs", "get", "a"])["runtime"]), "PT1S");
    test.torc(["reports", "correct", "--memory-multiplier", "0.5"]).exit(2).tells("from 1 to 100");
}

#[test]
fn a_bundle_holds_everything_and_its_logs_are_understood() {
    let test = Test::new().spec(
        "name: sick\njobs:\n  - {name: a, command: 'echo fine'}\n  - {name: b, command: 'echo \"OSError: [Errno 28] No space left on device\" >&2; exit 1'}\n",
    );
    test.run().expect(1);
    let bundle = json(&test, &["logs", "bundle"]);
    assert_eq!(text(&bundle["file"]), "torc_wf1.tar.gz");
    // The tar of the system reads it.
    let names = test.shell("tar tzf torc_wf1.tar.gz").success().stdout;
    for name in [
        "spec.json",
        "attempts.json",
        "events.json",
        "user_data.json",
        "job_stdio/job_wf1_j2_r1_a1.e",
    ] {
        assert!(names.contains(&format!("torc_wf1/{name}")), "{names}");
    }
    test.shell("tar xzf torc_wf1.tar.gz && cmp torc_wf1/job_stdio/job_wf1_j2_r1_a1.e output/job_stdio/job_wf1_j2_r1_a1.e")
        .success();
    // Without a server.
    for path in ["torc_wf1.tar.gz", "output", "output/job_stdio/job_wf1_j2_r1_a1.e"] {
        let found = test
            .torc(["-f", "json", "logs", "analyze", path])
            .env("TORC_DIR", "nowhere")
            .success()
            .json();
        assert_eq!(found["total_count"], 1, "{path}: {found}");
        assert!(text(&found["findings"][0]["line"]).contains("No space left"), "{found}");
    }
    test.torc(["logs", "analyze", "missing"]).exit(2).tells("missing");
    test.torc(["logs", "a"]).success().says("fine");
}

#[test]
fn partitions_are_matched() {
    let test = Test::new();
    let found = json(
        &test,
        &["hpc", "match", "dane", "--cpus", "8", "--memory", "10g", "--walltime", "4:00:00"],
    );
    assert_eq!(text(&found["best_partition"]["name"]), "pbatch");
    let gpus = json(&test, &["hpc", "partitions", "kestrel", "--gpu"]);
    assert_eq!(gpus["total_count"], 3);
    test.torc(["hpc", "match", "dane", "--gpus", "1"]).exit(2).tells("a node has 0");
}

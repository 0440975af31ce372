//! Workflows on a real Slurm cluster, and what becomes of them when it breaks.
//!
//! `scripts/slurm-lab start` makes the cluster. Each job writes a line of its own at its end: the
//! witness. However often attempts were lost, in the end there is one line per job.

mod cases;
mod chains;
mod checkpoint;
mod cluster;
mod everyday;
mod many_nodes;
mod places;
mod recovery;
mod steps;
mod unanswered;
mod unneeded;

use cluster::{cluster, has, is_campaign};
use serde_json::Value;

const WITNESS: &str = "echo $TORC_JOB_NAME >> witness";

/// `count` jobs of one CPU that take some seconds, in one allocation.
fn spec(partition: &str, count: usize, seconds: f64, more: &str) -> String {
    format!(
        "name: w
resource_requirements: [{{name: small, num_cpus: 1, memory: 200m, runtime: 1m}}]
slurm_schedulers:
  - {{name: s, account: a, partition: {partition}, nodes: 1, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}}
jobs:
  - {{name: 'j{{i}}', command: 'sleep {seconds} && {WITNESS}', resource_requirements: small, scheduler: s, max_lost_retries: 99, parameters: {{i: '1:{count}'}}}}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1}}
{more}
"
    )
}

#[test]
fn two_hundred_jobs_in_two_stages_run_once_each_over_three_nodes() {
    let Some(cluster) = cluster() else { return };
    let text = format!(
        "name: stages
resource_requirements: [{{name: small, num_cpus: 1, memory: 200m, runtime: 30s}}]
jobs:
  - {{name: 'first_{{i}}', command: 'sleep 0.2; {WITNESS}', resource_requirements: small, parameters: {{i: '1:160'}}}}
  - {{name: 'second_{{i}}', command: 'test $(grep -c first_ witness) = 160 && {WITNESS}', resource_requirements: small,
     depends_on_regexes: ['first_.*'], parameters: {{i: '1:40'}}}}
"
    );
    std::fs::write(cluster.dir.path().join("stages.yaml"), text).expect("written");
    let generate = [
        "slurm",
        "generate",
        "stages.yaml",
        "--account",
        "a",
        "--max-allocations",
        "3",
        "-o",
        "spec.yaml",
    ];
    cluster.torc(&generate);
    let generated =
        std::fs::read_to_string(cluster.dir.path().join("spec.yaml")).expect("generated");
    cluster.submit(&generated);
    cluster.wait_for_success(200, 180);
    cluster.assert_witnessed_once(200);
    let nodes = cluster.allocations().iter().filter(|a| !a["started_ms"].is_null()).count();
    assert!(nodes >= 3, "{:?}", cluster.allocations());
}

#[test]
fn a_gpu_stage_gets_nodes_with_gpus_and_each_job_one_of_its_own() {
    let Some(cluster) = cluster() else { return };
    let text = "name: stages
resource_requirements:
  - {name: plain, num_cpus: 1, memory: 200m, runtime: 30s}
  - {name: gpu, num_cpus: 1, num_gpus: 1, memory: 200m, runtime: 30s}
jobs:
  - {name: prepare, command: 'echo none$CUDA_VISIBLE_DEVICES >> witness', resource_requirements: plain}
  - {name: 'g{i}', command: 'echo $CUDA_VISIBLE_DEVICES >> witness; sleep 3', resource_requirements: gpu,
     depends_on: [prepare], parameters: {i: '1:2'}}
";
    std::fs::write(cluster.dir.path().join("stages.yaml"), text).expect("written");
    cluster.torc(&["slurm", "generate", "stages.yaml", "--account", "a", "-o", "spec.yaml"]);
    let generated =
        std::fs::read_to_string(cluster.dir.path().join("spec.yaml")).expect("generated");
    assert!(generated.contains("gpu:2"), "{generated}");
    cluster.submit(&generated);
    cluster.wait_for_success(3, 90);
    let seen = cluster.witnesses();
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), ["0", "1", "none"], "{seen:?}");
}

#[test]
fn a_canceled_allocation_costs_nothing_but_time() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(
        &spec("main", 4, 6.0, "").replace("mem: 1500m", "mem: 1500m, extra: '--comment=kept'"),
    );
    cluster.wait_for_running(4);
    let healthy = cluster.json(&["workflows", "sync-status", "latest"]);
    assert_eq!(healthy["slurm"]["allocations_ended"], 0, "{healthy}");
    assert_eq!(cluster.counts().get("running"), Some(&4), "looking changes nothing");
    cluster.slurm("scancel", &[&cluster.slurm_job()]);
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    cluster.wait("ready job", 60, || cluster.counts().get("ready") == Some(&4));
    cluster.regenerate(&[]);
    cluster.wait_for_success(4, 90);
    cluster.assert_witnessed_once(4);
    let causes: Vec<_> =
        cluster.attempts().into_iter().map(|a| a.3).filter(|c| !c.is_empty()).collect();
    assert!(causes.len() == 4 && causes.iter().all(|c| c == "stopped"), "{causes:?}");
    cluster.wait_for_cause("stopped", 4, "the allocation was canceled");
    cluster.wait("Slurm's word", 60, || cluster.allocations()[0]["state"] == "CANCELLED");
    let comment = cluster.slurm("scontrol", &["show", "job", &cluster.slurm_job()]);
    assert!(comment.contains("Comment=kept"), "what the user added stays: {comment}");
}

#[test]
fn a_runner_that_dies_with_its_allocation_is_found_by_asking_slurm() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 2, 8.0, ""));
    cluster.wait_for_running(2);
    // No time for last words: the runner cannot say that it leaves.
    cluster.slurm("kill", &["-KILL", &cluster.runner_pid()]);
    cluster.wait("end in Slurm", 60, || {
        cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
    });
    cluster.torc(&["workflows", "sync-status", "latest"]);
    cluster.wait("ended allocation", 90, || cluster.allocations()[0]["status"] == "complete");
    cluster.wait("ready job", 60, || cluster.counts().get("ready") == Some(&2));
    let lost = cluster.attempts().into_iter().filter(|a| a.3 == "lost").count();
    assert_eq!(lost, 2, "{:?}", cluster.attempts());
    assert_eq!(cluster.allocations()[0]["state"], "FAILED", "{:?}", cluster.allocations());
    cluster.regenerate(&[]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
}

#[test]
fn preemption_by_cancel_is_survived() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("scav", 4, 6.0, ""));
    cluster.wait_for_running(4);
    cluster.slurm(
        "sbatch",
        &["-p", "main", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3"],
    );
    cluster.wait("preempted allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    let reason = cluster.allocations()[0]["reason"].to_string();
    assert!(reason.to_lowercase().contains("preempted"), "{reason}");
    assert!(
        cluster.torc(&["why", "j1"]).contains("the allocation was preempted"),
        "{}",
        cluster.torc(&["why", "j1"])
    );
    cluster.wait_for_cause("preempted", 4, "preempted");
    assert!(
        cluster.torc(&["why", "j1"]).contains("(preempted, "),
        "{}",
        cluster.torc(&["why", "j1"])
    );
    cluster.wait("ready job", 90, || cluster.counts().get("ready") == Some(&4));
    cluster.regenerate(&["--partition", "main"]);
    cluster.wait_for_success(4, 120);
    cluster.assert_witnessed_once(4);
}

#[test]
fn preemption_by_requeue_goes_on_in_the_same_allocation() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("low", 4, 6.0, "slurm_defaults: {requeue: true}"));
    cluster.wait_for_running(4);
    cluster.slurm(
        "sbatch",
        &["-p", "main", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3"],
    );
    cluster.wait_for_cause("preempted", 4, "preempted");
    // Slurm starts it again by itself, so nothing is asked for.
    cluster.wait("requeued allocation", 60, || {
        cluster.torc(&["workflows", "sync-status", "latest"]);
        cluster.allocations()[0]["status"] != "complete"
    });
    cluster.regenerate(&["--partition", "low"]);
    cluster.wait_for_success(4, 120);
    cluster.assert_witnessed_once(4);
    assert_eq!(cluster.allocations().len(), 1);
}

#[test]
fn a_cause_that_the_runner_can_not_see_is_asked_of_slurm() {
    let Some(cluster) = cluster() else { return };
    // The allocation's output goes elsewhere, so that its last words are not where the runner looks
    // for them.
    let text =
        spec("scav", 2, 6.0, "").replace("mem: 1500m", "mem: 1500m, extra: '--error=/dev/null'");
    cluster.submit(&text);
    cluster.wait_for_running(2);
    cluster.slurm(
        "sbatch",
        &["-p", "main", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3"],
    );
    cluster.wait("preempted allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    cluster.torc(&["workflows", "sync-status", "latest"]);
    cluster.wait_for_cause("preempted", 2, "Slurm says PREEMPTED");
    assert_eq!(cluster.allocations()[0]["state"], "PREEMPTED", "{:?}", cluster.allocations());
    cluster.regenerate(&["--partition", "main"]);
    cluster.wait_for_success(2, 120);
    cluster.assert_witnessed_once(2);
}

#[test]
fn a_node_that_goes_down_is_survived() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 2, 6.0, ""));
    cluster.wait_for_running(2);
    let nodes = cluster.slurm("squeue", &["-h", "-t", "R", "-o", "%N"]);
    let node = nodes.trim();
    cluster
        .slurm("scontrol", &["update", &format!("nodename={node}"), "state=down", "reason=test"]);
    cluster.wait("ended allocation", 120, || cluster.allocations()[0]["status"] == "complete");
    cluster.slurm("scontrol", &["update", &format!("nodename={node}"), "state=resume"]);
    cluster.wait_for_cause("node_fail", 2, "node");
    cluster.wait("ready job", 60, || cluster.counts().get("ready") == Some(&2));
    cluster.regenerate(&[]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
}

#[test]
fn an_absent_controller_fails_no_job() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 4, 12.0, ""));
    cluster.wait_for_running(4);
    // Hangs: every query times out.
    assert!(cluster.lab(&["signal", "slurmctld", "STOP"]).status.success());
    let synced = cluster.json(&["workflows", "sync-status", "latest"]);
    assert!(synced["slurm"]["unreachable"].is_string(), "{synced}");
    assert_eq!(cluster.counts().get("running"), Some(&4));
    assert!(cluster.lab(&["signal", "slurmctld", "CONT"]).status.success());
    // Dies, and comes back.
    assert!(cluster.lab(&["signal", "slurmctld", "KILL"]).status.success());
    cluster.wait("dead controller", 30, || cluster.slurm("scontrol", &["ping"]).contains("DOWN"));
    assert!(cluster.lab(cluster.start_arguments()).status.success());
    cluster.wait_for_success(4, 90);
    cluster.assert_witnessed_once(4);
    assert_eq!(cluster.attempts().len(), 4, "no job was retried: {:?}", cluster.attempts());
}

#[test]
fn a_submission_whose_answer_is_lost_is_found_and_not_repeated() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 1, 0.1, ""));
    cluster.wait_for_success(1, 60);
    std::fs::write(cluster.dir.path().join("again.yaml"), spec("main", 2, 0.5, ""))
        .expect("written");
    assert!(cluster.lab(&["signal", "slurmctld", "STOP"]).status.success());
    // sbatch times out, but the controller has its request in its queue.
    let said = cluster.json(&["submit", "again.yaml"]);
    let unknown = said["allocations"][0]["status"] == "submitting";
    assert!(unknown, "{said}");
    assert!(cluster.lab(&["signal", "slurmctld", "CONT"]).status.success());
    cluster.wait_for_success(2, 120);
    let name = cluster.allocations()[0]["name"].as_str().unwrap_or_default().to_owned();
    let jobs = cluster.slurm("squeue", &["-h", "-t", "all", "--name", &name, "-o", "%i"]);
    assert_eq!(jobs.lines().count(), 1, "{jobs}");
}

#[test]
fn a_runner_stops_before_its_walltime_and_the_rest_goes_on_elsewhere() {
    let Some(cluster) = cluster() else { return };
    let text = spec("main", 5, 14.0, "")
        .replace("00:10:00", "00:01:00")
        .replace("runtime: 1m", "runtime: 16s");
    // It is unknown how long this one takes: it does not end in time, and its second try does.
    let open = "test -e again && echo $TORC_JOB_NAME >> witness || { touch again; sleep 300; }";
    let open = format!(
        "  - {{name: open, command: '{open}', resource_requirements: any, scheduler: s, max_lost_retries: 0}}\n"
    );
    let text = text.replace("actions:", &format!("{open}actions:"));
    let text =
        text.replace("requirements: [", "requirements: [{name: any, num_cpus: 1, memory: 200m}, ");
    let text = text.replace("ntasks_per_node: 4", "ntasks_per_node: 2");
    cluster.submit(&text);
    // The others one at a time, 16 s each: not all of them fit into the minute.
    cluster.wait("ended allocation", 120, || cluster.allocations()[0]["status"] == "complete");
    assert_eq!(
        cluster.attempts().iter().filter(|a| a.2 == "failed").count(),
        0,
        "{:?}",
        cluster.attempts()
    );
    assert!(cluster.counts().get("ready").copied().unwrap_or(0) >= 1, "{:?}", cluster.counts());
    cluster.wait_for_cause("walltime", 1, "SIGTERM");
    let why = cluster.torc(&["why", "open"]);
    assert!(why.contains("does not count as a failure") && why.contains("(walltime, "), "{why}");
    cluster.regenerate(&[]);
    cluster.wait_for_success(6, 180);
    cluster.assert_witnessed_once(6);
}

#[test]
fn a_job_over_its_memory_is_out_of_memory_and_leaves_the_others_alone() {
    let Some(cluster) = cluster() else { return };
    if !has("SLURM_LAB_OOM") {
        eprintln!("skipped: this machine has no memory control groups");
        return;
    }
    let hog = "  - {name: hog, command: 'head -c 900m /dev/zero | tail > /dev/null', resource_requirements: small, scheduler: s}\n";
    let text = spec("main", 2, 3.0, "").replace("actions:", &format!("{hog}actions:"));
    cluster.submit(&text);
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&1));
    cluster.wait("the others", 60, || cluster.counts().get("completed") == Some(&2));
    let causes: Vec<_> =
        cluster.attempts().into_iter().filter(|a| a.0 == "hog").map(|a| a.3).collect();
    assert_eq!(causes, ["oom"], "{:?}", cluster.attempts());
}

#[test]
fn watch_asks_for_nodes_when_they_are_gone() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 3, 4.0, ""));
    cluster.wait_for_running(3);
    cluster.slurm("scancel", &[&cluster.slurm_job()]);
    cluster.wait("ready job", 60, || cluster.counts().get("ready") == Some(&3));
    // The first one dies as soon as it has asked for nodes; the second one knows that they are on
    // their way.
    let mut first = cluster.spawn_torc(&["watch", "latest", "--auto-schedule"]);
    cluster.wait("second allocation", 60, || cluster.allocations().len() == 2);
    first.kill().expect("killed");
    first.wait().expect("gone");
    // It ends when the workflow is complete, with 0 only if every job succeeded.
    cluster.torc(&["watch", "latest", "--auto-schedule"]);
    cluster.assert_witnessed_once(3);
    assert_eq!(cluster.allocations().len(), 2);
}

#[test]
fn recover_asks_for_nodes_for_what_failed() {
    let Some(cluster) = cluster() else { return };
    let text = spec("main", 2, 0.2, "").replace(WITNESS, &format!("test -e fixed && {WITNESS}"));
    cluster.submit(&text);
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&2));
    std::fs::write(cluster.dir.path().join("fixed"), "").expect("written");
    cluster.torc(&["recover", "latest", "--retry-unknown"]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
}

#[test]
fn lost_allocations_never_become_two_at_once() {
    let Some(cluster) = cluster() else { return };
    let cycles = if is_campaign() { 30 } else { 3 };
    cluster.submit(&spec("main", 1, 30.0, ""));
    for cycle in 0..cycles {
        cluster.wait("allocation in Slurm", 60, || {
            cluster.allocations().last().is_some_and(|a| a["slurm_job_id"].is_string())
        });
        let names = cluster.slurm("squeue", &["-h", "-o", "%j"]);
        assert!(
            names.lines().filter(|n| n.starts_with("torc-wf")).count() <= 1,
            "cycle {cycle}: {names}"
        );
        cluster.slurm("scancel", &[&cluster.slurm_job()]);
        cluster.wait("end in Slurm", 60, || {
            cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
        });
        cluster.torc(&["workflows", "sync-status", "latest"]);
        let open = |a: &Value| a["status"] != "complete";
        cluster.wait("ended allocation", 60, || !cluster.allocations().iter().any(open));
        cluster.regenerate(&[]);
    }
    assert_eq!(cluster.allocations().len(), cycles + 1);
}

#[test]
fn what_slurm_refuses_is_told_and_leaves_no_server_behind() {
    let Some(cluster) = cluster() else { return };
    std::fs::write(cluster.dir.path().join("spec.yaml"), spec("nowhere", 1, 0.1, ""))
        .expect("written");
    let refused = cluster.try_torc(&["submit", "spec.yaml"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("server that was started for it was stopped again"), "{said}");
    let left = cluster.dir.path().join(".torc/server.json");
    assert!(!left.exists(), "{:?}", std::fs::read_to_string(left));
    let why = cluster.torc(&["why", "j1"]);
    assert!(
        why.contains("Slurm refused") && why.contains("partition") && why.contains("regenerate"),
        "{why}"
    );
}

#[test]
fn a_dry_run_changes_nothing_and_says_why() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 2, 1.0, ""));
    cluster.wait_for_success(2, 60);
    let before = (cluster.allocations(), cluster.json(&["workflows", "get", "latest"]));
    let nothing = cluster.json(&["slurm", "regenerate", "latest", "--account", "a", "--dry-run"]);
    assert_eq!(nothing["pending_jobs"], 0, "{nothing}");
    assert_eq!((cluster.allocations(), cluster.json(&["workflows", "get", "latest"])), before);
    let plan = cluster.json(&["submit", "spec.yaml", "--dry-run"]);
    assert_eq!(plan["total_allocations"], 1, "{plan}");
    let profile = cluster.json(&["hpc", "detect"]);
    assert_eq!(profile["partitions"].as_array().map(Vec::len), Some(5), "{profile}");
    assert!(cluster.torc(&["slurm", "doctor"]).contains("KillWait"));
}

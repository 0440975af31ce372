//! Chains of allocations, plans that Slurm is asked about, and what allocations cost.

use crate::cluster::{cluster, has};
use serde_json::Value;

fn spec(serialize: bool, jobs: &str, allocations: usize) -> String {
    format!(
        "name: w
resource_requirements: [{{name: small, num_cpus: 1, memory: 200m, runtime: 1m}}]
slurm_schedulers:
  - {{name: s, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 1, mem: 500m, serialize_allocations: {serialize}}}
jobs:
{jobs}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: {allocations}}}
"
    )
}

/// Ids of our jobs in Slurm in these states.
fn in_state(cluster: &crate::cluster::Cluster, states: &str) -> Vec<String> {
    let lines = cluster.slurm("squeue", &["-h", "-r", "-t", states, "-o", "%i %j"]);
    let ours = lines.lines().filter(|line| line.contains("torc-wf"));
    ours.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn allocations_of_a_chain_run_one_at_a_time_and_later_ones_join() {
    let Some(cluster) = cluster() else { return };
    let job = "  - {name: 'j{i}', scheduler: s, resource_requirements: small, parameters: {i: '1:2'}, \
               command: 'until [ -e go$TORC_JOB_NAME ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness'}";
    cluster.submit(&spec(true, job, 2));
    cluster.wait_for_running(1);
    // A second request of its own, and a third by a regenerate: there is room on the nodes for all.
    cluster.torc(&["slurm", "schedule-nodes", "latest"]);
    cluster.wait("waiting allocations", 30, || in_state(&cluster, "PD").len() == 2);
    let names = cluster.slurm("squeue", &["-h", "-o", "%j"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 1, "one chain, one name: {names:?}");
    let reasons = cluster.slurm("squeue", &["-h", "-r", "-t", "PD", "-o", "%r"]);
    assert!(reasons.contains("Dependency"), "{reasons}");
    // Each is known to the server by a name of its own.
    let rows = cluster.allocations();
    assert_eq!(rows.len(), 3, "{rows:?}");
    let distinct = |key: &str| {
        let mut seen: Vec<String> = rows.iter().map(|row| row[key].to_string()).collect();
        seen.sort();
        seen.dedup();
        seen.len()
    };
    assert_eq!((distinct("name"), distinct("slurm_job_id")), (2, 3), "{rows:?}");
    // The link that runs is taken away: the next one goes on, still alone.
    let first = in_state(&cluster, "R");
    assert_eq!(first.len(), 1, "{first:?}");
    cluster.slurm("scancel", &[&first[0]]);
    cluster.wait("next link", 60, || {
        let running = in_state(&cluster, "R");
        assert!(running.len() <= 1, "{running:?}");
        running.len() == 1 && running[0] != first[0]
    });
    cluster.wait_for_running(1);
    std::fs::write(cluster.dir.path().join("goj1"), "").expect("written");
    std::fs::write(cluster.dir.path().join("goj2"), "").expect("written");
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
    // What is left of the chain is surplus and is canceled.
    cluster.wait("empty queue", 60, || in_state(&cluster, "PD,R,CG").is_empty());
    let last = cluster.allocations().pop().expect("allocations");
    assert!(last["started_ms"].is_null(), "the last link was never needed: {last}");
    cluster.wait("its end", 60, || cluster.allocations().iter().all(|a| a["status"] == "complete"));
}

#[test]
fn a_regenerate_joins_the_chain_of_what_it_replaces() {
    let Some(cluster) = cluster() else { return };
    let job = "  - {name: 'j{i}', scheduler: s, resource_requirements: small, parameters: {i: '1:4'}, \
               command: 'until [ -e go ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness'}";
    // Each job takes a whole node, and two nodes are free: only the chain keeps the second one back.
    // Three jobs that wait need two allocations, two rounds each; one is there.
    let text = spec(true, job, 1).replace("num_cpus: 1", "num_cpus: 4");
    cluster.submit(&text.replace("ntasks_per_node: 1", "ntasks_per_node: 4"));
    cluster.wait_for_running(1);
    cluster.regenerate(&[]);
    cluster.wait("the second allocation", 30, || in_state(&cluster, "PD,R").len() == 2);
    assert_eq!(in_state(&cluster, "R").len(), 1, "one at a time");
    let names = cluster.slurm("squeue", &["-h", "-o", "%j"]);
    let names: std::collections::BTreeSet<&str> = names.lines().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    std::fs::write(cluster.dir.path().join("go"), "").expect("written");
    cluster.wait_for_success(4, 120);
    cluster.assert_witnessed_once(4);
}

#[test]
fn a_plan_tells_when_slurm_would_start_one_big_or_many_small() {
    let Some(cluster) = cluster() else { return };
    let text = "name: w
resource_requirements:
  - {name: small, num_cpus: 4, memory: 2000m, runtime: 2m}
  - {name: other, num_cpus: 1, memory: 100m, runtime: 1m}
jobs:
  - {name: 'j{i}', command: 'true', resource_requirements: small, parameters: {i: '1:2'}}
  - {name: 'k{i}', command: 'true', resource_requirements: other, parameters: {i: '1:2'}}
";
    std::fs::write(cluster.dir.path().join("spec.yaml"), text).expect("written");
    let plan = |more: &[&str]| -> Value {
        cluster.json(&[&["slurm", "plan", "spec.yaml", "--account", "a"], more].concat())
    };
    let both = plan(&[]);
    let ways = |view: &Value, group: usize| view["groups"][group]["ways"].clone();
    let two = ways(&both, 0);
    assert_eq!(
        (&two[0]["way"], &two[1]["way"]),
        (&"many_small".into(), &"one_big".into()),
        "{both}"
    );
    assert_eq!((&two[0]["allocations"], &two[1]["nodes"]), (&2.into(), &2.into()), "{both}");
    assert!(two[0]["start_ms"].is_i64() && two[1]["start_ms"].is_i64(), "{both}");
    assert!(two[0]["node_hours"].as_f64().is_some_and(|hours| hours > 0.0), "{both}");
    assert_eq!(both["groups"][0]["advice"], "many_small", "both start at once: {both}");
    assert_eq!(
        ways(&both, 1).as_array().map(Vec::len),
        Some(1),
        "one allocation is enough: {both}"
    );
    // Two nodes are taken for an hour: one big allocation has to wait for them, small ones begin on the third.
    let block =
        ["-p", "main", "-N2", "--exclusive", "-t", "60", "-o", "/dev/null", "--wrap", "sleep 600"];
    cluster.slurm("sbatch", &block);
    cluster.wait("taken nodes", 30, || {
        !cluster.slurm("squeue", &["-h", "-t", "R", "-o", "%i"]).trim().is_empty()
    });
    let later = plan(&["--partition", "main"]);
    let two = ways(&later, 0);
    let start = |way: &Value| way["start_ms"].as_i64().unwrap_or_else(|| panic!("{later}"));
    assert!(start(&two[1]) - start(&two[0]) > 30 * 60_000, "{later}");
    assert_eq!(later["groups"][0]["advice"], "many_small", "{later}");
    let shown = cluster.torc(&["slurm", "plan", "spec.yaml", "--account", "a"]);
    assert!(shown.contains("many small, because its jobs are done"), "{shown}");
    assert!(
        cluster.slurm("squeue", &["-h", "-o", "%j"]).lines().count() == 1,
        "nothing was submitted"
    );
    // By partition: one request serves both kinds of jobs.
    let grouped = cluster.json(&[
        "slurm",
        "generate",
        "spec.yaml",
        "--account",
        "a",
        "--group-by",
        "partition",
        "--dry-run",
    ]);
    let schedulers = grouped["planned_schedulers"].as_array().cloned().unwrap_or_default();
    assert_eq!(schedulers.len(), 1, "{grouped}");
    assert_eq!(
        (&schedulers[0]["name"], &schedulers[0]["job_count"]),
        (&"main_scheduler".into(), &4.into()),
        "{grouped}"
    );
    let timed = cluster.json(&[
        "slurm",
        "generate",
        "spec.yaml",
        "--account",
        "a",
        "--walltime",
        "2h",
        "--dry-run",
    ]);
    assert_eq!(timed["planned_schedulers"][0]["walltime"], "02:00:00", "{timed}");
}

#[test]
fn a_plan_for_a_workflow_knows_what_its_spec_adds_to_all_allocations() {
    let Some(cluster) = cluster() else { return };
    let text = "name: w
slurm_defaults: {begin: now+2hours}
resource_requirements: [{name: small, num_cpus: 4, memory: 2000m, runtime: 2m}]
jobs: [{name: 'j{i}', command: 'true', resource_requirements: small, parameters: {i: '1:2'}}]
";
    std::fs::write(cluster.dir.path().join("spec.yaml"), text).expect("written");
    cluster.torc(&["create", "spec.yaml"]);
    cluster.torc(&["workflows", "initialize", "w"]);
    let view = cluster.json(&["slurm", "plan", "w", "--account", "a"]);
    let start = view["groups"][0]["ways"][0]["start_ms"].as_i64();
    let soon = jiff::Timestamp::now().as_millisecond() + 90 * 60_000;
    assert!(start.is_some_and(|start| start > soon), "{view}");
}

#[test]
fn recover_and_watch_ask_for_the_nodes_that_were_named() {
    let Some(cluster) = cluster() else { return };
    let job = "  - {name: j1, scheduler: s, resource_requirements: small, command: 'test -e fixed && echo $TORC_JOB_NAME >> witness'}";
    cluster.submit(&spec(false, job, 1));
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&1));
    let limit_of_newest = || {
        let id = cluster.slurm_job();
        cluster.slurm("squeue", &["-h", "-t", "all", "-j", &id, "-o", "%P %l %a"]).trim().to_owned()
    };
    cluster.torc(&[
        "recover",
        "latest",
        "--retry-unknown",
        "--partition",
        "low",
        "--walltime",
        "00:07:00",
        "--account",
        "b",
    ]);
    cluster.wait("second allocation", 60, || cluster.allocations().len() == 2);
    let said = limit_of_newest();
    assert!(said.starts_with("low 7:00"), "{said}");
    let scheduler =
        &cluster.json(&["slurm", "allocations"])["scheduled_compute_nodes"][1]["scheduler"];
    assert_eq!(scheduler, "small_regen", "{scheduler}");
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&1));
    std::fs::write(cluster.dir.path().join("fixed"), "").expect("written");
    cluster.torc(&[
        "watch",
        "latest",
        "--recover",
        "--retry-unknown",
        "--partition",
        "low",
        "--walltime",
        "6m",
        "--account",
        "a",
    ]);
    assert!(limit_of_newest().starts_with("low 6:00"), "{}", limit_of_newest());
    cluster.assert_witnessed_once(1);
}

#[test]
fn usage_tells_paid_useful_and_lost_node_hours() {
    let Some(cluster) = cluster() else { return };
    // A CPU each of the two that an allocation has: half a node for ten seconds. One of them is lost first.
    let text = spec(
        false,
        "  - {name: good, scheduler: s, resource_requirements: small, command: 'sleep 10'}
  - {name: bad, scheduler: s, resource_requirements: small, command: 'sleep 10; exit 3'}",
        1,
    );
    cluster.submit(&text.replace("ntasks_per_node: 1", "ntasks_per_node: 2"));
    cluster.wait("both ends", 90, || {
        let counts = cluster.counts();
        counts.get("completed") == Some(&1) && counts.get("failed") == Some(&1)
    });
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    let usage = cluster.json(&["slurm", "usage"]);
    let hours =
        |key: &str| usage["total"][key].as_f64().unwrap_or_else(|| panic!("{usage}")) * 3600.0;
    let (paid, useful, lost, idle) = (
        hours("paid_node_hours"),
        hours("useful_node_hours"),
        hours("lost_node_hours"),
        hours("idle_node_hours"),
    );
    assert!((4.9..7.0).contains(&useful) && (4.9..7.0).contains(&lost), "{usage}");
    assert!(paid >= 9.0 && (paid - useful - lost - idle).abs() < 1.0, "{usage}");
    assert!(usage["lost_by_cause"]["exit"].as_f64().is_some_and(|hours| hours > 0.0), "{usage}");
    assert_eq!(usage["by_accounting"], has("SLURM_LAB_SACCT"), "{usage}");
    let shown = cluster.torc(&["slurm", "usage"]);
    assert!(shown.contains("node-hours paid") && shown.contains("lost to `exit`"), "{shown}");
}

//! Allocations of several nodes.

use crate::cluster::cluster;
use std::collections::BTreeSet;

#[test]
fn one_worker_per_node_uses_every_node_of_an_allocation() {
    let Some(cluster) = cluster() else { return };
    // Each job takes a whole node and waits for its neighbour, so that one node alone would never
    // do.
    let meet = "touch here_$TORC_JOB_NAME; until test -e here_j1 -a -e here_j2; do sleep 0.1; done";
    cluster.submit(&format!(
        "name: w
resource_requirements: [{{name: node, num_cpus: 4, memory: 200m, runtime: 1m}}]
slurm_schedulers:
  - {{name: s, account: a, partition: main, nodes: 2, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}}
jobs:
  - {{name: 'j{{i}}', command: '{meet}; echo $SLURMD_NODENAME >> nodes; echo $TORC_JOB_NAME >> witness', scheduler: s,
     resource_requirements: node, parameters: {{i: '1:2'}}}}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1,
     start_one_worker_per_node: true}}
"
    ));
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
    assert_eq!(nodes(&cluster).len(), 2, "{:?}", nodes(&cluster));
    assert_eq!(cluster.allocations().len(), 1);
}

#[test]
fn a_job_of_two_nodes_has_both() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(
        "name: w
resource_requirements: [{name: two, num_cpus: 1, num_nodes: 2, memory: 200m, runtime: 1m}]
jobs:
  - {name: wide, resource_requirements: two, command: 'srun --overlap -N2 --ntasks-per-node=1 ./each; echo wide >> witness'}
slurm_schedulers:
  - {name: s, account: a, partition: main, nodes: 2, walltime: '00:10:00', ntasks_per_node: 1, mem: 1500m}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1}
",
    );
    let each = cluster.dir.path().join("each");
    std::fs::write(&each, "#!/bin/sh\necho $SLURMD_NODENAME >> nodes\n").expect("written");
    cluster.slurm("chmod", &["+x", "each"]);
    cluster.wait_for_success(1, 90);
    assert_eq!(nodes(&cluster).len(), 2, "{:?}", nodes(&cluster));
}

/// Jobs on two nodes of four CPUs each, by one worker.
fn on_two_nodes(jobs: &str) -> String {
    format!(
        "name: w
resource_requirements:
  - {{name: small, num_cpus: 1, memory: 100m, runtime: 1m}}
  - {{name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: 1m}}
slurm_schedulers:
  - {{name: s, account: a, partition: main, nodes: 2, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}}
jobs:
{jobs}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1}}
"
    )
}

#[test]
fn forty_jobs_of_one_worker_run_on_both_nodes() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&on_two_nodes(
        "  - {name: 'j{i}', command: 'echo $SLURMD_NODENAME >> nodes; sleep 1; echo $TORC_JOB_NAME >> witness', \
         scheduler: s, resource_requirements: small, parameters: {i: '1:40'}}",
    ));
    cluster.wait_for_success(40, 120);
    cluster.assert_witnessed_once(40);
    assert_eq!(nodes(&cluster).len(), 2, "{:?}", nodes(&cluster));
    let runners = cluster.json(&["runners", "list", "latest", "--all"]);
    let runners = runners["runners"].as_array().expect("runners").clone();
    assert_eq!(runners.len(), 1, "{runners:?}");
    let capacity = &runners[0]["capacity"];
    assert_eq!((&capacity["num_nodes"], &capacity["num_cpus"]), (&2.into(), &4.into()));
    assert_eq!(capacity["spreads"], true, "{capacity}");
    // Eight at a time: four on each node.
    let text = std::fs::read_to_string(cluster.dir.path().join("nodes")).expect("written");
    let on_first = text.lines().filter(|line| *line == text.lines().next().unwrap_or("")).count();
    assert!((15..=25).contains(&on_first), "{on_first} of 40 on one node");
}

#[test]
fn a_wide_stage_and_small_jobs_share_an_allocation() {
    let Some(cluster) = cluster() else { return };
    let each = cluster.dir.path().join("each");
    std::fs::write(&each, "#!/bin/sh\necho $SLURMD_NODENAME >> nodes\n").expect("written");
    cluster.slurm("chmod", &["+x", "each"]);
    cluster.submit(&on_two_nodes(
        "  - {name: 'before{i}', command: 'sleep 1; echo $TORC_JOB_NAME >> witness', scheduler: s, \
         resource_requirements: small, parameters: {i: '1:10'}}
  - {name: wide, scheduler: s, resource_requirements: wide, depends_on_regexes: ['before.*'],
     command: 'test $TORC_NUM_NODES = 2 && srun -N2 --ntasks-per-node=1 -n2 --nodelist=$TORC_NODELIST ./each && echo $TORC_JOB_NAME >> witness'}
  - {name: 'after{i}', command: 'sleep 1; echo $TORC_JOB_NAME >> witness', scheduler: s, resource_requirements: small,
     depends_on: [wide], parameters: {i: '1:10'}}",
    ));
    cluster.wait_for_success(21, 120);
    cluster.assert_witnessed_once(21);
    assert_eq!(nodes(&cluster).len(), 2, "{:?}", nodes(&cluster));
    assert_eq!(cluster.allocations().len(), 1);
}

#[test]
fn a_lost_node_costs_its_own_jobs_only() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&on_two_nodes(
        "  - {name: 'j{i}', command: 'echo $SLURMD_NODENAME > on_$TORC_JOB_NAME; sleep 6; echo $TORC_JOB_NAME >> witness', \
         scheduler: s, resource_requirements: small, max_lost_retries: 0, parameters: {i: '1:8'}}",
    ));
    cluster.wait_for_running(8);
    let on = |job: usize| {
        std::fs::read_to_string(cluster.dir.path().join(format!("on_j{job}"))).unwrap_or_default()
    };
    cluster.wait("eight jobs", 30, || (1..=8).all(|job| !on(job).is_empty()));
    let head = cluster.slurm("squeue", &["-h", "-o", "%B"]).trim().to_owned();
    let other = (1..=8).map(on).find(|node| node.trim() != head).expect("another node");
    let down = format!("nodename={}", other.trim());
    cluster.slurm("scontrol", &["update", &down, "state=down", "reason=test"]);
    // Not before the agent there has ended its jobs for sure.
    let has_failed = |a: &(String, i64, String, String)| a.3 == "node_fail";
    cluster.wait("lost jobs", 120, || cluster.attempts().iter().any(has_failed));
    cluster.wait_for_cause("node_fail", 4, "node");
    cluster.slurm("scontrol", &["update", &down, "state=resume"]);
    cluster.wait_for_success(8, 120);
    cluster.assert_witnessed_once(8);
    let firsts = cluster.attempts().into_iter().filter(|a| a.1 == 1 && a.2 == "completed").count();
    assert_eq!(firsts, 4, "those of the other node went on: {:?}", cluster.attempts());
    assert_eq!(cluster.allocations().len(), 1, "the allocation went on");
}

#[test]
fn a_lost_allocation_of_two_nodes_loses_the_jobs_of_both() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(TWO_NODES);
    cluster.wait_for_running(2);
    cluster.slurm(
        "sbatch",
        &["-p", "main", "-N3", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3"],
    );
    cluster.wait("ready jobs", 60, || cluster.counts().get("ready") == Some(&2));
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    // Of two workers under `srun` not each may see in time why it has to go.
    cluster.wait_for_cause("preempted", 2, "preempted");
    cluster.regenerate(&["--partition", "main"]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
}

/// Two jobs, each on a node of its own in one allocation that others may take.
const TWO_NODES: &str = "name: w
resource_requirements: [{name: node, num_cpus: 4, memory: 200m, runtime: 1m}]
slurm_schedulers:
  - {name: s, account: a, partition: scav, nodes: 2, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}
jobs:
  - {name: 'j{i}', command: 'sleep 6; echo $TORC_JOB_NAME >> witness', scheduler: s, resource_requirements: node,
     parameters: {i: '1:2'}}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1,
     start_one_worker_per_node: true}
";

/// The nodes that wrote a line.
fn nodes(cluster: &crate::cluster::Cluster) -> BTreeSet<String> {
    let text = std::fs::read_to_string(cluster.dir.path().join("nodes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

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

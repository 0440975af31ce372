//! Allocations of several nodes.

use crate::cluster::{cluster, has};
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
fn mpirun_and_srun_of_a_job_use_its_own_nodes() {
    let Some(cluster) = cluster() else { return };
    // The first node is another job's all the time, so that the wide job runs below an agent.
    let script = "#!/bin/bash
set -e
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
srun --nodelist=$TORC_NODELIST sh -c 'echo $SLURMD_NODENAME' > srun_$1
srun --nodelist=$TORC_NODELIST -n $TORC_NUM_NODES sh -c 'echo $SLURMD_NODENAME' > srun_each_$1
MPIRUN
echo $SLURMD_NODENAME $TORC_NODELIST > own_$1
";
    let mpirun = "mpirun sh -c 'echo $SLURMD_NODENAME' > mpirun_$1";
    let script = script.replace("MPIRUN", if has("SLURM_LAB_MPI") { mpirun } else { "" });
    std::fs::write(cluster.dir.path().join("ranks"), script).expect("written");
    cluster.slurm("chmod", &["+x", "ranks"]);
    cluster.submit(
        "name: w
resource_requirements:
  - {name: node, num_cpus: 4, memory: 100m, runtime: 1m}
  - {name: pair, num_cpus: 2, memory: 100m, runtime: 1m}
  - {name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: 1m}
slurm_schedulers:
  - {name: s, account: a, partition: main, nodes: 3, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}
jobs:
  - {name: hold, scheduler: s, priority: 10, resource_requirements: node, command: 'until [ -e own_pair ]; do sleep 0.2; done'}
  - {name: wide, scheduler: s, resource_requirements: wide, command: './ranks wide'}
  - {name: pair, scheduler: s, resource_requirements: pair, command: './ranks pair', depends_on: [wide]}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}
",
    );
    cluster.wait("ranks", 120, || {
        let failed = cluster.counts().get("failed").copied().unwrap_or(0);
        assert_eq!(failed, 0, "{}", cluster.slurm("sh", &["-c", "cat output/job_stdio/*.e"]));
        cluster.counts().get("completed") == Some(&3)
    });
    let read = |name: &str| {
        let text = std::fs::read_to_string(cluster.dir.path().join(name)).unwrap_or_default();
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        words.sort();
        words
    };
    let own = read("own_wide");
    let nodes: Vec<String> = own
        .iter()
        .find(|word| word.contains(','))
        .expect("two nodes")
        .split(',')
        .map(str::to_owned)
        .collect();
    assert_eq!(nodes.len(), 2, "{own:?}");
    let four_each: Vec<String> =
        nodes.iter().flat_map(|node| std::iter::repeat_n(node.clone(), 4)).collect();
    assert_eq!(read("srun_wide"), four_each, "a task for each CPU of its nodes");
    assert_eq!(read("srun_each_wide"), nodes);
    let own = read("own_pair");
    assert_eq!(own[0], own[1], "one node, on which it runs");
    assert_eq!(read("srun_pair"), own, "a task for each of its two CPUs");
    if has("SLURM_LAB_MPI") {
        assert_eq!(read("mpirun_wide"), four_each);
        assert_eq!(read("mpirun_pair"), own);
    }
}

#[test]
fn every_node_of_an_allocation_is_watched_with_its_gpus() {
    let Some(cluster) = cluster() else { return };
    // No GPU is here: a program of the test stands in for NVIDIA's and tells of two cards.
    let bin = cluster.dir.path().join("bin");
    std::fs::create_dir(&bin).expect("made");
    let fake = "#!/bin/sh\n# Not NVIDIA's program: a stand-in of the tests.\n\
                echo '0, 37, 1024, 81920'\necho '1, [N/A], 0, 81920'\n";
    std::fs::write(bin.join("nvidia-smi"), fake).expect("written");
    cluster.slurm("chmod", &["+x", "bin/nvidia-smi"]);
    let spec = on_two_nodes(
        "  - {name: 'j{i}', command: 'sleep 4; echo $TORC_JOB_NAME >> witness', scheduler: s, \
         resource_requirements: small, parameters: {i: '1:8'}}",
    );
    let monitor = "resource_monitor: {sample_interval_seconds: 1, compute_node: {enabled: true}}";
    std::fs::write(cluster.dir.path().join("spec.yaml"), format!("{spec}{monitor}\n"))
        .expect("written");
    let submit =
        format!("PATH={}:$PATH {} submit spec.yaml", bin.display(), env!("CARGO_BIN_EXE_torc"));
    let sent = cluster.output("sh", &["-c", &submit]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    cluster.wait_for_success(8, 90);
    let text = cluster.slurm("sh", &["-c", "cat output/resource_utilization/nodes_*.jsonl"]);
    let samples: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let hosts: BTreeSet<&str> = samples.iter().filter_map(|s| s["host"].as_str()).collect();
    assert_eq!(hosts.len(), 2, "{text}");
    for sample in &samples {
        assert!(sample["memory"]["used_bytes"].as_u64() > Some(0), "{sample}");
        assert!(sample["disk"]["total_bytes"].as_u64() > Some(0), "{sample}");
        assert_eq!(sample["gpus"][0]["percent"], 37.0, "{sample}");
        assert_eq!(sample["gpus"][0]["memory_used_bytes"], 1_u64 << 30, "{sample}");
        assert!(sample["gpus"][1]["percent"].is_null(), "{sample}");
    }
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

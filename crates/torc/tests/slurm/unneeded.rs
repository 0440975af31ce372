//! Allocations that nothing needs any more are taken back while the workflow goes on; those of
//! others never are.

use crate::cluster::cluster;

#[test]
fn what_no_remaining_job_could_use_is_taken_back() {
    let Some(cluster) = cluster() else { return };
    // Another user has all plain nodes, and more in the queue: whatever we ask for there has to
    // wait.
    let block = [
        "-p",
        "main",
        "-N3",
        "--exclusive",
        "-J",
        "foreign",
        "-o",
        "/dev/null",
        "--wrap",
        "sleep 600",
    ];
    cluster.slurm("sbatch", &block);
    cluster.slurm("sbatch", &block);
    cluster.wait("full nodes", 30, || {
        cluster.slurm("squeue", &["-h", "-t", "R", "-o", "%j"]).contains("foreign")
    });
    cluster.submit(
        "name: w
resource_requirements:
  - {name: small, num_cpus: 1, memory: 200m, runtime: 1m}
  - {name: large, num_cpus: 1, memory: 3000m, runtime: 1m}
  - {name: gpu, num_cpus: 1, num_gpus: 1, memory: 200m, runtime: 1m}
slurm_schedulers:
  - {name: few, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}
  - {name: big, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 4, mem: 3500m}
  - {name: gpu, account: a, partition: gpu, nodes: 1, walltime: '00:10:00', ntasks_per_node: 2, mem: 1500m, gres: 'gpu:2'}
jobs:
  - {name: gate, command: 'until test -e go; do sleep 0.1; done; exit 3', resource_requirements: gpu, scheduler: gpu}
  - {name: long, command: 'until test -e end; do sleep 0.1; done', resource_requirements: gpu, scheduler: gpu}
  - {name: 'behind_{i}', command: 'true', resource_requirements: small, scheduler: few, depends_on: [gate], parameters: {i: '1:4'}}
  - {name: later, command: 'true', resource_requirements: large, scheduler: big}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: few, scheduler_type: slurm, num_allocations: 2}
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: big, scheduler_type: slurm, num_allocations: 1}
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: gpu, scheduler_type: slurm, num_allocations: 1}
",
    );
    cluster.wait_for_running(2);
    let of = |scheduler: &str| {
        let all = cluster.allocations().into_iter();
        all.filter(|a| a["scheduler"] == scheduler).collect::<Vec<_>>()
    };
    cluster.wait("waiting allocations", 60, || {
        of("few").iter().chain(&of("big")).all(|a| a["state"] == "PENDING")
    });
    // What waited for the gate will never run.
    std::fs::write(cluster.dir.path().join("go"), "").expect("written");
    cluster.wait("canceled jobs", 60, || cluster.counts().get("canceled") == Some(&4));
    cluster.wait("nodes taken back", 60, || of("few").iter().all(|a| a["status"] == "complete"));
    for allocation in of("few") {
        let reason = allocation["reason"].as_str().unwrap_or_default();
        assert!(
            reason.starts_with("no longer needed") && allocation["started_ms"].is_null(),
            "{allocation}"
        );
        let id = allocation["slurm_job_id"].as_str().unwrap_or_default();
        let there = cluster.slurm("squeue", &["-h", "-r", "-j", id, "-o", "%T"]);
        assert_eq!(there.trim(), "", "{allocation}");
    }
    // The workflow goes on: one job runs, one still waits for its nodes, and no other job lost
    // theirs.
    assert_eq!(of("big")[0]["status"], "pending", "{:?}", of("big"));
    assert_eq!(of("gpu")[0]["status"], "active", "{:?}", of("gpu"));
    let foreign = cluster.slurm("squeue", &["-h", "-n", "foreign", "-o", "%T"]);
    assert_eq!(foreign.lines().count(), 2, "{foreign}");
    cluster.slurm("scancel", &["-n", "foreign"]);
    std::fs::write(cluster.dir.path().join("end"), "").expect("written");
    cluster.wait("end of the others", 90, || cluster.counts().get("completed") == Some(&2));
}

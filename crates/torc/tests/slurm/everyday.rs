//! What people do on a cluster every day: cancel, cap the number of jobs, run a whole workflow in one
//! batch job, and find their results after the server was away.

use crate::cluster::cluster;

fn spec(more: &str, jobs: &str, action: &str) -> String {
    format!(
        "name: w
{more}
slurm_schedulers:
  - {{name: s, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 4, mem: 1500m}}
jobs:
{jobs}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, {action}}}
"
    )
}

#[test]
fn cancel_ends_running_jobs_and_leaves_no_allocation() {
    let Some(cluster) = cluster() else { return };
    // The second allocation waits in Slurm until the first one has ended.
    let text = spec(
        "",
        "  - {name: 'j{i}', scheduler: s, command: 'sleep 300; echo $TORC_JOB_NAME >> witness', parameters: {i: '1:4'}}",
        "num_allocations: 2",
    );
    cluster.submit(&text.replace("mem: 1500m", "mem: 1500m, serialize_allocations: true"));
    cluster.wait_for_running(4);
    cluster.torc(&["cancel", "latest"]);
    cluster.wait("end of all allocations", 60, || {
        cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
    });
    cluster.wait("canceled jobs", 30, || cluster.counts().get("canceled") == Some(&4));
    assert!(cluster.witnesses().is_empty(), "{:?}", cluster.witnesses());
    cluster.wait("ended allocations", 60, || {
        cluster.allocations().iter().all(|allocation| allocation["status"] == "complete")
    });
}

#[test]
fn max_parallel_jobs_caps_the_jobs_of_a_worker() {
    let Some(cluster) = cluster() else { return };
    let job = "  - {name: 'j{i}', scheduler: s, parameters: {i: '1:6'}, command: 'echo + >> steps; sleep 0.5; echo - >> steps; \
               echo $TORC_JOB_NAME >> witness'}";
    cluster.submit(&spec("", job, "max_parallel_jobs: 2"));
    cluster.wait_for_success(6, 90);
    cluster.assert_witnessed_once(6);
    let steps = std::fs::read_to_string(cluster.dir.path().join("steps")).expect("written");
    let mut running = 0;
    let counts: Vec<i32> = steps
        .lines()
        .map(|line| {
            running += if line == "+" { 1 } else { -1 };
            running
        })
        .collect();
    assert_eq!(counts.iter().max(), Some(&2), "{steps}");
}

#[test]
fn a_whole_workflow_runs_in_one_batch_job_without_a_server() {
    let Some(cluster) = cluster() else { return };
    let text = "name: w
jobs:
  - {name: 'j{i}', command: 'echo $TORC_JOB_NAME >> witness', parameters: {i: '1:10'}}
  - {name: last, command: 'test $(wc -l < witness) = 10 && echo last >> witness', depends_on_regexes: ['j.*']}
";
    std::fs::write(cluster.dir.path().join("spec.yaml"), text).expect("written");
    let script = format!("#!/bin/bash\n{} run spec.yaml\n", env!("CARGO_BIN_EXE_torc"));
    std::fs::write(cluster.dir.path().join("job.sh"), script).expect("written");
    let options =
        ["-p", "main", "-n4", "--mem=1000M", "-t", "5", "-o", "job.out", "--wait", "job.sh"];
    let done = cluster.output("sbatch", &options);
    let said = std::fs::read_to_string(cluster.dir.path().join("job.out")).unwrap_or_default();
    assert!(done.status.success(), "{said}");
    cluster.assert_witnessed_once(11);
    // What it did can be asked for afterwards, from the login node.
    assert_eq!(cluster.counts().get("completed"), Some(&11));
}

#[test]
fn results_that_a_worker_kept_count_when_its_allocation_is_over() {
    let Some(cluster) = cluster() else { return };
    let job = "  - {name: 'j{i}', scheduler: s, parameters: {i: '1:4'}, \
               command: 'until [ -e go ]; do sleep 0.2; done; echo $TORC_JOB_NAME >> witness'}";
    // A worker that runs nothing and hears no server leaves at once.
    cluster.submit(&spec(
        "compute_node_wait_for_healthy_database_minutes: 0",
        job,
        "num_allocations: 1",
    ));
    cluster.wait_for_running(4);
    let server = std::fs::read(cluster.dir.path().join(".torc/server.json")).expect("a server");
    let server: serde_json::Value = serde_json::from_slice(&server).expect("JSON");
    cluster.slurm("kill", &["-KILL", &server["pid"].to_string()]);
    std::fs::write(cluster.dir.path().join("go"), "").expect("written");
    cluster.wait("end in Slurm", 60, || {
        cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
    });
    cluster.assert_witnessed_once(4);
    let mut server = cluster.spawn_torc(&["-v", "server", "run"]);
    // A command that finds no server opens the database itself and would keep this one from it.
    let address = cluster.dir.path().join(".torc/server.json");
    cluster.wait("server", 60, || {
        let text = std::fs::read(&address).unwrap_or_default();
        let found: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        found["pid"] == server.id()
    });
    cluster.wait_for_success(4, 90);
    assert_eq!(cluster.attempts().len(), 4, "no job ran again: {:?}", cluster.attempts());
    cluster.assert_witnessed_once(4);
    server.kill().expect("killed");
    server.wait().expect("gone");
}

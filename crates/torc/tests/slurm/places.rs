//! Where the server runs: under a name that was given, in an allocation of its own, and with a program
//! whose file was replaced meanwhile.

use crate::cluster::cluster;
use serde_json::Value;

const SPEC: &str = "name: w
slurm_schedulers:
  - {name: s, account: a, partition: main, nodes: 1, walltime: '00:10:00', ntasks_per_node: 2, mem: 500m}
jobs:
  - {name: 'j{i}', scheduler: s, command: 'echo $TORC_JOB_NAME >> witness', parameters: {i: '1:2'}}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}
";

fn scripts(cluster: &crate::cluster::Cluster) -> String {
    cluster.slurm("sh", &["-c", "cat output/slurm/*.sh"])
}

#[test]
fn workers_are_told_the_address_that_was_named() {
    let Some(cluster) = cluster() else { return };
    std::fs::write(cluster.dir.path().join("spec.yaml"), SPEC).expect("written");
    let sent = cluster.json(&["submit", "spec.yaml", "--server-host", "127.0.0.1"]);
    assert!(sent["url"].as_str().is_some_and(|url| url.contains("//127.0.0.1:")), "{sent}");
    assert!(scripts(&cluster).contains("://127.0.0.1:"), "{}", scripts(&cluster));
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
}

#[test]
fn a_server_in_an_allocation_of_its_own_serves_the_others_and_goes_on_in_the_next() {
    let Some(cluster) = cluster() else { return };
    let script = format!(
        "#!/bin/bash\nexec {} server run --host \"$(hostname)\"\n",
        env!("CARGO_BIN_EXE_torc")
    );
    std::fs::write(cluster.dir.path().join("server.sh"), script).expect("written");
    std::fs::write(cluster.dir.path().join("spec.yaml"), SPEC).expect("written");
    let start = || {
        let said = cluster.slurm(
            "sbatch",
            &[
                "--parsable",
                "-p",
                "main",
                "-n1",
                "--mem=500M",
                "-t",
                "10",
                "-o",
                "server.out",
                "server.sh",
            ],
        );
        cluster.wait("server", 60, || cluster.try_torc(&["workflows", "list"]).status.success());
        said.trim().to_owned()
    };
    let first = start();
    let sent = cluster.json(&["submit", "spec.yaml"]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
    let server: Value = serde_json::from_slice(
        &std::fs::read(cluster.dir.path().join(".torc/server.json")).expect("a server"),
    )
    .expect("JSON");
    assert_eq!(server["url"], sent["url"], "the one in the allocation: {server}");
    // Its walltime is over; the next one goes on from the same directory.
    cluster.slurm("scancel", &[&first]);
    cluster.wait("end of the server", 60, || {
        cluster.slurm("squeue", &["-h", "-o", "%i"]).trim().is_empty()
    });
    let second = start();
    assert_ne!(first, second);
    assert_eq!(cluster.counts().get("completed"), Some(&2));
    cluster.slurm("scancel", &[&second]);
}

#[test]
fn a_server_whose_program_was_replaced_starts_the_new_one() {
    let Some(cluster) = cluster() else { return };
    let program = cluster.dir.path().join("torc");
    std::fs::copy(env!("CARGO_BIN_EXE_torc"), &program).expect("copied");
    std::fs::write(cluster.dir.path().join("spec.yaml"), SPEC).expect("written");
    let mut server = std::process::Command::new(&program)
        .args(["server", "run"])
        .current_dir(cluster.dir.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("started");
    cluster.wait("server", 30, || cluster.try_torc(&["workflows", "list"]).status.success());
    // As an update does: another file under the same name.
    let new = cluster.dir.path().join("torc.new");
    std::fs::copy(env!("CARGO_BIN_EXE_torc"), &new).expect("copied");
    std::fs::rename(&new, &program).expect("replaced");
    // No command submits: the server itself does.
    cluster.torc(&["create", "spec.yaml", "--initialize"]);
    cluster.wait_for_success(2, 90);
    cluster.assert_witnessed_once(2);
    let text = scripts(&cluster);
    assert!(text.contains(&program.display().to_string()), "{text}");
    assert!(!text.contains("deleted"), "{text}");
    server.kill().expect("killed");
    server.wait().expect("gone");
}

//! From a failure on the cluster to a complete workflow, and what the commands say about it.

use crate::cluster::{Cluster, campaign, cluster, has};
use crate::{WITNESS, spec};

#[test]
fn retried_jobs_get_nodes_by_themselves() {
    let Some(cluster) = cluster() else { return };
    let auto = "  - {trigger_type: auto_schedule_on_ready_jobs, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}";
    cluster.submit(&spec("main", 2, 4.0, auto));
    cluster.wait_for_running(2);
    cluster.slurm("scancel", &[&cluster.slurm_job()]);
    cluster.wait_for_success(2, 120);
    cluster.assert_witnessed_once(2);
    assert_eq!(cluster.allocations().len(), 2, "{:?}", cluster.allocations());
}

#[test]
fn a_job_over_its_memory_gets_more_and_new_nodes() {
    let Some(cluster) = cluster() else { return };
    if !has("SLURM_LAB_OOM") {
        eprintln!("skipped: this machine has no memory control groups");
        return;
    }
    // 250 MB at once: more than 200m, less than twice that.
    let hungry = format!("python3 -c \"x = bytearray(250 << 20)\" && {WITNESS}");
    let text = spec("main", 2, 0.2, "").replace(
        "actions:",
        &format!("  - {{name: hungry, command: '{hungry}', resource_requirements: small, scheduler: s}}\nactions:"),
    );
    cluster.submit(&text);
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&1));
    cluster.wait("ended allocation", 120, || cluster.allocations()[0]["status"] == "complete");
    let plan = cluster.json(&["recover", "latest", "--dry-run"]);
    assert_eq!(plan["jobs"][0]["changes"][0]["to"], 400 << 20, "{plan}");
    cluster.torc(&["recover", "latest"]);
    cluster.wait_for_success(3, 90);
    cluster.assert_witnessed_once(3);
}

#[test]
fn after_a_verdict_the_proposal_is_what_is_asked_for() {
    let Some(cluster) = cluster() else { return };
    let text =
        spec("main", 3, 0.0, "use_pending_failed: true").replace("memory: 200m", "memory: 800m");
    let text =
        text.replace(&format!("sleep 0 && {WITNESS}"), &format!("test -e fixed && {WITNESS}"));
    cluster.submit(&text);
    cluster.wait("waiting verdicts", 60, || cluster.counts().get("pending_failed") == Some(&3));
    std::fs::write(cluster.dir.path().join("fixed"), "").expect("written");
    let judged = [
        "jobs",
        "classify",
        "j1",
        "j2",
        "j3",
        "--retry",
        "--memory",
        "3000m",
        "--reason",
        "it needs more",
    ];
    let judged = cluster.json(&judged);
    assert_eq!(judged["jobs_to_retry"], 3, "{judged}");
    // A node has 4000 MB, so it takes one job at a time, and two in the time asked for. What is
    // there has 1500 MB: no help.
    let proposed = &judged["proposed_allocations"];
    let shape = &proposed["planned_schedulers"][0];
    assert_eq!(
        (&proposed["total_allocations"], &shape["num_allocations"]),
        (&2.into(), &2.into()),
        "{proposed}"
    );
    let plan = cluster.json(&["slurm", "regenerate", "latest", "--dry-run"]);
    assert_eq!(plan["planned_schedulers"], proposed["planned_schedulers"]);
    let done = cluster.json(&["slurm", "regenerate", "latest", "--submit"]);
    assert_eq!(done["allocations_created"], proposed["total_allocations"], "{done}");
    let new = cluster
        .allocations()
        .into_iter()
        .filter(|a| a["scheduler"] == shape["name"])
        .collect::<Vec<_>>();
    assert_eq!(new.len(), 2, "{new:?}");
    let id = new[0]["slurm_job_id"].as_str().expect("sent");
    let asked = cluster.slurm("squeue", &["-h", "-r", "-t", "all", "-j", id, "-o", "%mMB"]);
    let wanted = shape["mem"].as_str().expect("a size").replace(['M', 'm', 'B'], "");
    assert!(asked.contains(&wanted), "{asked} is not {wanted}");
    cluster.wait_for_success(3, 120);
    cluster.assert_witnessed_once(3);
}

#[test]
fn nothing_is_raised_beyond_what_a_node_has() {
    let Some(cluster) = cluster() else { return };
    if !has("SLURM_LAB_OOM") {
        eprintln!("skipped: this machine has no memory control groups");
        return;
    }
    let text = spec("main", 1, 0.2, "")
        .replace("memory: 200m", "memory: 3500m")
        .replace("mem: 1500m", "mem: 3900m");
    let text = text.replace(&format!("sleep 0.2 && {WITNESS}"), "exec python3 hungry.py");
    std::fs::write(cluster.dir.path().join("hungry.py"), "x = bytearray(3600 << 20)\n")
        .expect("written");
    cluster.submit(&text);
    cluster.wait("failed job", 60, || cluster.counts().get("failed") == Some(&1));
    let plan = cluster.json(&["recover", "latest", "--dry-run", "--memory-multiplier", "2"]);
    // Nodes have 4000 MB, so twice 3500 is not to be had.
    assert_eq!(plan["jobs"][0]["changes"][0]["to"], 4000i64 << 20, "{plan}");
}

#[test]
fn watch_recovers_regenerates_and_ends_with_everything_done() {
    let Some(cluster) = cluster() else { return };
    // The first attempt of each job fails by its own time limit; the second one has more of it.
    let text = spec("main", 2, 0.0, "").replace(
        &format!("sleep 0 && {WITNESS}"),
        &format!(
            "test -e once_$TORC_JOB_NAME && {WITNESS} || {{ touch once_$TORC_JOB_NAME; sleep 60; }}"
        ),
    );
    let text = text.replace("max_lost_retries: 99", "max_lost_retries: 99, timeout: 2s");
    cluster.submit(&text);
    cluster.torc(&["watch", "latest", "--recover", "--auto-schedule"]);
    cluster.assert_witnessed_once(2);
    let rows = cluster.attempts();
    assert_eq!(rows.iter().filter(|a| a.3 == "timeout").count(), 2, "{rows:?}");
}

#[test]
fn accounting_and_the_allocations_output_tell_what_happened() {
    let Some(cluster) = cluster() else { return };
    cluster.submit(&spec("main", 1, 30.0, ""));
    cluster.wait_for_running(1);
    let job = cluster.slurm_job();
    cluster.slurm("scancel", &[&job]);
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    cluster.wait("word in the output", 30, || {
        let issues = cluster.json(&["slurm", "parse-logs", "latest"]);
        let found = issues["issues"].as_array().cloned().unwrap_or_default();
        found.iter().any(|i| {
            i["description"] == "the allocation was canceled" && i["slurm_job_id"] == job.as_str()
        })
    });
    let analyzed = cluster.mcp("analyze_workflow_logs")["structuredContent"].clone();
    assert!(
        analyzed["errors_by_type"].to_string().contains("the allocation was canceled"),
        "{analyzed}"
    );
    if !has("SLURM_LAB_SACCT") {
        let refused = cluster.try_torc(&["slurm", "sacct", "latest"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("keeps no accounting"), "{said}");
        let told = cluster.mcp("get_slurm_sacct");
        assert!(
            told["isError"] == true && told.to_string().contains("keeps no accounting"),
            "{told}"
        );
        return;
    }
    cluster.wait("settled record", 60, || {
        let records = cluster.json(&["slurm", "sacct", "latest"]);
        let records = records["records"].as_array().cloned().unwrap_or_default();
        records.iter().any(|r| {
            r["job_id"] == job.as_str()
                && r["state"].as_str().unwrap_or("").starts_with("CANCELLED")
                && r["nodes"] != ""
        })
    });
    let told = cluster.mcp("get_slurm_sacct")["structuredContent"].clone();
    // It may have been canceled within its first second.
    assert!(told["total_walltime_seconds"].is_u64(), "{told}");
    assert!(
        told["records"].as_array().is_some_and(|r| r.iter().any(|r| r["job_id"] == job.as_str())),
        "{told}"
    );
    let steps = cluster.json(&["slurm", "sacct", "latest", "--steps"]);
    let steps = steps["records"].as_array().cloned().unwrap_or_default();
    assert!(steps.iter().any(|r| r["job_id"] == format!("{job}.batch")), "{steps:?}");
    // Accounting that does not answer is said to be so, and nothing else suffers.
    assert!(cluster.lab(&["signal", "slurmdbd", "KILL"]).status.success());
    let refused = cluster.try_torc(&["slurm", "sacct", "latest"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("sacct"), "{said}");
    cluster.torc(&["workflows", "sync-status", "latest"]);
}

#[test]
fn the_documentation_does_what_it_says() {
    let Some(cluster) = cluster() else { return };
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/slurm.md"))
        .expect("the page");
    let program =
        std::path::Path::new(env!("CARGO_BIN_EXE_torc")).parent().expect("a directory").display();
    let mut ran = 0;
    for block in page.split("\n```").collect::<Vec<_>>().chunks_exact(2).map(|pair| pair[1]) {
        let (kind, text) = block.split_once('\n').unwrap_or((block, ""));
        match kind {
            "yaml" if text.starts_with("# sweep.yaml") => {
                std::fs::write(cluster.dir.path().join("sweep.yaml"), text).expect("written");
            }
            "bash" if !text.contains("slurm-lab") => {
                let script = format!("set -euo pipefail\nPATH={program}:$PATH\n{text}");
                let done = cluster.output("bash", &["-c", &script]);
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(
                    done.status.success(),
                    "{text}\n{}\n{said}",
                    String::from_utf8_lossy(&done.stdout)
                );
                ran += 1;
            }
            _ => {}
        }
    }
    assert!(ran >= 5, "only {ran} blocks were run");
    let results = std::fs::read_to_string(cluster.dir.path().join("results.txt")).expect("results");
    assert_eq!(results.lines().count(), 8, "{results}");
}

#[test]
fn a_killed_slurmd_costs_no_job() {
    let Some(cluster) = campaign() else { return };
    // Slurm gives the node up after some twenty seconds, but the runner and its jobs go on.
    cluster.submit(&spec("main", 2, 45.0, ""));
    cluster.wait_for_running(2);
    let nodes = cluster.slurm("squeue", &["-h", "-t", "R", "-o", "%N"]);
    assert!(cluster.lab(&["signal", &format!("slurmd.{}", nodes.trim()), "KILL"]).status.success());
    let job = cluster.slurm_job();
    cluster.wait("verdict of Slurm", 90, || {
        !cluster
            .slurm("squeue", &["-h", "-j", &job, "--states=all", "-o", "%T"])
            .contains("RUNNING")
    });
    // Slurm says that the node failed; the runner still speaks, so no job fails for it.
    cluster.torc(&["workflows", "sync-status", "latest"]);
    assert_eq!(cluster.counts().get("running"), Some(&2), "{:?}", cluster.counts());
    cluster.wait_for_success(2, 120);
    cluster.assert_witnessed_once(2);
    assert_eq!(cluster.attempts().len(), 2, "no job was retried: {:?}", cluster.attempts());
}

#[test]
fn a_machine_that_dies_with_its_slurmd_is_survived() {
    let Some(cluster) = campaign() else { return };
    cluster.submit(&spec("main", 2, 20.0, ""));
    cluster.wait_for_running(2);
    let nodes = cluster.slurm("squeue", &["-h", "-t", "R", "-o", "%N"]);
    let node = format!("slurmd.{}", nodes.trim());
    // With all that runs on it, Slurm's own step daemon as well: how it went is unknown.
    let session = cluster.slurm("ps", &["-o", "sid=", "-p", &cluster.runner_pid()]);
    let dying = cluster.slurm("ps", &["-o", "pid=", "-s", session.trim()]);
    let dying: Vec<&str> = ["-KILL"].into_iter().chain(dying.split_whitespace()).collect();
    assert!(dying.len() > 3, "a step daemon, a runner and its jobs: {dying:?}");
    assert!(cluster.lab(&["signal", &node, "KILL"]).status.success());
    cluster.slurm("kill", &dying);
    let job = cluster.slurm_job();
    cluster.wait("verdict of Slurm", 90, || {
        !cluster
            .slurm("squeue", &["-h", "-j", &job, "--states=all", "-o", "%T"])
            .contains("RUNNING")
    });
    cluster.torc(&["workflows", "sync-status", "latest"]);
    cluster.wait("ready jobs", 120, || cluster.counts().get("ready") == Some(&2));
    cluster.wait("ended allocation", 60, || cluster.allocations()[0]["status"] == "complete");
    cluster.wait_for_cause("node_fail", 2, "node");
    assert!(cluster.lab(cluster.start_arguments()).status.success());
    cluster.regenerate(&[]);
    cluster.wait_for_success(2, 120);
    cluster.assert_witnessed_once(2);
}

#[test]
fn a_walltime_that_slurm_shortens_is_not_the_jobs_fault() {
    let Some(cluster) = campaign() else { return };
    cluster.submit(&spec("main", 2, 100.0, "").replace("runtime: 1m", "runtime: 3m"));
    cluster.wait_for_running(2);
    // The runner believes that it has ten minutes.
    cluster
        .slurm("scontrol", &["update", &format!("jobid={}", cluster.slurm_job()), "timelimit=1"]);
    cluster.wait("ended allocation", 180, || cluster.allocations()[0]["status"] == "complete");
    cluster.wait_for_cause("walltime", 2, "walltime");
    cluster.wait("ready jobs", 60, || cluster.counts().get("ready") == Some(&2));
}

#[test]
fn whatever_breaks_every_job_succeeds_once() {
    let Some(cluster) = campaign() else { return };
    // Thirty allocations die in turn of everything that kills allocations, until the jobs of the
    // last one get through. One runner works on both nodes: of three jobs, one on each at a time.
    let ways = ["scancel", "runner", "node", "preempt", "controller", "server"];
    let text = spec("scav", 3, 8.0, "").replace("num_cpus: 1", "num_cpus: 3");
    let text = text.replace("nodes: 1", "nodes: 2");
    let again = ["--partition", "scav", "--single-allocation"];
    let mut servers = Vec::new();
    let mut broken = std::collections::BTreeMap::<&str, usize>::new();
    let is_complete = |cluster: &Cluster| cluster.counts().get("completed") == Some(&3);
    let mut complete = 1;
    cluster.submit(&text);
    for cycle in 0..30 {
        cluster.wait("running jobs", 120, || {
            cluster.counts().get("running").copied().unwrap_or(0) >= 1
        });
        // A controller that was killed goes back in time and may show a job again that had ended,
        // so what counts is what was asked for: one allocation at a time, and no name twice.
        let open = cluster.allocations().iter().filter(|a| a["status"] != "complete").count();
        assert_eq!(open, 1, "cycle {cycle}: {:?}", cluster.allocations());
        let names = cluster.slurm("squeue", &["-h", "-t", "PD,R", "-o", "%j"]);
        let ours: Vec<&str> = names.lines().filter(|name| name.starts_with("torc-wf")).collect();
        let unique: std::collections::BTreeSet<&&str> = ours.iter().collect();
        assert_eq!(unique.len(), ours.len(), "cycle {cycle}: {names}");
        let job = cluster.slurm_job();
        // A node that is not the first one takes its own jobs with it, and the allocation goes on.
        let way = match ways[cycle % ways.len()] {
            "node" if cycle % (2 * ways.len()) < ways.len() => "other node",
            way => way,
        };
        *broken.entry(way).or_default() += 1;
        let causes = || -> Vec<String> {
            cluster
                .attempts()
                .into_iter()
                .map(|attempt| attempt.3)
                .filter(|cause| !cause.is_empty())
                .collect()
        };
        let before = causes().len();
        match way {
            "scancel" => drop(cluster.slurm("scancel", &[&job])),
            "runner" => drop(cluster.slurm("kill", &["-KILL", &cluster.runner_pid()])),
            "node" | "other node" => {
                let head = cluster.slurm("squeue", &["-h", "-j", &job, "-o", "%B"]);
                let list = cluster.slurm("squeue", &["-h", "-j", &job, "-o", "%N"]);
                let all = cluster.slurm("scontrol", &["show", "hostnames", list.trim()]);
                // For a last job there is one node only.
                let other = all.lines().find(|node| way == "other node" && *node != head.trim());
                let node = format!("nodename={}", other.unwrap_or(head.trim()));
                cluster.slurm("scontrol", &["update", &node, "state=down", "reason=test"]);
                cluster.slurm("scontrol", &["update", &node, "state=resume"]);
            }
            "preempt" => {
                let more = ["-J", "preemptor", "-o", "/dev/null", "--wrap", "sleep 1"];
                cluster
                    .slurm("sbatch", &[&["-p", "main", "-N3", "--exclusive"][..], &more].concat());
            }
            // The allocation ends while no server is there to see it.
            "server" => {
                let address = cluster.kill_server();
                cluster.slurm("scancel", &[&job]);
                cluster.wait("end in Slurm", 60, || {
                    cluster
                        .slurm("squeue", &["-h", "-t", "PD,R,CG", "-j", &job, "-o", "%i"])
                        .trim()
                        .is_empty()
                });
                servers.push(cluster.serve_at(&address));
            }
            _ => {
                assert!(cluster.lab(&["signal", "slurmctld", "KILL"]).status.success());
                assert!(cluster.lab(cluster.start_arguments()).status.success());
                cluster.slurm("scancel", &[&job]);
            }
        }
        cluster.wait("end of the allocation", 180, || {
            cluster.torc(&["workflows", "sync-status", "latest"]);
            cluster.allocations().iter().all(|a| a["status"] == "complete")
        });
        // A controller that was killed may have forgotten that the job was canceled.
        cluster.wait("end in Slurm", 120, || {
            let there = cluster.slurm("squeue", &["-h", "-t", "PD,R", "-j", &job, "-o", "%i"]);
            if !there.trim().is_empty() {
                cluster.slurm("scancel", &[&job]);
            }
            there.trim().is_empty()
        });
        // A controller that was killed may also start a preemptor again that was over.
        cluster.slurm("scancel", &["--name=preemptor"]);
        cluster
            .wait("free jobs", 60, || cluster.counts().get("running").copied().unwrap_or(0) == 0);
        // The attempts say what became of them, as soon as Slurm does; a preemptor of the
        // controller's past may interfere.
        let expected: &[&str] = match way {
            "scancel" => &["stopped", "preempted"],
            "runner" => &["lost", "preempted"],
            "node" | "other node" => &["node_fail", "preempted"],
            "server" => &["stopped", "lost", "preempted"],
            "preempt" => &["preempted"],
            _ => &["stopped", "lost", "node_fail", "preempted"],
        };
        let unexplained =
            || causes().into_iter().skip(before).find(|cause| !expected.contains(&cause.as_str()));
        cluster.wait(
            &format!("cause for {way} in cycle {cycle}, but {:?}", unexplained()),
            60,
            || unexplained().is_none(),
        );
        if is_complete(&cluster) {
            cluster.assert_witnessed_once(3);
            complete += 1;
            cluster.submit(&text);
            std::fs::remove_file(cluster.dir.path().join("witness")).expect("witnesses");
            continue;
        }
        cluster.regenerate(&again);
        println!("cycle {cycle}: {way}, {} allocations so far", cluster.allocations().len());
    }
    // What the last of them set going may still end an allocation.
    cluster.wait("complete workflow", 300, || {
        if cluster.allocations().iter().all(|a| a["status"] == "complete") && !is_complete(&cluster)
        {
            cluster.regenerate(&again);
        }
        is_complete(&cluster)
    });
    cluster.assert_witnessed_once(3);
    println!(
        "30 cycles {broken:?}: no duplicate allocation, {complete} workflows complete, every job witnessed once"
    );
    for mut server in servers {
        // All but the last were killed.
        let _ = server.kill();
        server.wait().expect("gone");
    }
}

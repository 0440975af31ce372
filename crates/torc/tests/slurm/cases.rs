//! Cases that Torc 1.0.0 checked on a cluster and that have no other test here, the page that lists all
//! of them, and how much of an allocation stages of jobs use.

use crate::cluster::cluster;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

pub fn spec(more: &str, scheduler: &str, jobs: &str) -> String {
    format!(
        "name: w
{more}
slurm_schedulers:
  - {{name: s, account: a, partition: main, walltime: '00:10:00', {scheduler}}}
jobs:
{jobs}
actions:
  - {{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm, num_allocations: 1}}
"
    )
}

#[test]
fn jobs_in_a_row_run_in_order_in_one_allocation() {
    let Some(cluster) = cluster() else { return };
    let jobs = "  - {name: a, scheduler: s, command: 'echo a >> order'}
  - {name: b, scheduler: s, command: 'echo b >> order', depends_on: [a]}
  - {name: c, scheduler: s, command: 'echo c >> order', depends_on: [b]}";
    cluster.submit(&spec("", "nodes: 1, ntasks_per_node: 2, mem: 500m", jobs));
    cluster.wait_for_success(3, 60);
    let order = std::fs::read_to_string(cluster.dir.path().join("order")).expect("written");
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c"]);
    let rows =
        cluster.json(&["results", "list"])["results"].as_array().cloned().unwrap_or_default();
    assert!(rows.len() == 3 && rows.iter().all(|row| row["return_code"] == 0), "{rows:?}");
    assert_eq!(cluster.allocations().len(), 1);
}

#[test]
fn what_jobs_use_is_measured_on_the_cluster() {
    let Some(cluster) = cluster() else { return };
    // Works for two seconds and holds 300 MB meanwhile.
    let work =
        "import time; x = bytearray(300 << 20); e = time.time() + 2\\nwhile time.time() < e: pass";
    std::fs::write(cluster.dir.path().join("work.py"), work.replace("\\n", "\n")).expect("written");
    let more =
        "resource_monitor: {enabled: true, granularity: time_series, sample_interval_seconds: 0.5}
execution_config: {mode: direct}";
    let jobs = "  - {name: busy, scheduler: s, command: 'python3 work.py'}";
    cluster.submit(&spec(more, "nodes: 1, ntasks_per_node: 2, mem: 1000m", jobs));
    cluster.wait_for_success(1, 90);
    let row = cluster.json(&["results", "list"])["results"][0].clone();
    assert!(row["cpu_seconds"].as_f64().is_some_and(|seconds| seconds > 0.5), "{row}");
    assert!(row["peak_memory_bytes"].as_i64().is_some_and(|bytes| bytes > 300 << 20), "{row}");
    let series = cluster.slurm("sh", &["-c", "cat output/resource_utilization/* | wc -l"]);
    let samples: i64 = series.trim().parse().expect("a number");
    assert!(samples >= 3, "{series}");
}

#[test]
fn a_handler_tries_a_job_again_in_the_same_allocation() {
    let Some(cluster) = cluster() else { return };
    let more = "failure_handlers: [{name: h, rules: [{exit_codes: [42], max_retries: 3}]}]";
    let jobs = "  - {name: flaky, scheduler: s, failure_handler: h, \
                command: 'test -e again || { touch again; exit 42; }; echo $TORC_JOB_NAME >> witness'}";
    cluster.submit(&spec(more, "nodes: 1, ntasks_per_node: 1, mem: 500m", jobs));
    cluster.wait_for_success(1, 60);
    cluster.assert_witnessed_once(1);
    let attempts: BTreeSet<i64> = cluster.attempts().into_iter().map(|attempt| attempt.1).collect();
    assert!(attempts.contains(&2), "{attempts:?}");
    assert_eq!(cluster.allocations().len(), 1);
}

#[test]
fn stages_of_wide_and_small_jobs_use_their_allocation() {
    let Some(cluster) = cluster() else { return };
    // Two nodes of four CPUs: eight small jobs at a time, or one on both nodes. Each stage fills the allocation.
    let more = "resource_requirements:
  - {name: small, num_cpus: 1, memory: 100m, runtime: 1m}
  - {name: wide, num_cpus: 1, num_nodes: 2, memory: 100m, runtime: 1m}";
    let jobs = "  - {name: 'a{i}', scheduler: s, command: 'sleep 8; echo $TORC_JOB_NAME >> witness', resource_requirements: small, parameters: {i: '1:16'}}
  - {name: wide, scheduler: s, resource_requirements: wide, depends_on_regexes: ['a.*'],
     command: 'srun -N2 --ntasks-per-node=1 -n2 --nodelist=$TORC_NODELIST sleep 10 && echo $TORC_JOB_NAME >> witness'}
  - {name: 'b{i}', scheduler: s, command: 'sleep 8; echo $TORC_JOB_NAME >> witness', resource_requirements: small, depends_on: [wide], parameters: {i: '1:16'}}";
    cluster.submit(&spec(more, "nodes: 2, ntasks_per_node: 4, mem: 1500m", jobs));
    cluster.wait_for_success(33, 180);
    cluster.assert_witnessed_once(33);
    let rows =
        cluster.json(&["results", "list"])["results"].as_array().cloned().unwrap_or_default();
    let ms = |row: &Value, key: &str| row[key].as_i64().unwrap_or_else(|| panic!("{row}"));
    let begin = rows.iter().map(|row| ms(row, "started_ms")).min().expect("results");
    let end = rows.iter().map(|row| ms(row, "ended_ms")).max().expect("results");
    let used: i64 = rows
        .iter()
        .map(|row| {
            let cpus = if row["job_name"] == "wide" { 8 } else { 1 };
            (ms(row, "ended_ms") - ms(row, "started_ms")) * cpus
        })
        .sum();
    let share = used as f64 / (8 * (end - begin)) as f64;
    println!("stages of wide and small jobs used {:.1}% of their allocation", 100.0 * share);
    assert!(share >= 0.9, "{:.1}%", 100.0 * share);
}

#[test]
fn every_case_of_the_page_is_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/slurm-tests.md")).expect("the page");
    let mut tests = BTreeSet::new();
    for file in std::fs::read_dir(root.join("tests/slurm")).expect("tests").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("readable");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let name = (line == "#[test]").then(|| lines.next()).flatten();
            let name = name.and_then(|line| line.strip_prefix("fn ")?.split('(').next());
            tests.extend(name.map(str::to_owned));
        }
    }
    // The first table; figures follow.
    let cases = page.split("\n## ").next().unwrap_or_default();
    let rows: Vec<Vec<&str>> = cases
        .lines()
        .filter(|line| {
            line.starts_with("| ") && !line.starts_with("| case") && !line.starts_with("| ---")
        })
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 14, "{rows:?}");
    for row in rows {
        let named: Vec<&str> =
            row[2].split(',').map(|name| name.trim().trim_matches('`')).collect();
        assert!(!named.is_empty(), "{row:?}");
        for name in named {
            assert!(tests.contains(name), "`{name}` is no test on the cluster");
        }
    }
}

//! Answers about a workflow of 100,000 jobs come at once. Only a release build says something:
//! `cargo test --release -p torc-server --test it speed -- --ignored --nocapture`

use crate::world::{World, claim, completion, registration};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const JOBS: usize = 100_000;
const LIMIT: Duration = Duration::from_millis(30);

#[tokio::test]
#[ignore = "needs a release build and half a minute"]
async fn lists_of_a_large_workflow_are_quick() {
    let world = World::new().await;
    let jobs: Vec<Value> = (0..JOBS).map(|i| json!({"name": format!("job_{i:06}"), "command": "true"})).collect();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let request = json!({"spec": {"name": "large", "jobs": jobs}, "initialize": true});
    let created = world.post("/workflows", &request).await.ok();
    println!("created in {:?}, {:.1} s of CPU", begun.elapsed(), cpu_seconds() - cpu);
    let id = created["id"].as_i64().unwrap();
    let mut registration = registration(id, "large");
    registration["capacity"] = json!({"num_cpus": 4000, "memory_bytes": 1u64 << 50, "num_nodes": 1});
    let runner = world.post("/compute_nodes", &registration).await.ok()["id"].as_i64().unwrap();
    let mut completed: Vec<Value> = Vec::new();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for round in 0..JOBS / 2000 {
        let mut request = claim(runner, &format!("r{round}"));
        request["limit"] = json!(1000);
        request["capacity"] = registration["capacity"].clone();
        request["completed"] = json!(completed);
        let claimed = world.post(&format!("/workflows/{id}/claim"), &request).await.ok();
        completed = claimed["attempts"].as_array().unwrap().iter().map(|a| completion(a, (round % 2) as i64)).collect();
        assert_eq!(completed.len(), 1000);
    }
    println!("half of them ran in {:?}, {:.1} s of CPU", begun.elapsed(), cpu_seconds() - cpu);
    let mut slow = Vec::new();
    let asked_often = [
        format!("/workflows/{id}/status"),
        format!("/workflows/{id}/is_complete"),
        format!("/jobs?workflow_id={id}&limit=50"),
        format!("/jobs?workflow_id={id}&limit=50&status=failed"),
        format!("/jobs?workflow_id={id}&limit=50&status=failed,ready,running&reverse_sort=true"),
        format!("/jobs?workflow_id={id}&limit=50&sort_by=name&reverse_sort=true"),
        format!("/jobs?workflow_id={id}&name=job_050000"),
        format!("/results?workflow_id={id}&limit=50&all_runs=true"),
        format!("/workflows/{id}/events?limit=50&reverse_sort=true"),
        format!("/compute_nodes?workflow_id={id}"),
    ];
    let asked_rarely = [
        format!("/jobs?workflow_id={id}&limit=50&offset=90000"),
        format!("/results?workflow_id={id}&limit=50"),
        format!("/jobs?workflow_id={id}&limit=50&search=job_05"),
        format!("/jobs?workflow_id={id}&limit=50&sort_by=priority"),
    ];
    for path in asked_often.iter().chain(&asked_rarely) {
        let mut best = Duration::MAX;
        for _ in 0..20 {
            let begun = Instant::now();
            world.get(path).await.ok();
            best = best.min(begun.elapsed());
        }
        println!("{best:>12.3?}  {path}");
        if best > LIMIT && asked_often.contains(path) {
            slow.push(path);
        }
    }
    assert!(slow.is_empty(), "slower than {LIMIT:?}: {slow:#?}");
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

//! The workflows that are measured.

use serde_json::{Value, json};

/// Independent jobs.
pub fn flat(jobs: usize, command: &str) -> Value {
    let jobs: Vec<Value> =
        (0..jobs).map(|n| json!({"name": format!("j{n}"), "command": command})).collect();
    json!({"name": "flat", "jobs": jobs})
}

/// Each job after the one before it. Each prints when it started, in seconds with a fraction.
pub fn chain(jobs: usize) -> Value {
    let job = |n: usize| match n {
        0 => json!({"name": "j0", "command": TELL_TIME}),
        _ => {
            json!({"name": format!("j{n}"), "command": TELL_TIME, "depends_on": [format!("j{}", n - 1)]})
        }
    };
    json!({"name": "chain", "jobs": (0..jobs).map(job).collect::<Vec<_>>()})
}

/// Prints the time without starting another program.
pub const TELL_TIME: &str = "echo $EPOCHREALTIME";

/// One job, then many, then one.
pub fn fan(width: usize) -> Value {
    let mut jobs = vec![json!({"name": "first", "command": "true"})];
    jobs.extend(
        (0..width)
            .map(|n| json!({"name": format!("j{n}"), "command": "true", "depends_on": ["first"]})),
    );
    let all: Vec<String> = (0..width).map(|n| format!("j{n}")).collect();
    jobs.push(json!({"name": "last", "command": "true", "depends_on": all}));
    json!({"name": "fan", "jobs": jobs})
}

/// Layers in which each job waits for every job of the layer before.
pub fn layers(layers: usize, width: usize) -> Value {
    let names =
        |layer: usize| -> Vec<String> { (0..width).map(|n| format!("l{layer}_{n}")).collect() };
    let mut jobs = Vec::new();
    for layer in 0..layers {
        let before = if layer == 0 { Vec::new() } else { names(layer - 1) };
        jobs.extend(
            names(layer)
                .into_iter()
                .map(|name| json!({"name": name, "command": "true", "depends_on": before})),
        );
    }
    json!({"name": "layers", "jobs": jobs})
}

/// Jobs that wait for two earlier ones each.
pub fn two_parents(jobs: usize) -> Value {
    let job = |n: usize| {
        let parents: Vec<String> = if n < 2 {
            Vec::new()
        } else {
            vec![format!("j{}", n - 1), format!("j{}", n / 2 - usize::from(n < 4))]
        };
        json!({"name": format!("j{n}"), "command": format!("echo {n}"), "depends_on": parents})
    };
    json!({"name": "edges", "jobs": (0..jobs).map(job).collect::<Vec<_>>()})
}

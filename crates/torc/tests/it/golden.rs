//! The golden specs: each isolates one rule of the spec language, run to its end by the real
//! program.

use crate::support::{Done, Test, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Names of the jobs of the latest workflow with the names of what they depend on.
fn graph(test: &Test) -> BTreeMap<String, BTreeSet<String>> {
    let jobs = test.torc(["-f", "json", "jobs", "list"]).success().json();
    let jobs = jobs["jobs"].as_array().expect("jobs").clone();
    let names: BTreeMap<i64, String> = jobs
        .iter()
        .map(|job| (job["id"].as_i64().expect("id"), text(&job["name"]).to_string()))
        .collect();
    let parents = |id: i64| -> BTreeSet<String> {
        let job = test.torc(["-f", "json", "jobs", "get", &id.to_string()]).success().json();
        let ids = job["depends_on_job_ids"].as_array().expect("dependencies").clone();
        ids.iter().map(|id| names[&id.as_i64().expect("id")].clone()).collect()
    };
    names.iter().map(|(id, name)| (name.clone(), parents(*id))).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn succeeds(test: &Test, jobs: usize) -> Done {
    let done = test.run().expect(0);
    let status = test.torc(["-f", "json", "status"]).success().json();
    assert_eq!(status["counts"]["completed"], jobs, "{status}");
    assert_eq!(status["is_complete"], true);
    done
}

#[test]
fn g1_files_make_a_diamond() {
    let test = Test::new().spec(include_str!("../../../torc-spec/tests/golden/diamond.yaml"));
    succeeds(&test, 4);
    assert_eq!(test.read("work/out.txt"), "1\n1\n");
    let graph = graph(&test);
    assert_eq!(graph["pre"], set(&[]));
    assert_eq!(graph["left"], set(&["pre"]));
    assert_eq!(graph["right"], set(&["pre"]));
    assert_eq!(graph["post"], set(&["left", "right"]));
}

#[test]
fn g2_a_sweep_and_its_collector() {
    let test = Test::new().spec(include_str!("../../../torc-spec/tests/golden/sweep.yaml"));
    succeeds(&test, 7);
    let graph = graph(&test);
    let sweep = set(&["t_0.10_a", "t_0.10_b", "t_0.20_a", "t_0.20_b", "t_0.30_a", "t_0.30_b"]);
    assert_eq!(graph["collect"], sweep);
    assert_eq!(test.torc(["logs", "t_0.20_b", "--stdout"]).success().stdout, "0.2 b\n");
}

#[test]
fn g3_zip_takes_values_pairwise() {
    let zip = |d: &str| {
        format!(
            r#"
name: zip
jobs:
  - {{name: "p_{{d}}_{{m}}", command: "echo {{d}} {{m}}", parameter_mode: zip, parameters: {{d: "{d}", m: "1:3"}}}}
"#
        )
    };
    let test = Test::new().spec(&zip("['x','y','z']"));
    succeeds(&test, 3);
    assert_eq!(
        graph(&test).into_keys().collect::<BTreeSet<_>>(),
        set(&["p_x_1", "p_y_2", "p_z_3"])
    );

    let test = Test::new().spec(&zip("['x','y']"));
    let done = test.run().expect(2);
    for word in ["`d`", "`m`", "2", "3"] {
        assert!(done.stderr.contains(word), "{word} is not in\n{}", done.stderr);
    }
    assert!(!test.exists(".torc/torc.db"), "a wrong spec leaves nothing behind");
}

#[test]
fn g4_parameters_are_shared_and_overridden() {
    let test = Test::new().spec(include_str!("../../../torc-spec/tests/golden/shared.yaml"));
    succeeds(&test, 7);
    let graph = graph(&test);
    assert_eq!(graph["train_0.01_u"], set(&["prep_u"]));
    assert_eq!(graph["train_0.1_v"], set(&["prep_v"]));
    assert_eq!(graph.keys().filter(|name| name.starts_with("one_")).count(), 1);
}

#[test]
fn g6_user_data_is_handed_over() {
    let test = Test::new().spec(
        r#"
name: ud
user_data:
  - {name: cfg, data: {n: 3}}
  - {name: res}
jobs:
  - {name: consume, command: "torc user-data get res > got.json", input_user_data: [res]}
  - name: produce
    command: |
      echo '${user_data.input.cfg}' > config.json
      torc user-data update res '{"sum": 6}'
    input_user_data: [cfg]
    output_user_data: [res]
"#,
    );
    succeeds(&test, 2);
    assert_eq!(graph(&test)["consume"], set(&["produce"]));
    let json = |name: &str| serde_json::from_str::<Value>(&test.read(name)).expect(name);
    assert_eq!(json("config.json"), serde_json::json!({"n": 3}));
    assert_eq!(json("got.json"), serde_json::json!({"sum": 6}));
}

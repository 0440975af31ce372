//! Steps, handlers, map and reduce: what people write and what it becomes.

use crate::{names, parents, plan, plan_with_warnings, spec, try_plan};
use serde_json::{Value, json};
use torc_spec::{Spec, SpecFormat};

fn steps_of(text: &str) -> Value {
    let plan = plan(text, SpecFormat::Yaml);
    plan.jobs[0].steps.clone().unwrap_or_else(|| panic!("no steps"))
}

fn job(step: &str) -> String {
    format!("name: w\njobs:\n  - name: j\n    steps:\n{step}")
}

#[test]
fn every_form_of_a_handler_is_the_same_handler() {
    let forms = [
        "      - shell: make\n        on_failure: fix\n",
        "      - shell: make\n        on_failure: [fix]\n",
        "      - shell: make\n        on_failure: {shell: fix}\n",
        "      - shell: make\n        on_failure: [{shell: fix}]\n",
        "      - shell: make\n        on_failure: {commands: [fix]}\n",
        "      - shell: make\n        on_failure: {commands: fix, strategy: recovery, max_attempts: 1}\n",
        "      - shell: make\n      - on_failure: fix\n",
        "      - make\n      - on_failure: {shell: fix}\n",
        "      - \"shell: make\"\n      - on_failure: \"shell: fix\"\n",
    ];
    let expected =
        json!({"steps": [{"shell": "make", "on_failure": {"commands": [{"shell": "fix"}]}}]});
    for form in forms {
        assert_eq!(steps_of(&job(form)), expected, "{form}");
    }
}

const SEED: &str = include_str!("../shared/tasks_and_map.yaml");

#[test]
fn a_file_of_nothing_but_steps_is_one_job() {
    for text in [
        "- make\n- shell: test -e it\n",
        "tasks: [make, {shell: test -e it}]",
        "commands: [make, 'shell: test -e it']",
    ] {
        let plan = plan(text, SpecFormat::Yaml);
        assert_eq!(names(&plan), ["main"], "{text}");
        let steps = plan.jobs[0].steps.clone().unwrap();
        assert_eq!(steps, json!({"steps": [{"shell": "make"}, {"shell": "test -e it"}]}), "{text}");
    }
    let wrong = try_plan("- make\n- 3: x\n", SpecFormat::Yaml).unwrap_err().render(false);
    assert!(wrong.contains("test.yaml:2:"), "{wrong}");
}

#[test]
fn tasks_and_a_map_become_jobs() {
    let plan = plan(SEED, SpecFormat::Yaml);
    assert_eq!(names(&plan), ["main", "map"]);
    assert_eq!(parents(&plan, "map"), ["main"]);
    let steps = plan.jobs[1].steps.as_ref().unwrap();
    assert_eq!(steps["steps"].as_array().unwrap().len(), 2);
    assert_eq!(steps["steps"][1]["validate"][0]["shell"], "test-performance ${item}");
    assert_eq!(
        steps["steps"][1]["on_failure"]["commands"][0]["claude"],
        "/rollback-optimization ${item}"
    );
    assert_eq!(
        plan.jobs[1].extra.map,
        Some(json!({"map": {"items": {"file": {"path": "items.json", "select": null}}}}))
    );
}

#[test]
fn the_canonical_form_reads_back_as_itself() {
    let text = r#"
name: w
agent: {command: "claude -p", max_calls: 3}
jobs:
  - name: m
    map: {items: [a, b], key: item, tolerate: "10%", sort: [-x]}
    steps:
      - shell: "test ${item}"
        retry: 3
        capture: {v: stdout, n: number}
        expect: "n > 1"
        validate: ["true", {shell: "x"}]
        timeout: 5m
        handler_failure_fatal: true
        on_failure: {claude: "fix ${error.message}", max_attempts: 2}
      - on_success: "echo ok"
  - {name: r, reduce: m, command: "echo ${map.total}", on_failure: "echo"}
"#;
    let first = spec(text, SpecFormat::Yaml);
    let again = Spec::from_value(first.to_value()).unwrap().spec;
    assert_eq!(first.to_value(), again.to_value());
    for format in [SpecFormat::Json, SpecFormat::Json5, SpecFormat::Kdl, SpecFormat::Yaml] {
        let written = first.write(format);
        let read = spec(&written, format);
        assert_eq!(read.to_value(), first.to_value(), "{format}:\n{written}");
    }
}

#[test]
fn kdl_writes_steps_as_lists() {
    let text = r#"
name "w"
job "j" {
    steps {
        - "make"
        - { on_failure "fix" }
        - {
            shell "test"
            retry attempts=2 delay=0.5
            capture version="stdout"
            on_failure {
                strategy "cleanup"
                commands "rm -f x" "rm -f y"
            }
        }
    }
}
"#;
    let plan = plan(text, SpecFormat::Kdl);
    let steps = plan.jobs[0].steps.as_ref().unwrap();
    assert_eq!(steps["steps"][0]["on_failure"]["commands"][0]["shell"], "fix");
    assert_eq!(steps["steps"][1]["on_failure"]["commands"].as_array().unwrap().len(), 2);
    assert_eq!(steps["steps"][1]["retry"]["attempts"], 2);
}

fn error(text: &str) -> String {
    try_plan(text, SpecFormat::Yaml).unwrap_err().render(false)
}

#[test]
fn mistakes_are_explained_at_their_place() {
    for (step, expected) in [
        ("      - on_failure: fix\n", "follows no step"),
        ("      - shell: a\n        on_failue: b\n", "did you mean `on_failure`?"),
        ("      - shell: a\n        claude: b\n", "either `shell` or `claude`"),
        ("      - name: x\n", "this step does nothing"),
        (
            "      - shell: a\n        on_failure: b\n      - on_failure: c\n",
            "has an `on_failure` already",
        ),
        (
            "      - shell: a\n        on_failure: {strategy: cleanup, max_attempts: 2, commands: b}\n",
            "runs once",
        ),
        ("      - shell: a\n        on_failure: {commands: b, shell: c}\n", "not both"),
        ("      - shell: a\n        on_failure: {strategy: recovery}\n", "runs nothing"),
        ("      - shell: a\n        capture: {PATH: stdout}\n", "small letters"),
        ("      - shell: a\n        capture: {x: nowhere}\n", "is not a source"),
        ("      - shell: a\n        when: \"x = 1\"\n", "write `==`"),
        ("      - shell: \"echo ${errr.message}\"\n", "nothing is called `errr`"),
        ("      - shell: \"echo ${error.message}\"\n", "known only in handlers"),
        (
            "      - shell: a\n        on_failure: \"echo ${error.mesage}\"\n",
            "did you mean `error.message`?",
        ),
        ("      - shell: \"echo ${item.x}\"\n", "known only in a job with `map`"),
        ("      - claude: \"say ${nothing}\"\n", "nothing is called `nothing`"),
        (
            "      - shell: \"echo ${v}\"\n      - {shell: b, capture: v}\n",
            "captured later, or not always",
        ),
        (
            "      - {shell: b, capture: v, when: \"job.attempt == 1\"}\n      - shell: \"echo ${v}\"\n",
            "captured later, or not always",
        ),
        (
            "      - shell: a\n        handler_failure_fatal: true\n        on_failure: {shell: b, handler_failure_fatal: false}\n",
            "contradict",
        ),
    ] {
        let found = error(&job(step));
        assert!(found.contains(expected), "expected {expected:?} in:\n{found}");
        assert!(found.contains("test.yaml:"), "no place in:\n{found}");
    }
    assert!(
        plan_with_warnings(
            &job(
                "      - {shell: b, capture: v, when: \"job.attempt == 1\"}\n      - shell: \"echo \\\"${v:-}\\\"\"\n"
            ),
            SpecFormat::Yaml
        )
        .1
        .is_empty()
    );
}

#[test]
fn doubts_are_told() {
    for (step, expected) in [
        ("      - shell: tsc\n        on_failure: {claude: fix}\n", "not verified"),
        ("      - shell: \"true\"\n        on_failure: fix\n", "never reached"),
        (
            "      - {shell: b, capture: v}\n      - shell: \"bash -c 'echo ${v}'\"\n",
            "single quotes",
        ),
        ("      - {shell: b, capture: v}\n      - shell: \"echo ${v}\"\n", "not quoted"),
        ("      - shell: a\n        on_failure: /fix-it now\n", "did you mean `claude:"),
    ] {
        let (_, found) = plan_with_warnings(&job(step), SpecFormat::Yaml);
        assert!(
            found.render(false).contains(expected),
            "expected {expected:?} in:\n{}",
            found.render(false)
        );
    }
    let quiet = "      - {shell: b, capture: v}\n      - shell: \"echo \\\"${v}\\\" | awk '{print $1}' ${x:-0}\"\n";
    let (_, found) = plan_with_warnings(&job(quiet), SpecFormat::Yaml);
    assert!(found.is_empty(), "{found}");
}

#[test]
fn items_of_a_list_become_jobs_and_the_map_waits_for_them() {
    let text = r#"
name: w
jobs:
  - {name: up, command: "true"}
  - name: types
    depends_on: [up]
    map: {items: [{id: a, n: 1}, {id: b, n: 5}, {id: c, n: 9}], key: item.id, where: "item.n > 1", sort: [-n]}
    command: "echo ${item.n}"
  - {name: report, reduce: types, command: "echo ${map.total} ${map.results.file}"}
"#;
    let plan = plan(text, SpecFormat::Yaml);
    assert_eq!(names(&plan), ["up", "types", "report", "types/c", "types/b"]);
    assert_eq!(parents(&plan, "types"), ["up", "types/c", "types/b"]);
    assert_eq!(parents(&plan, "types/b"), ["up"]);
    assert_eq!(parents(&plan, "report"), ["types"]);
    assert_eq!(plan.jobs[4].steps, None);
    assert_eq!(
        plan.jobs[4].extra.map,
        Some(json!({"item": {"of": "types", "key": "b", "item": {"id": "b", "n": 5}}}))
    );
    assert!(
        error("name: w\njobs:\n  - {name: m, map: {items: [a, a]}, command: x}\n")
            .contains("same key: `a`")
    );
    assert!(
        error("name: w\njobs:\n  - {name: m, command: x}\n  - {name: r, reduce: m, command: x}\n")
            .contains("is not a job with `map`")
    );
}

#[test]
fn files_and_parameters_work_in_steps() {
    let text = r#"
name: w
files:
  - {name: "mesh_{case}", path: "mesh/{case}.msh", parameters: {case: "1:2"}}
  - {name: "out-{case}", path: "out/{case}.h5", parameters: {case: "1:2"}}
jobs:
  - name: "solve_{case}"
    parameters: {case: "1:2"}
    steps:
      - shell: cp "${files.input.mesh_{case}}" x
      - shell: cp x "${files.output.out-{case}}"
  - {name: post, command: "cat ${files.input.out-1}"}
"#;
    let plan = plan(text, SpecFormat::Yaml);
    let steps = plan.jobs[1].steps.as_ref().unwrap();
    assert_eq!(steps["steps"][0]["shell"], "cp \"${files.input.mesh_2}\" x");
    assert_eq!(steps["steps"][1]["shell"], "cp x \"${files.output.out_2}\"");
    assert_eq!(
        steps["values"],
        json!({"files": {"input": {"mesh_2": "mesh/2.msh"}, "output": {"out_2": "out/2.h5"}}})
    );
    assert_eq!(parents(&plan, "post"), ["solve_1"]);
}

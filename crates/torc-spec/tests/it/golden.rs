//! Small specs that each isolate one rule of the language.

use crate::{names, parents, plan, plan_with_warnings, spec, try_plan};
use serde_json::json;
use torc_model::plan::{
    ActionKind, Backoff, JobExtra, JobSettings, Shell, Stdio, StdioMode, Strictness,
};
use torc_model::status::Trigger;
use torc_model::units::{Memory, Runtime};
use torc_spec::{Spec, SpecFormat};

const DIAMOND: &str = include_str!("../golden/diamond.yaml");

#[test]
fn files_make_dependencies() {
    let (plan, warnings) = plan_with_warnings(DIAMOND, SpecFormat::Yaml);
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!(parents(&plan, "pre"), Vec::<String>::new());
    assert_eq!(parents(&plan, "left"), ["pre"]);
    assert_eq!(parents(&plan, "right"), ["pre"]);
    assert_eq!(parents(&plan, "post"), ["left", "right"]);
    assert_eq!(plan.jobs[3].command, "cat work/l.txt work/r.txt > work/out.txt");
}

#[test]
fn a_sweep_and_its_collector() {
    let plan = plan(include_str!("../golden/sweep.yaml"), SpecFormat::Yaml);
    assert_eq!(
        names(&plan),
        ["t_0.10_a", "t_0.10_b", "t_0.20_a", "t_0.20_b", "t_0.30_a", "t_0.30_b", "collect"]
    );
    assert_eq!(plan.jobs[2].command, "echo 0.2 a");
    assert_eq!(parents(&plan, "collect").len(), 6);
    assert_eq!(plan.jobs[0].extra.parameters["x"], json!(0.1));
}

#[test]
fn zip_goes_side_by_side() {
    let text = |m: &str| {
        format!(
            r#"
name: zip
jobs:
  - {{name: "p_{{d}}_{{m}}", command: "echo {{d}} {{m}}", parameter_mode: zip, parameters: {{d: "['x','y','z']", m: "{m}"}}}}
"#
        )
    };
    assert_eq!(names(&plan(&text("1:3"), SpecFormat::Yaml)), ["p_x_1", "p_y_2", "p_z_3"]);
    let errors = try_plan(&text("1:2"), SpecFormat::Yaml).unwrap_err();
    assert!(errors.0[0].message.contains("`d` has 3 values and `m` has 2"), "{errors}");
}

#[test]
fn shared_parameters_are_taken_by_name() {
    let plan = plan(include_str!("../golden/shared.yaml"), SpecFormat::Yaml);
    let expected = [
        "train_0.1_u",
        "train_0.1_v",
        "train_0.01_u",
        "train_0.01_v",
        "prep_u",
        "prep_v",
        "one_0.5",
    ];
    assert_eq!(names(&plan), expected);
    assert_eq!(parents(&plan, "train_0.01_v"), ["prep_v"]);
}

const RETRY: &str = r#"
name: retry
failure_handlers:
  - name: h
    rules:
      - {exit_codes: [10], recovery_script: "./fix.sh", max_retries: 3}
      - {match_all_exit_codes: true, max_retries: 1}
jobs:
  - {name: flaky, command: "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10", failure_handler: h}
  - {name: after, command: "true", depends_on: [flaky]}
"#;

#[test]
fn failure_handlers_are_linked() {
    let plan = plan(RETRY, SpecFormat::Yaml);
    assert_eq!(plan.jobs[0].failure_handler, Some(0));
    assert_eq!(plan.failure_handlers[0].rules[0].exit_codes, [10]);
    assert!(plan.failure_handlers[0].rules[1].match_all_exit_codes);
    assert_eq!(plan.jobs[0].command, "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10");
}

#[test]
fn user_data_is_handed_over() {
    let (plan, warnings) = plan_with_warnings(
        r#"
name: ud
user_data:
  - {name: cfg, data: {n: 3}}
  - {name: res}
jobs:
  - {name: produce, command: "echo '${user_data.input.cfg}'", input_user_data: [cfg], output_user_data: [res]}
  - {name: consume, command: "true", input_user_data: [res]}
  - {name: show, command: "echo ${user_data.input.res} \"got ${user_data.input.res}\""}
"#,
        SpecFormat::Yaml,
    );
    assert!(warnings.is_empty(), "{warnings}");
    assert_eq!(plan.jobs[0].command, r#"echo '{"n":3}'"#);
    assert_eq!(parents(&plan, "consume"), ["produce"]);
    assert_eq!(parents(&plan, "show"), ["produce"]);
    assert_eq!(plan.jobs[2].command, r#"echo "${TORC_USER_DATA_res}" "got ${TORC_USER_DATA_res}""#);
}

#[test]
fn values_that_would_break_quotes_are_noticed() {
    let text = |command: &str| {
        format!(
            "name: x\nuser_data:\n  - {{name: d, data: \"it's\"}}\n  - {{name: o, data: {{a: 1}}}}\njobs:\n  - name: j\n    command: |\n      {command}\n"
        )
    };
    let errors = try_plan(&text("echo '${user_data.input.d}'"), SpecFormat::Yaml).unwrap_err();
    assert!(errors.0[0].message.contains("single quote"), "{errors}");
    let (_, warnings) = plan_with_warnings(&text("echo ${user_data.input.o}"), SpecFormat::Yaml);
    assert!(warnings.0[0].message.contains("will interpret"), "{warnings}");
}

#[test]
fn actions_find_their_jobs() {
    let plan = plan(
        r#"
name: acts
slurm_schedulers:
  - {name: s1, account: acct, nodes: 1, walltime: "00:30:00"}
  - {name: s2, account: acct, nodes: 1, walltime: "04:00:00", gres: "gpu:1"}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 1g, runtime: PT10M}
  - {name: big, num_cpus: 8, memory: 32g, num_gpus: 1, runtime: PT2H}
jobs:
  - {name: a, command: "true", resource_requirements: small, scheduler: s1}
  - {name: "b_{i}", command: "true", resource_requirements: big, scheduler: s2, depends_on: [a], parameters: {i: "1:4"}}
actions:
  - {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s1, scheduler_type: slurm, num_allocations: 1}
  - {trigger_type: on_jobs_ready, action_type: schedule_nodes, job_name_regexes: ["^b_"], scheduler: s2, scheduler_type: slurm, num_allocations: 2}
  - {trigger_type: on_worker_start, action_type: run_commands, commands: ["echo set-up"], persistent: true}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ["echo bye"]}
"#,
        SpecFormat::Yaml,
    );
    assert_eq!(plan.actions[1].trigger, Trigger::OnJobsReady);
    assert_eq!(plan.actions[1].jobs, [1, 2, 3, 4]);
    assert!(
        matches!(&plan.actions[1].what, ActionKind::ScheduleNodes { scheduler, num_allocations: 2, .. } if scheduler == "s2")
    );
    assert!(plan.actions[2].persistent);
    assert_eq!(plan.slurm_schedulers[1].walltime, "04:00:00");
    assert_eq!(plan.resource_requirements[1].runtime, Some(Runtime(7200)));
    assert_eq!(plan.jobs[1].scheduler, Some(1));
}

#[test]
fn generous_values_become_canonical() {
    let text = r#"
name: kind
resource_requirements:
  - {name: r, num_cpus: "4", memory: 1.5GB, runtime: 2h30m}
failure_handlers:
  - name: h
    rules: [{exit_codes: 7, max_attempts: 5, backoff: 30s}, {signals: [segv, 9], backoff: {delay: 1m, max: 10m, jitter: 0.1}}]
jobs:
  - {name: a, command: true, resource_requirements: r, failure_handler: h, stdio: combined}
  - {name: b, command: sleep 1, depends_on: a, timeout: 90}
  - {name: "c_{x}", command: "echo {x}", parameters: {x: [1, two, 3.5, true, "1:2", 007]}}
"#;
    let spec = spec(text, SpecFormat::Yaml);
    let value = spec.to_value();
    assert_eq!(
        value["resource_requirements"][0],
        json!({"name": "r", "num_cpus": 4, "memory": "1536m", "runtime": "PT2H30M"})
    );
    assert_eq!(value["jobs"][1]["depends_on"], json!(["a"]));
    assert_eq!(value["jobs"][1]["timeout"], json!("PT1M30S"));
    assert_eq!(value["failure_handlers"][0]["rules"][1]["signals"], json!(["SIGSEGV", "SIGKILL"]));
    let plan = spec.plan().unwrap().0;
    assert_eq!(plan.jobs[0].command, "true");
    assert_eq!(plan.resource_requirements[0].memory, Some(Memory(3 << 29)));
    assert_eq!(plan.failure_handlers[0].rules[0].max_retries, 5);
    let backoff =
        Backoff { delay_seconds: 60.0, factor: 2.0, max_seconds: Some(600.0), jitter: 0.1 };
    assert_eq!(plan.failure_handlers[0].rules[1].backoff, Some(backoff));
    assert_eq!(names(&plan)[2..], ["c_1", "c_two", "c_3.5", "c_true", "c_1:2", "c_007"]);
}

/// The literals name every field, so that a new setting is tried here.
#[test]
fn settings_of_a_job_reach_the_plan_as_they_are_written() {
    let settings = JobSettings {
        max_lost_retries: Some(7),
        stdio: Some(Stdio { mode: StdioMode::Combined, delete_on_success: true }),
        enforce_runtime: Some(true),
    };
    let strictness = Strictness {
        shell: Some(Shell::Strict),
        tolerate_oom: true,
        accept_existing_outputs: true,
    };
    let extra = JobExtra { settings, strictness, ..JobExtra::default() };
    let mut job = json!({"name": "a", "command": "x"});
    let entry = job.as_object_mut().unwrap();
    entry.extend(json!(extra).as_object().unwrap().clone());
    let text = json!({"name": "w", "jobs": [job]}).to_string();
    assert_eq!(*plan(&text, SpecFormat::Json).jobs[0].extra, extra);
}

#[test]
fn explicit_lists_and_references_are_merged() {
    let plan = plan(
        "name: m\nfiles: [{name: a, path: a}, {name: b, path: b}]\njobs:\n  - {name: j, input_files: [b], command: 'cat ${files.input.a}'}\n",
        SpecFormat::Yaml,
    );
    assert_eq!(plan.jobs[0].input_files, [0, 1]);
}

#[test]
fn a_name_without_placeholder_gathers_all_instances() {
    let text = r#"
name: fan
parameters: {i: "1:3", j: "[a,b]"}
files:
  - {name: "out_{i}", path: "out/{i}.txt", use_parameters: [i]}
jobs:
  - {name: "sim_{i}", command: "echo {i} > ${files.output.out_{i}}", use_parameters: [i]}
  - {name: all, command: "cat ${files.input.out_{i}}", use_parameters: [i]}
  - {name: late, command: "true", use_parameters: [i], depends_on: ["sim_{i}"]}
  - {name: "part_{j}", command: "echo {j}", use_parameters: [i, j], depends_on: ["sim_{i}"]}
"#;
    let plan = plan(text, SpecFormat::Yaml);
    assert_eq!(names(&plan), ["sim_1", "sim_2", "sim_3", "all", "late", "part_a", "part_b"]);
    for job in ["all", "late", "part_a", "part_b"] {
        assert_eq!(parents(&plan, job), ["sim_1", "sim_2", "sim_3"], "{job}");
    }
    assert_eq!(plan.jobs[3].command, "cat out/1.txt out/2.txt out/3.txt");
    let errors =
        try_plan(&text.replace("command: \"true\"", "command: \"echo {i}\""), SpecFormat::Yaml)
            .unwrap_err();
    assert!(errors.0[0].message.contains("stands for all values of `i`"), "{errors}");
    assert!(errors.0[0].help.as_ref().unwrap().contains("put `{i}` into the name"), "{errors}");
}

#[test]
fn variables_are_put_in_everywhere() {
    let text = r#"
name: "run_{tag}"
variables: {tag: v2, mem: 4g, n: 3}
resource_requirements: [{name: r, memory: "{mem}", num_cpus: "{n}"}]
jobs:
  - {name: "j_{i:02d}", command: "go {tag} {i} ${HOME}", resource_requirements: r, parameters: {i: "1:{n}"}}
"#;
    let spec = spec(text, SpecFormat::Yaml);
    assert_eq!(spec.to_value()["resource_requirements"][0]["memory"], json!("{mem}"));
    let plan = spec.plan().unwrap().0;
    assert_eq!(plan.name, "run_v2");
    assert_eq!(names(&plan), ["j_01", "j_02", "j_03"]);
    assert_eq!(plan.jobs[2].command, "go v2 3 ${HOME}");
    assert_eq!(plan.resource_requirements[0].num_cpus, 3);
    let errors = try_plan(&text.replace("4g", "four"), SpecFormat::Yaml).unwrap_err();
    assert!(errors.0[0].message.contains("`four` is not a memory size"), "{errors}");
}

#[test]
fn the_canonical_json_is_read_back_unchanged() {
    for text in [DIAMOND, RETRY] {
        let first = spec(text, SpecFormat::Yaml);
        let second = Spec::from_value(first.to_value()).unwrap().spec;
        assert_eq!(first, second);
        assert_eq!(first.plan().unwrap(), second.plan().unwrap());
    }
    let errors = Spec::from_value(json!({"name": "x", "jobs": [{"name": "a", "comand": "true"}]}))
        .unwrap_err();
    assert_eq!(errors.0[0].place.as_ref().unwrap().path, "jobs[0].comand");
}

#[test]
fn json_and_json5_read_the_same() {
    let yaml = spec(RETRY, SpecFormat::Yaml);
    let json = serde_json::to_string_pretty(&yaml.to_value()).unwrap();
    assert_eq!(spec(&json, SpecFormat::Json), yaml);
    assert_eq!(spec(&json, SpecFormat::Json5), yaml);
    let json5 =
        "// c\n{name: 'x', jobs: [{name: 'a', command: \"true\", priority: +0x10,},], /* e */}";
    assert_eq!(spec(json5, SpecFormat::Json5).to_value()["jobs"][0]["priority"], json!(16));
}

#[test]
fn the_names_of_earlier_releases_still_work() {
    let new = r#"
name: renamed
files: [{name: raw, path: raw.txt}, {name: out, path: out.txt}]
user_data: [{name: meta}]
resource_requirements: [{name: small, num_cpus: 2}]
slurm_schedulers: [{name: nodes, account: a}]
jobs:
  - {name: first, command: "true", output_files: [raw], output_user_data: [meta], resource_requirements: small}
  - {name: second, command: "true", depends_on: [first], input_files: [raw], input_user_data: [meta], scheduler: nodes}
  - {name: third, command: "true", depends_on_regexes: ["^s"], input_file_regexes: ["^r"], output_files: [out]}
actions:
  - {trigger_type: on_jobs_ready, action_type: schedule_nodes, jobs: [first], scheduler: nodes}
"#;
    let mut old = new.replace("path: raw.txt}", "path: raw.txt, st_mtime: 1640995200.0}");
    for (now, then) in [
        ("depends_on:", "blocked_by_job_names:"),
        ("depends_on_regexes:", "blocked_by_job_name_regexes:"),
        ("input_files:", "input_file_names:"),
        ("input_file_regexes:", "input_file_name_regexes:"),
        ("output_files:", "output_file_names:"),
        ("input_user_data:", "input_user_data_names:"),
        ("output_user_data:", "output_data_names:"),
        (" resource_requirements: small", " resource_requirements_name: small"),
        (" scheduler: nodes", " scheduler_name: nodes"),
        (" jobs: [first]", " job_names: [first]"),
    ] {
        assert!(old.contains(now), "{now}");
        old = old.replace(now, then);
    }
    let (then, warnings) = plan_with_warnings(&old, SpecFormat::Yaml);
    assert!(warnings.to_string().contains("`st_mtime` has no effect"), "{warnings}");
    assert_eq!(then, plan(new, SpecFormat::Yaml));

    let kdl = "name \"k\"\njob \"a\" { command \"true\"; }\njob \"b\" {\n command \"true\"\n blocked_by_job \"a\"\n}\n";
    assert_eq!(parents(&plan(kdl, SpecFormat::Kdl), "b"), ["a"]);
}

//! All formats say the same, and every writer is read back without loss.

use crate::{plan, spec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use torc_spec::{Source, Spec, SpecFormat};

/// A KDL twin must give the identical spec.
#[test]
fn kdl_twin_of_a_yaml_file() {
    let yaml = r#"
name: retry
description: "two\nlines"
metadata: {owner: me, tags: [1, 2.5, null]}
env: {A: "1", B: x y}
parameters: {i: "1:3", k: [a, "b,c", 4]}
use_pending_failed: true
resource_monitor: {enabled: true, granularity: time_series, sample_interval_seconds: 1}
slurm_defaults: {mail-type: ALL, exclusive: true}
resource_requirements: [{name: r, num_cpus: 2, memory: 8g}]
failure_handlers:
  - name: h
    rules:
      - {exit_codes: [10, 11], recovery_script: "./fix.sh", max_retries: 3}
      - {match_all_exit_codes: true, max_retries: 1}
slurm_schedulers: [{name: s, account: a, walltime: "2:00:00"}]
files: [{name: f, path: "a b.txt"}, {name: "g_{i}", path: "g{i}", use_parameters: [i]}]
user_data: [{name: u, data: {n: [1, {x: null}]}}, {name: t, data: plain}, {name: e, is_ephemeral: true}]
jobs:
  - {name: flaky, command: "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10", failure_handler: h, output_files: [f]}
  - name: after
    command: "true"
    depends_on: [flaky]
    input_files: [f]
    input_user_data: [u, t]
    stdio: {mode: combined}
    env: {C: "2"}
  - {name: "w_{i}", command: "echo {i}", use_parameters: [i], depends_on_regexes: ["^fl", "^af"], output_files: ["g_{i}"]}
actions:
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [flaky, after], commands: [echo hi, echo ho]}
"#;
    let kdl = r##"
// the same
name "retry"
description "two\nlines"
metadata { owner "me"; tags 1 2.5 #null }
env A="1" { B "x y" }
parameters {
    i "1:3"
    k { - "a"; - "b,c"; - 4 }
}
use_pending_failed #true
resource_monitor { enabled #true; granularity "time_series"; sample_interval_seconds 1.0 }
slurm_defaults { mail_type "ALL"; exclusive #true }
resource_requirements "r" { num_cpus 2; memory "8GB" }
failure_handler "h" {
    rule { exit_codes 10 11; recovery_script "./fix.sh"; max_retries 3 }
    rule { match_all_exit_codes #true; max_retries 1 }
}
slurm_scheduler "s" { account "a"; walltime "2h" }
file "f" path="a b.txt"
file "g_{i}" { path "g{i}"; use_parameters "i" }
user_data "u" { data #"{"n": [1, {"x": null}]}"# }
user_data "t" { data "plain" }
user_data "e" { is_ephemeral #true }
job "flaky" { command "[ $TORC_ATTEMPT_ID -ge 3 ] || exit 10"; failure_handler "h"; output_file "f" }
job "after" {
    command "true"
    depends_on_job "flaky"
    input_file "f"
    input_user_data "u"
    input_user_data "t"
    stdio "combined"
    env { C 2 }
}
job "w_{i}" {
    command """
        echo {i}
        """
    use_parameters "i"
    depends_on_regexes "^fl"
    depends_on_regexes "^af"
    output_file "g_{i}"
}
/- job "gone" { command "x" }
action { trigger_type "on_jobs_ready"; action_type "run_commands"; job "flaky"; jobs "after"; command "echo hi"; command "echo ho" }
"##;
    let (yaml, kdl) = (spec(yaml, SpecFormat::Yaml), spec(kdl, SpecFormat::Kdl));
    assert_eq!(format!("{:#}", kdl.to_value()), format!("{:#}", yaml.to_value()));
    for format in SpecFormat::ALL {
        let text = yaml.write(format);
        assert_eq!(
            format!("{:#}", spec(&text, format).to_value()),
            format!("{:#}", yaml.to_value()),
            "{text}"
        );
        assert_eq!(plan(&text, format), yaml.plan().unwrap().0);
    }
}

#[test]
fn the_order_of_parameters_survives_every_format() {
    let first = spec(
        "name: x\njobs: [{name: '{z}{a}', command: 'true', parameters: {z: [1, 2], a: [3, 4]}}]",
        SpecFormat::Yaml,
    );
    for format in SpecFormat::ALL {
        let names: Vec<String> =
            plan(&first.write(format), format).jobs.into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["13", "14", "23", "24"], "{format}");
    }
}

/// Any text that can stand in a spec.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[ -~]{0,20}",
        "[ \\n\\t#:'\"{}\\[\\]|>&*!%@,?-]{0,12}",
        "(?s).{0,12}".prop_map(|s| s.replace('\0', "")),
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just("1.10".to_owned()),
        Just("line one\n  line two\n\nline four\n".to_owned()),
        Just("\n \n".to_owned()),
        Just("a\r\nb".to_owned()),
        Just("\"\"\"#\"##".to_owned()),
        Just("\u{85}\u{2028}\u{FEFF}\u{7f}".to_owned()),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((text(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_spec() -> impl Strategy<Value = Value> {
    let values = proptest::collection::vec(
        prop_oneof![text().prop_map(Value::from), any::<i32>().prop_map(Value::from)],
        1..4,
    );
    (
        any_json(),
        any_json(),
        text(),
        text(),
        values,
        proptest::collection::btree_map("[A-Z]{1,4}", text(), 0..4),
    )
        .prop_map(|(metadata, data, command, description, values, env)| {
            json!({
                "name": "p",
                "description": description,
                "metadata": metadata,
                "env": env,
                "parameters": {"b": values, "a": "1:3"},
                "user_data": [{"name": "u", "data": data}],
                "jobs": [{"name": "j", "command": format!("x{command}"), "priority": 3}],
            })
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in any_spec()) {
        let spec = match Spec::from_value(value) {
            Ok(parsed) => parsed.spec,
            Err(errors) => return Err(TestCaseError::fail(errors.to_string())),
        };
        for format in SpecFormat::ALL {
            let text = spec.write(format);
            let parsed = torc_spec::parse(&Source::new("t", text.clone(), format));
            let parsed = parsed.map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")))?;
            prop_assert_eq!(&parsed.spec, &spec, "{}\n{}", format, text);
        }
    }

    #[test]
    fn no_text_panics(text in "[ -~\\n]{0,200}") {
        for format in SpecFormat::ALL {
            let _ = torc_spec::parse(&Source::new("t", text.clone(), format)).map(|parsed| parsed.spec.plan());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in SpecFormat::ALL {
            let _ = torc_spec::parse(&Source::new("t", bytes.clone(), format)).map(|parsed| parsed.spec.plan());
        }
    }
}

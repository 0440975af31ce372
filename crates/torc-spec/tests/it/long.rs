//! A file with thousands of jobs is kept in another form than a short one, with the same results.

use crate::{spec, try_plan};
use serde_json::{Value, json};
use torc_spec::{Diagnostics, Spec, SpecFormat};

/// Below and above the length at which the list of jobs is packed.
const SHORT: usize = 4_000;
const LONG: usize = 4_600;

/// Jobs of all kinds; those of a longer list begin with those of a shorter one.
fn jobs(count: usize) -> Vec<Value> {
    let job = |n: usize| {
        let name = format!("j{n}");
        match n % 10 {
            1 => {
                json!({"name": name, "command": "run é {variable}", "depends_on": [format!("j{}", n - 1)]})
            }
            2 => {
                json!({"name": format!("j{n}_{{p}}"), "command": "run {p}", "parameters": {"p": "1:3"}, "priority": 5})
            }
            3 => {
                json!({"name": name, "command": "x", "env": {"A": "1", "B": "{variable}"}, "resource_requirements": "big"})
            }
            4 => {
                json!({"name": name, "command": "cat ${files.input.f}", "depends_on_regexes": [format!("^j{}_", n - 2)]})
            }
            5 => {
                json!({"name": name, "steps": [{"shell": "echo 1", "capture": format!("d{n}")}], "output_user_data": [format!("d{n}")]})
            }
            6 => {
                json!({"name": name, "map": {"items": ["a", "b"]}, "steps": [{"shell": "echo $TORC_ITEM"}]})
            }
            7 => {
                json!({"name": name, "command": "y", "timeout": "2h", "uses": ["db"], "cancel_on_blocking_job_failure": false})
            }
            _ => json!({"name": name, "command": "true"}),
        }
    };
    (0..count).map(job).collect()
}

fn file(jobs: Vec<Value>) -> Value {
    json!({
        "name": "long",
        "variables": {"variable": "v"},
        "limits": {"db": 3},
        "files": [{"name": "f", "path": "f.txt"}],
        "resource_requirements": [{"name": "big", "num_cpus": 4, "memory": "2g"}],
        "jobs": jobs,
    })
}

fn written(value: Value, format: SpecFormat) -> String {
    Spec::from_value(value).unwrap_or_else(|errors| panic!("{errors}")).spec.write(format)
}

#[test]
fn a_long_file_plans_like_a_short_one() {
    for format in SpecFormat::ALL {
        let [short, long] = [SHORT, LONG].map(|count| written(file(jobs(count)), format));
        let ((short_plan, short_warnings), (long_plan, long_warnings)) =
            (try_plan(&short, format).unwrap(), try_plan(&long, format).unwrap());
        // Every tenth has three instances; items of maps come after all jobs.
        let own = SHORT + 2 * SHORT / 10;
        let same = |a: &torc_model::plan::Job, b: &torc_model::plan::Job| {
            let mut b = b.clone();
            // A map waits for its items, which stand further back.
            if a.extra.map.is_some() {
                assert_eq!(a.depends_on.len(), b.depends_on.len());
                b.rest = a.rest.clone();
            }
            *a == b
        };
        let differing = (0..own).find(|n| !same(&short_plan.jobs[*n], &long_plan.jobs[*n]));
        assert_eq!(differing, None, "{format}");
        assert_eq!(
            short_plan.user_data[..],
            long_plan.user_data[..short_plan.user_data.len()],
            "{format}"
        );
        assert_eq!(short_warnings.to_string(), long_warnings.to_string(), "{format}");

        let read = spec(&long, format);
        assert_eq!(read, Spec::from_value(file(jobs(LONG))).unwrap().spec, "{format}");
        assert_eq!(read.to_json(), long_plan.spec, "{format}");
        assert_eq!(
            serde_json::from_str::<Value>(&long_plan.spec).unwrap(),
            read.to_value(),
            "{format}"
        );
    }
}

/// What a file with one wrong job says.
fn complaints(count: usize, wrong: &Value, format: SpecFormat) -> String {
    let mut jobs: Vec<Value> =
        (0..count).map(|n| json!({"name": format!("j{n}"), "command": "true"})).collect();
    jobs[1_000] = wrong.clone();
    let value = json!({"name": "long", "jobs": jobs});
    // No writer writes what it would not read.
    let text = match format {
        SpecFormat::Yaml => {
            let lines = value["jobs"].as_array().unwrap().iter().map(|job| format!("  - {job}\n"));
            format!("name: long\njobs:\n{}", lines.collect::<String>())
        }
        _ => format!("{value:#}"),
    };
    let found = |result: Result<_, Diagnostics>| match result {
        Ok((_, warnings)) => warnings,
        Err(errors) => errors,
    };
    found(try_plan(&text, format)).render(false)
}

#[test]
fn mistakes_in_a_long_file_have_the_same_place() {
    for wrong in [
        json!({"name": "x", "comand": "true"}),
        json!({"name": "x", "command": ["true"]}),
        json!({"name": "x", "command": "echo {nothing}"}),
        json!({"name": "x", "command": "true", "depends_on": ["j1", "nobody"]}),
        json!({"name": "j3", "command": "true"}),
        json!({"name": "x", "command": "true", "depends_on": ["x"]}),
        json!({"name": "x_{a}", "command": "true", "parameters": {"a": [1, 2], "b": [3]}}),
        json!({"name": "x", "command": "true", "parameters_file": "no-such-file.csv"}),
        json!(null),
    ] {
        for format in [SpecFormat::Yaml, SpecFormat::Json] {
            let [short, long] = [SHORT, LONG].map(|count| complaints(count, &wrong, format));
            assert!(short.contains("test."), "{wrong} has no place in {format}: {short}");
            assert_eq!(short, long, "{wrong} in {format}");
        }
    }
}

#[test]
fn a_long_request_plans_like_the_file_it_came_from() {
    let text = written(file(jobs(LONG)), SpecFormat::Json);
    let sent: torc_spec::Raw = serde_json::from_str(&text).unwrap();
    let parsed = Spec::from_raw(sent).unwrap_or_else(|errors| panic!("{errors}"));
    let (plan, _) = parsed.spec.into_plan().unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan, try_plan(&text, SpecFormat::Json).unwrap().0);
}

//! Exported runs, judged by the programs of their communities.
//!
//! `scripts/provenance-lab` installs these. `TORC_PROVENANCE_LAB` names a directory in which they are already, or
//! is `none` where they cannot be fetched. Where they are missing these tests say so and are skipped; with
//! `CI=true` that is a failure.

use crate::support::{Test, text};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn lab() -> Option<PathBuf> {
    let named = std::env::var_os("TORC_PROVENANCE_LAB").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: the validators cannot be fetched here");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ready = named.unwrap_or_else(|| root.join("target/provenance-lab"));
    if ready.join("installed").is_file() {
        return Some(ready);
    }
    let how = "the validators are not installed; `scripts/provenance-lab` does it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// What a validator says of an export.
fn judged(test: &Test, lab: &Path, how: &str, path: &str) -> String {
    test.write("judge.py", include_str!("provenance/judge.py"));
    let call = r#"exec "$LAB/bin/python" judge.py "$HOW" "$WHAT""#;
    let call = test.shell(call).env("LAB", lab).env("HOW", how).env("WHAT", path);
    call.success().stdout
}

fn ran() -> Test {
    let test = Test::new()
        .spec(
            "name: made\ndescription: a small run\nenable_ro_crate: true\n\
             files:\n  - {name: raw, path: raw.txt, identifier: 'doi:10.1234/x'}\n  - {name: mid, path: 'mid dir/mid.txt'}\n  - {name: end, path: end.csv}\n\
             user_data: [{name: scale, data: 3}]\n\
             failure_handlers: [{name: h, rules: [{exit_codes: [7], max_retries: 3}]}]\n\
             jobs:\n  - {name: first, command: 'mkdir -p \"mid dir\"; cp raw.txt \"mid dir/mid.txt\"', input_files: [raw], output_files: [mid], input_user_data: [scale]}\n  \
             - {name: second, command: 'test $TORC_ATTEMPT_ID = 2 || exit 7; cp \"mid dir/mid.txt\" end.csv', failure_handler: h, input_files: [mid], output_files: [end]}\n",
        )
        .file("raw.txt", "raw\n");
    test.run().expect(0);
    test
}

#[test]
fn a_crate_says_what_was_read_run_and_written() {
    let test = ran();
    // The spec wanted one at the end of the run.
    assert!(test.exists("output/ro-crate_wf1/ro-crate-metadata.json"));
    test.torc(["export", "ro-crate", "-o", "crate"]).success();
    let whole: Value =
        serde_json::from_str(&test.read("crate/ro-crate-metadata.json")).expect("JSON");
    let graph = whole["@graph"].as_array().expect("a list");
    let find =
        |id: &str| graph.iter().find(|e| e["@id"] == id).unwrap_or_else(|| panic!("no {id}"));
    let raw = find("raw.txt");
    let sum = test.shell("sha256sum raw.txt | cut -d' ' -f1").success().stdout;
    assert_eq!((text(&raw["sha256"]), text(&raw["contentSize"])), (sum.trim(), "4"));
    assert_eq!(text(&raw["identifier"]), "doi:10.1234/x");
    assert_eq!(test.read("crate/mid dir/mid.txt"), "raw\n");
    let actions: Vec<&Value> = graph
        .iter()
        .filter(|e| {
            e["@type"] == "CreateAction"
                && e["@id"].as_str().is_some_and(|id| id.starts_with("#attempt/"))
        })
        .collect();
    assert_eq!(actions.len(), 3);
    let failed = actions
        .iter()
        .find(|a| text(&a["name"]) == "second, run 1, attempt 1")
        .expect("it is there");
    assert!(text(&failed["actionStatus"]["@id"]).ends_with("FailedActionStatus"));
    let code = failed["resourceUsage"][0]["@id"].as_str().expect("an id");
    assert_eq!((text(&find(code)["name"]), &find(code)["value"]), ("exit-code", &Value::from(7)));
    test.torc(["ro-crate", "export", "1", "-o", "run.zip"]).success();
    let names = test
        .shell("python3 -m zipfile -t run.zip && python3 -m zipfile -l run.zip")
        .success()
        .stdout;
    assert!(
        names.contains("ro-crate-metadata.json") && names.contains("mid dir/mid.txt"),
        "{names}"
    );
}

#[test]
fn validators_accept_the_crate() {
    let Some(lab) = lab() else { return };
    let test = ran();
    test.torc(["export", "ro-crate", "-o", "crate"]).success();
    let said = judged(&test, &lab, "crate", "crate");
    let verdict: Value = serde_json::from_str(said.trim()).expect("JSON");
    assert_eq!(verdict["issues"], 0, "{said}");
    assert!(verdict["checks"].as_i64().is_some_and(|checks| checks > 80), "{said}");
    let report = judged(&test, &lab, "report", "crate");
    assert!(
        report.contains("instrument: workflow.json") && report.contains("step: #step/second"),
        "{report}"
    );
}

#[test]
fn wfcommons_reads_the_run() {
    let Some(lab) = lab() else { return };
    let test = ran();
    test.torc(["export", "wfformat", "-o", "wf.json"]).success();
    let said: Value =
        serde_json::from_str(&judged(&test, &lab, "wfformat", "wf.json")).expect("JSON");
    assert_eq!((text(&said["name"]), said["tasks"].as_i64()), ("made", Some(2)));
}

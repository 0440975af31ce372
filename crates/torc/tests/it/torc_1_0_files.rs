//! The workflow files of Torc 1.0.0, which `scripts/orchestrator-lab` fetches: all run here, or are
//! refused for a reason that is written down here.

use crate::dynamic::torc_1_0_lab;
use crate::support::Test;
use std::path::{Path, PathBuf};

/// Files that are refused, and what about them. Torc 1.0.0 refuses these as well.
const REFUSED: [(&str, &str); 1] =
    [("tests/workflows/timeout_auto_recovery_test/workflow.yaml", "unknown key `num_nodes`")];

/// Files of other kinds: rows of parameters, and questions for a database tool.
const NO_SPECS: [&str; 2] = ["examples/parameter_tables", "examples/datasight"];

/// Every workflow file of the lab, by its path below it.
pub fn specs(lab: &Path) -> Vec<String> {
    let mut folders: Vec<PathBuf> =
        ["examples", "tests/workflows", "slurm-tests/workflows"].map(|name| lab.join(name)).into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the lab") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(lab).expect("below the lab").display().to_string();
            let is_spec = ["yaml", "json", "json5", "kdl"]
                .iter()
                .any(|end| path.extension().is_some_and(|found| found == *end));
            if path.is_dir() {
                folders.push(path);
            } else if is_spec && !NO_SPECS.iter().any(|other| name.starts_with(other)) {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_job_gets_its_own_torc_names_and_the_directory_that_it_was_submitted_from() {
    let test = Test::new().spec(
        "name: env\nenv: {TORC_EXAMPLE: mine}\njobs:\n  - {name: a, command: 'echo $TORC_EXAMPLE \
         $TORC_WORKFLOW_SUBMISSION_DIR > seen'}\n",
    );
    test.run().expect(0);
    let here = test.path(".").canonicalize().expect("the directory");
    assert_eq!(test.read("seen"), format!("mine {}\n", here.display()));
}

#[test]
fn rows_of_a_shared_table_make_files_and_jobs() {
    let test = Test::new()
        .spec(
            "name: rows\nparameters_file: rows.csv\nfiles:\n  - {name: 'out_{i}', path: 'out_{i}', \
             use_parameters_file: true}\njobs:\n  - {name: 'job_{i}', command: 'echo {word} > out_{i}', \
             output_files: ['out_{i}'], use_parameters_file: true}\n  - {name: plain, command: 'true', \
             use_parameters_file: false}\n",
        )
        .file("rows.csv", "i,word\n1,one\n2,two\n");
    test.run().expect(0);
    assert_eq!(test.statuses(), ["job_1 completed", "job_2 completed", "plain completed"]);
    assert_eq!((test.read("out_1"), test.read("out_2")), ("one\n".into(), "two\n".into()));
    let wrong = "name: w\njobs:\n  - {name: j, command: 'true', use_parameters_file: true}\n";
    test.write("wrong.yaml", wrong);
    test.torc(["check", "wrong.yaml"])
        .done()
        .expect(2)
        .tells("the workflow has no `parameters_file`")
        .tells("wrong.yaml:3:");
}

#[test]
fn every_workflow_file_of_torc_1_0_is_taken_or_refused_for_a_named_reason() {
    let Some(lab) = torc_1_0_lab() else { return };
    let test = Test::new();
    let files = specs(&lab);
    assert!(files.len() >= 101, "{}: {files:?}", files.len());
    let mut wrong = Vec::new();
    for file in &files {
        // Tables of parameters are found from the directory where the command is given.
        let call = r#"cd "$LAB" && exec torc check "$SPEC""#;
        let done = test.shell(call).env("LAB", &lab).env("SPEC", file).done();
        let reason = REFUSED.iter().find(|(name, _)| name == file).map(|(_, reason)| *reason);
        let is_right = match reason {
            None => done.code == Some(0),
            Some(reason) => done.code == Some(2) && done.stderr.contains(reason),
        };
        if !is_right {
            wrong.push(format!("{file}: {:?}\n{}", done.code, done.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

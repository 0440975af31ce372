//! Every workflow in `examples/`, everything that `torc new` writes and every workflow in the
//! documents works.

use crate::support::Test;
use std::path::{Path, PathBuf};
use torc_spec::{Source, SpecFormat};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn examples() -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| SpecFormat::from_path(path) == Some(SpecFormat::Yaml)).collect();
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap()
}

/// What an example needs that a test machine may not have.
fn needs(name: &str) -> Option<&'static str> {
    match name {
        "14-resources" => Some("more CPUs, memory and GPUs than a small machine has"),
        "23-labels" => Some("a runner with a label beside one without"),
        "26-slurm-stages" | "27-slurm-multi-node" => Some("a Slurm cluster"),
        _ => None,
    }
}

/// Runs a file of the test's directory to its end.
fn run(test: &Test, file: &str, code: i32) {
    let done = test.torc(["run", file]).done();
    assert_eq!(done.code, Some(code), "{file}: {}{}", done.stdout, done.stderr);
}

#[test]
fn every_example_runs() {
    let mut ran = 0;
    for path in examples().iter().filter(|path| needs(name(path)).is_none()) {
        let test = Test::new();
        for beside in std::fs::read_dir(root().join("examples")).unwrap() {
            let beside = beside.unwrap().path();
            if beside.is_file() && SpecFormat::from_path(&beside).is_none() {
                std::fs::copy(&beside, test.path(beside.file_name().unwrap().to_str().unwrap()))
                    .unwrap();
            }
        }
        let file = path.file_name().unwrap().to_str().unwrap();
        test.write(file, &std::fs::read_to_string(path).unwrap());
        // What this one shows is what happens beside a job that fails.
        let code = if name(path) == "24-cancel-or-not" { 1 } else { 0 };
        run(&test, file, code);
        ran += 1;
    }
    assert!(ran >= 30, "only {ran} examples ran");
}

#[test]
fn what_new_writes_runs() {
    for kind in ["sweep", "pipeline", "retry", "steps", "slurm"] {
        let test = Test::new();
        test.torc(["new", kind]).success();
        let file = format!("{kind}.yaml");
        test.torc(["check", &file, "--strict"]).success();
        if kind != "slurm" {
            run(&test, &file, 0);
        }
        test.torc(["new", kind]).exit(2);
    }
}

#[test]
fn what_is_exported_is_the_workflow_that_was_created() {
    let test = Test::new();
    for path in examples() {
        let written = torc_spec::parse(&Source::read(&path).unwrap())
            .unwrap_or_else(|errors| panic!("{errors}"))
            .spec;
        let created = test.torc(["-f", "json", "create", path.to_str().unwrap()]).success().json();
        let id = created["id"]
            .as_i64()
            .or(created["workflow_id"].as_i64())
            .unwrap_or_else(|| panic!("{created}"));
        for format in SpecFormat::ALL {
            let text = test
                .torc(["workflows", "export", &id.to_string(), "--as", format.extension()])
                .success()
                .stdout;
            let read = torc_spec::parse(&Source::new("exported", text.as_str(), format));
            let read =
                read.unwrap_or_else(|errors| panic!("{}: {errors}\n{text}", path.display())).spec;
            assert_eq!(read, written, "{} as {format}:\n{text}", path.display());
        }
    }
}

/// Whole workflows only: parts of one are shown without a `name` or `tasks`.
#[test]
fn every_workflow_in_the_documents_is_right() {
    let mut checked = 0;
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    for path in docs.chain([root().join("README.md")]) {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for block in crate::docs::blocks(&text) {
            let Some(format) = SpecFormat::parse(&block.language) else { continue };
            let is_whole = match format {
                SpecFormat::Yaml => block
                    .text
                    .lines()
                    .any(|line| line.starts_with("jobs:") || line.starts_with("tasks:")),
                SpecFormat::Kdl => block.text.lines().any(|line| line.starts_with("job ")),
                SpecFormat::Json | SpecFormat::Json5 => block.text.contains("\"jobs\""),
            };
            if is_whole {
                let parsed = torc_spec::parse(&Source::new(
                    path.display().to_string(),
                    block.text.as_str(),
                    format,
                ));
                let parsed = parsed.unwrap_or_else(|errors| {
                    panic!("{}, line {}: {errors}", path.display(), block.line)
                });
                parsed.spec.plan().unwrap_or_else(|errors| {
                    panic!("{}, line {}: {errors}", path.display(), block.line)
                });
                checked += 1;
            }
        }
    }
    assert!(checked >= 8, "only {checked} workflows were found");
}

//! Attacks and accidents that once broke a promise: the table in docs/reliability.md names the test
//! of each, and this makes sure that those tests are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every test below a directory, as `file::name`.
fn tests_below(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_below(&path, found);
            continue;
        }
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let mut is_test = false;
        for line in fs::read_to_string(&path).expect("a source file").lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let Some(name) = name.and_then(|name| name.split('(').next())
                && std::mem::take(&mut is_test)
            {
                found.insert(format!("{stem}::{name}"));
            }
        }
    }
}

#[test]
fn every_row_of_the_table_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = BTreeSet::new();
    tests_below(&root.join("crates"), &mut tests);
    assert!(tests.len() > 500, "{}", tests.len());
    let text = fs::read_to_string(root.join("docs/reliability.md")).expect("the page");
    let (_, table) = text.split_once("## What was broken once").expect("the table");
    let table = table.split("\n## ").next().unwrap_or(table);
    let mut rows = BTreeSet::new();
    for line in table.lines().filter(|line| line.starts_with("| B")) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        rows.insert(cells.next().expect("a number").to_owned());
        let named = cells.nth(1).expect("tests").split('`').filter(|word| word.contains("::"));
        let named: Vec<&str> = named.collect();
        assert!(!named.is_empty(), "no test: {line}");
        for name in named {
            assert!(tests.contains(name), "there is no test `{name}`: {line}");
        }
    }
    let expected: BTreeSet<String> = (1..=22).map(|number| format!("B{number}")).collect();
    assert_eq!(rows, expected);
}

/// Scripts are named by their path, tests as above.
#[test]
fn every_foreign_judge_is_run_by_something_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut tests = BTreeSet::new();
    tests_below(&root.join("crates"), &mut tests);
    let text = fs::read_to_string(root.join("docs/judges.md")).expect("the page");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 12, "{} judges", rows.len());
    for row in rows {
        let by = row.split('|').nth(3).expect("what runs it");
        let named: Vec<&str> = by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "not run by anything: {row}");
        for name in named {
            let is_there =
                tests.contains(name) || name.starts_with("scripts/") && root.join(name).is_file();
            assert!(is_there, "there is no `{name}`: {row}");
        }
    }
}

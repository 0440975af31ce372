//! Runs every example in the documents, so that they cannot disagree with the program.
//!
//! Each document is run from top to bottom in a directory of its own:
//!
//! - a `yaml`, `json`, `json5`, `kdl`, `sh` or `text` block whose first line is a comment with a
//!   file name (`# sweep.yaml`, `// sweep.json5`) is written to that file;
//! - in a `console` block, each line that begins with `$ ` is run by a shell, and the lines below
//!   it are what it must print (both streams together). `...` stands for any lines, `[..]` for any
//!   text within a line. A command that ends with `# exit 1` must exit with that code, all others
//!   with 0.

use crate::support::Test;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One fenced block.
pub struct Block {
    pub language: String,
    pub line: usize,
    pub text: String,
}

pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in document.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    language: language.trim().into(),
                    line: number + 1,
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

fn check(name: &str) {
    let document = std::fs::read_to_string(root().join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let test = Test::new();
    for block in blocks(&document) {
        match block.language.as_str() {
            "console" => check_console(&test, name, &block),
            _ => {
                if let Some(file) = file_name(&block.text) {
                    test.write(&file, &block.text);
                }
            }
        }
    }
}

/// The file name in a first line such as `# sweep.yaml`.
fn file_name(text: &str) -> Option<String> {
    let first = text.lines().next()?;
    let name = first.strip_prefix("# ").or_else(|| first.strip_prefix("// "))?.trim();
    (name.contains('.') && !name.contains(' ')).then(|| name.to_string())
}

fn check_console(test: &Test, name: &str, block: &Block) {
    let mut lines = block.text.lines().peekable();
    while let Some(line) = lines.next() {
        let place = format!("{name}, block at line {}", block.line);
        let command = line
            .strip_prefix("$ ")
            .unwrap_or_else(|| panic!("{place}: `{line}` belongs to no command"));
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
            expected.push(line);
        }
        let code = command
            .rsplit_once("# exit ")
            .and_then(|(_, code)| code.trim().parse().ok())
            .unwrap_or(0);
        let done = test.shell(&format!("exec 2>&1\n{command}")).done();
        assert_eq!(done.code, Some(code), "{place}: `{command}` said\n{}", done.stdout);
        let actual: Vec<&str> = done.stdout.lines().map(str::trim_end).collect();
        assert!(
            lines_match(&expected, &actual),
            "{place}: `{command}` should print\n{}\n--- but printed\n{}",
            expected.join("\n"),
            done.stdout
        );
    }
}

fn lines_match(expected: &[&str], actual: &[&str]) -> bool {
    match (expected.split_first(), actual.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((&"...", rest)), _) => {
            (0..=actual.len()).any(|skip| lines_match(rest, &actual[skip..]))
        }
        (Some(_), None) => false,
        (Some((line, rest)), Some((first, others))) => {
            text_matches(line.trim_end(), first) && lines_match(rest, others)
        }
    }
}

fn text_matches(expected: &str, actual: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == actual,
        Some((before, after)) => actual.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| text_matches(after, &rest[at..]))
        }),
    }
}

#[test]
fn the_notation_matches_what_it_says() {
    assert!(lines_match(&["a", "...", "z"], &["a", "b", "c", "z"]));
    assert!(lines_match(&["..."], &[]));
    assert!(!lines_match(&["a"], &["a", "b"]));
    assert!(!lines_match(&["a", "...", "z"], &["a", "b"]));
    assert!(text_matches("run [..] took [..]s", "run 3 took 1.2s"));
    assert!(!text_matches("run [..]x", "run 3"));
    assert_eq!(file_name("# a.yaml\nname: x\n").as_deref(), Some("a.yaml"));
    assert_eq!(file_name("# just words.\n"), None);
}

macro_rules! pages {
    ($($test:ident $page:literal)*) => {
        $(#[test]
        fn $test() {
            check($page);
        })*

        /// The pages whose examples are run.
        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    readme "README.md"
    ai_recovery "docs/ai-recovery.md"
    changing_a_workflow_is_run "docs/changing-a-workflow.md"
    cli_reference "docs/cli.md"
    configuration "docs/configuration.md"
    failure_handlers "docs/failure-handlers.md"
    how_to_cancel "docs/how-to/cancel.md"
    how_to_check_resource_use "docs/how-to/check-resource-use.md"
    how_to_debug_a_failure "docs/how-to/debug-a-failure.md"
    how_to_keep_provenance "docs/how-to/keep-provenance.md"
    how_to_plot_resource_use "docs/how-to/plot-resource-use.md"
    how_to_prepare_the_environment "docs/how-to/prepare-the-environment.md"
    how_to_prioritize "docs/how-to/prioritize.md"
    how_to_read_logs "docs/how-to/read-logs.md"
    how_to_route_by_label "docs/how-to/route-by-label.md"
    how_to_run_again "docs/how-to/run-again.md"
    how_to_run_plain_commands "docs/how-to/run-plain-commands.md"
    how_to_set_up_tokens "docs/how-to/set-up-tokens.md"
    how_to_track_progress "docs/how-to/track-progress.md"
    how_to_use_a_table "docs/how-to/parameters-from-a-table.md"
    installation "docs/installation.md"
    migration "docs/migration.md"
    notifications "docs/notifications.md"
    recovery "docs/recovery.md"
    scheduling_is_run "docs/scheduling.md"
    server "docs/server.md"
    steps "docs/steps.md"
    tutorial "docs/tutorial.md"
}

/// A page that is added later cannot have examples that nothing runs.
#[test]
fn every_page_with_examples_is_run() {
    let mut without = Vec::new();
    for page in crate::site::pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        let is_run = PAGES.iter().any(|run| root().join(run) == page);
        if !is_run && blocks(&text).iter().any(|block| block.language == "console") {
            without.push(page.display().to_string());
        }
    }
    assert!(without.is_empty(), "{without:?}");
}

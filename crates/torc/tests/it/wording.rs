//! Phrases that were replaced do not come back: messages, help, docs and comments are scanned.

use std::path::Path;

/// A sentence that confused readers, and what its place says instead.
struct Row {
    /// Parts of the old sentence; none of them may come back, anywhere.
    old: &'static [&'static str],
    /// Source file and a part of the sentence that stands there now. Empty where the program no longer
    /// does what the sentence was about.
    now: &'static [(&'static str, &'static str)],
}

const fn row(old: &'static [&'static str], now: &'static [(&'static str, &'static str)]) -> Row {
    Row { old, now }
}

const ROWS: [Row; 41] = [
    row(
        &["count no more"],
        &[("torc/src/cli/items.rs", "\"no longer counts\", \"no longer count\"")],
    ),
    row(&["item run again", "items run again"], &[("torc/src/cli/items.rs", "\"will run again\"")]),
    row(
        &["which was made from the same spec", "begins anew", "going on with "],
        &[("torc/src/cli/run.rs", "resuming {}; use `--new` to start over")],
    ),
    row(
        &["` goes on\"", "` goes on)"],
        &[("torc/src/cli/drive/ending.rs", "stopped; resume with `torc run {}`")],
    ),
    row(&["has its words"], &[("torc/src/cli/detach.rs", "; log: {}")]),
    row(
        &["speaks of cause", "no rule speaks of"],
        &[("torc-engine/src/report.rs", "no rule of failure handler `{}` matches {}")],
    ),
    row(
        &["speaks of exit code", "speaks of"],
        &[("torc-engine/src/report.rs", "matched rule {} of failure handler `{handler}` ({what})")],
    ),
    row(
        &["is failed, cause", "is failed"],
        &[
            ("torc-server/src/api/why.rs", "attempt {} of run {} {state}"),
            ("torc-server/src/api/why.rs", " (exit code {code})"),
        ],
    ),
    row(
        &["it was ended by a limit"],
        &[("torc-model/src/recovery/diagnosis.rs", "it ran longer than its limit of {limit} s")],
    ),
    row(
        &["the cause is not known", "nothing says why"],
        &[
            ("torc-model/src/recovery/kind.rs", "\"cause unknown\""),
            (
                "torc-model/src/recovery/diagnosis.rs",
                "exit code {code}, and its output does not say why",
            ),
        ],
    ),
    row(
        &["(exit 1): exit code 1", "failed ({kind} {code}): exit code"],
        &[
            ("torc-model/src/steps/record.rs", "step `{step}` failed with exit code {code}"),
            ("torc/src/cli/job_steps.rs", "failed with exit code {code}"),
        ],
    ),
    // `torc run SPEC` resumes what did not succeed, so that it need not say how many there are.
    row(&["of it without success"], &[]),
    row(
        &["is not in it, because", "no entry is for one of them alone"],
        &[(
            "torc/src/cli/workflows.rs",
            "were not exported: the spec has one entry for several jobs",
        )],
    ),
    // A spec with other jobs is applied, and refused no more.
    row(&["that the workflow has not"], &[]),
    row(&["jobs or dependencies are others", "can not take them over"], &[]),
    row(&["into the old one", "takes the changes"], &[]),
    row(
        &["run all of them again"],
        &[("torc/src/cli/drive/ending.rs", "` re-runs the failed jobs")],
    ),
    row(
        &["the runner left: ", "without outside help"],
        &[
            ("torc/src/cli/drive/ending.rs", "runner stopped: {}"),
            ("torc-runner/src/config.rs", "none of the remaining jobs can start here"),
        ],
    ),
    row(
        &["holds nobody back"],
        &[(
            "torc-spec/src/lint.rs",
            "is not set here, so it has no effect unless the server has it",
        )],
    ),
    row(
        &["is ACTIVE"],
        &[("torc/src/cli/reservations.rs", "is active: no new job{scope} starts for {left} s")],
    ),
    row(
        &["claims are paused"],
        &[(
            "torc-engine/src/commands/claims.rs",
            "new jobs are paused by reservation {id} ({by}), at most {seconds} s more",
        )],
    ),
    row(&["is gone\\n"], &[("torc/src/cli/webhooks.rs", "deleted webhook {id}")]),
    row(&["` is {}, {} in use"], &[("torc/src/cli/limits.rs", "set limit `{}` to {} ({} in use)")]),
    row(&["says that you mean it"], &[("torc/src/cli/workflows.rs", "use `--yes` to confirm")]),
    row(
        &["make them, or go on", "go on with `--force`"],
        &[("torc-server/src/store/submissions.rs", "create them, or use `--force` to run anyway")],
    ),
    row(
        &["nothing ends within no time"],
        &[("torc-spec/src/read.rs", "a timeout must be at least 1 s; leave it out for none")],
    ),
    row(
        &["no steps to tell of"],
        &[("torc/src/cli/job_steps.rs", "a plain command without steps")],
    ),
    row(
        &["this server has another name"],
        &[("torc-server/src/api/guard.rs", "unknown host name")],
    ),
    row(
        &["the token is not known"],
        &[("torc-server/src/api/auth.rs", "invalid or expired token")],
    ),
    row(
        &["can not speak", "cannot speak `"],
        &[("torc-client/src/http.rs", "` is not supported in `")],
    ),
    row(&["made up unless given"], &[("torc/src/cli/webhooks.rs", "generated unless given")]),
    row(
        &["Say nothing but errors", "Say more; twice"],
        &[
            ("torc/src/cli/mod.rs", "Print only failures, errors and data"),
            ("torc/src/cli/mod.rs", "twice for debugging"),
        ],
    ),
    row(&["CPUs to share out"], &[("torc/src/cli/runner_options.rs", "CPUs that jobs may use")]),
    row(
        &["Look the database over"],
        &[("torc/src/cli/server.rs", "Check the database, and repair it")],
    ),
    row(
        &["Begin anew", "begin anew"],
        &[("torc/src/cli/run.rs", "start over with a workflow of its own")],
    ),
    row(
        &["Draw what jobs used", "use against wishes", "used against what they"],
        &[
            ("torc/src/cli/plot.rs", "Plot resource usage over time"),
            ("torc/src/cli/reports.rs", "Resource usage compared with what was requested"),
        ],
    ),
    row(
        &["did not end in good order"],
        &[("torc-server/src/boot/database.rs", "was not shut down cleanly")],
    ),
    row(
        &["the file is whole", "*** in database"],
        &[("torc-server/src/boot/doctor/mod.rs", "\"the file is intact\"")],
    ),
    row(
        &["that can take its place", "made copies"],
        &[(
            "torc/src/cli/server.rs",
            "if you have a backup made with `torc server backup`, put it in its place",
        )],
    ),
    row(
        &[
            "mistakes, doubts",
            "waits at the desk",
            "the desk for dead items",
            "told as",
            "map bears",
        ],
        &[("../docs/steps.md", "and waits for you")],
    ),
    row(&[" % sure", "% sure"], &[("torc/src/cli/why.rs", "{sure}% confidence")]),
];

/// Further phrases that once had a place in a message or in the help.
const FORBIDDEN: &[&str] = &["can not", "of jobs done (", "entity already exists"];

/// What may not occur: the old sentences, and the further phrases.
fn forbidden() -> Vec<&'static str> {
    ROWS.iter().flat_map(|row| row.old).chain(FORBIDDEN).copied().collect()
}

/// Words that hide the actor; comments name the thread, the runner, the user or the process.
const VAGUE: &[&str] = &["nobody", "somebody", "whoever", "anybody", "everybody"];

/// Whether a line has the word as the user `nobody` of Unix.
fn is_unix_user(line: &str, word: &str) -> bool {
    ["`", "\"", "User="].iter().any(|before| line.contains(&format!("{before}{word}")))
}

/// `15 %` and `{sure} %`: English has no blank there. A remainder stands between two operands.
fn has_loose_percent(line: &str) -> bool {
    line.match_indices(" %").any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + 2..].chars().next();
        let is_number = before.is_some_and(|c| c.is_ascii_digit() || c == '}');
        let is_word_next =
            line[at + 2..].trim_start().starts_with(|c: char| c.is_ascii_alphabetic());
        is_number
            && match after {
                Some(' ') => is_word_next,
                Some(after) => !after.is_ascii_alphanumeric() && after != '=',
                None => true,
            }
    })
}

fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        // Rules of recovery quote what programs print.
        let is_quoted = path.parent().is_some_and(|parent| parent.ends_with("rules"));
        let is_text = !is_quoted
            && path.extension().is_some_and(|end| {
                ["rs", "md", "js", "yaml", "kdl", "json5"].iter().any(|known| end == *known)
            });
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
            files(&path, found);
        } else if is_text {
            found.push(path);
        }
    }
}

#[test]
fn no_replaced_phrase_is_used_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
    files(&root.join("crates"), &mut all);
    files(&root.join("docs"), &mut all);
    files(&root.join("examples"), &mut all);
    let (mut found, forbidden) = (Vec::new(), forbidden());
    // Here they are listed, and there they are read in what programs print.
    let may = ["it/wording.rs", "recovery/text.rs"];
    for path in all.iter().filter(|path| !may.iter().any(|end| path.ends_with(end))) {
        let text = std::fs::read_to_string(path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let place =
                || format!("{}:{}", path.strip_prefix(&root).unwrap().display(), number + 1);
            found.extend(
                forbidden
                    .iter()
                    .filter(|phrase| line.contains(*phrase))
                    .map(|phrase| format!("{}: `{phrase}`", place())),
            );
            let is_code = path.extension().is_some_and(|end| end == "rs" || end == "js");
            let is_comment = line.trim_start().starts_with("//");
            if has_loose_percent(line) && (!is_code || is_comment || line.contains('"')) {
                found.push(format!("{}: a blank before the percent sign", place()));
            }
            // Documents and examples are all prose; names of tests and messages are read, too.
            let is_read = is_comment || !is_code || line.contains('"') || line.contains("fn ");
            let words = || line.split(|c: char| !c.is_ascii_alphabetic());
            found.extend(
                VAGUE
                    .iter()
                    .filter(|word| is_read && words().any(|w| w.eq_ignore_ascii_case(word)))
                    // The user `nobody` of Unix.
                    .filter(|word| !is_unix_user(line, word))
                    .map(|word| format!("{}: `{word}`", place())),
            );
        }
    }
    // A phrase of a document may stand on two lines.
    for path in all.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = path.strip_prefix(&root).unwrap().display();
        let phrases = forbidden.iter().filter(|phrase| text.contains(phrase.trim()));
        found.extend(phrases.map(|phrase| format!("{name}: `{phrase}` over a line break")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_replaced_sentence_has_its_better_one_in_place() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (number, row) in ROWS.iter().enumerate() {
        for (file, text) in row.now {
            let source = std::fs::read_to_string(crates.join(file)).unwrap();
            // A long sentence is broken into lines in its source.
            let source = source.replace("\\\n", " ");
            let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(source.contains(text), "row {}: `{text}` is not in {file}", number + 1);
        }
    }
}

#[test]
fn a_loose_percent_sign_is_told_from_a_remainder() {
    assert!(
        has_loose_percent("100 % done")
            && has_loose_percent("(15 %)")
            && has_loose_percent("{:.0} %\"")
    );
    assert!(
        !has_loose_percent("a % b")
            && !has_loose_percent("rest / 60 % 60")
            && !has_loose_percent("99% sure")
    );
}

//! Phrases that were replaced do not come back: messages, help, docs and comments are scanned.

use std::path::Path;

/// Phrases that confused readers, each of which once had a place in a message or in the help.
const FORBIDDEN: &[&str] = &[
    "can not",
    "count no more",
    "begins anew",
    "begin anew",
    "which was made from the same spec",
    "has its words",
    "no rule speaks of",
    "is failed, cause",
    "it was ended by a limit",
    " % sure",
    "nothing says why",
    "of it without success",
    "is not in it, because",
    "that the workflow has not",
    "jobs or dependencies are others",
    "into the old one",
    "run all of them again",
    "the runner left: ",
    "without outside help",
    "holds nobody back",
    "claims are paused",
    "says that you mean it",
    "go on with `--force`",
    "nothing ends within no time",
    "no steps to tell of",
    "this server has another name",
    "the token is not known",
    "can not speak",
    "made up unless given",
    "Say nothing but errors",
    "Say more; twice",
    "CPUs to share out",
    "Look the database over",
    "Draw what jobs used",
    "use against wishes",
    "did not end in good order",
    "the file is whole",
    "that can take its place",
    "waits at the desk",
    "the desk for dead items",
    "speaks of exit code",
    "speaks of cause",
    "` goes on)",
    "item run again",
    "(exit 1): exit code 1",
    "is gone\\n",
    "is ACTIVE",
    "told as",
    "map bears",
    "mistakes, doubts",
    "of jobs done (",
    "entity already exists",
];

/// Words that hide the actor; comments name the thread, the runner, the user or the process.
const VAGUE: &[&str] = &["nobody", "somebody", "whoever", "anybody", "everybody"];

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
    let mut found = Vec::new();
    // Here they are listed, and there they are read in what programs print.
    let may = ["it/wording.rs", "recovery/text.rs"];
    for path in all.iter().filter(|path| !may.iter().any(|end| path.ends_with(end))) {
        let text = std::fs::read_to_string(path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let place =
                || format!("{}:{}", path.strip_prefix(&root).unwrap().display(), number + 1);
            found.extend(
                FORBIDDEN
                    .iter()
                    .filter(|phrase| line.contains(*phrase))
                    .map(|phrase| format!("{}: `{phrase}`", place())),
            );
            let is_code = path.extension().is_some_and(|end| end == "rs" || end == "js");
            let is_comment = line.trim_start().starts_with("//");
            if has_loose_percent(line) && (!is_code || line.contains('"')) && !is_comment {
                found.push(format!("{}: a blank before the percent sign", place()));
            }
            // Documents and examples are all prose.
            let is_comment = is_comment || !is_code;
            let words = || line.split(|c: char| !c.is_ascii_alphabetic());
            found.extend(
                VAGUE
                    .iter()
                    .filter(|word| is_comment && words().any(|w| w.eq_ignore_ascii_case(word)))
                    // The user `nobody` of Unix.
                    .filter(|word| !line.contains(&format!("`{word}`")))
                    .map(|word| format!("{}: `{word}` in a comment", place())),
            );
        }
    }
    // A phrase of a document may stand on two lines.
    for path in all.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = path.strip_prefix(&root).unwrap().display();
        let phrases = FORBIDDEN.iter().filter(|phrase| text.contains(phrase.trim()));
        found.extend(phrases.map(|phrase| format!("{name}: `{phrase}` over a line break")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
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

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
];

/// Words that hide the actor; comments name the thread, the runner, the user or the process.
const VAGUE: &[&str] = &["nobody", "somebody", "whoever", "anybody", "everybody"];

fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        let is_text = path.extension().is_some_and(|end| end == "rs" || end == "md" || end == "js");
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
            let is_comment = line.trim_start().starts_with("//");
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
    assert!(found.is_empty(), "{}", found.join("\n"));
}

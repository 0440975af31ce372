//! Steps under fire: the runner dies at every point of a handler, and values try to become shell
//! text.

use crate::support::{Test, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Each step says which attempt it ran in. The second fails until its handler has repaired it.
const SPEC: &str = r#"
name: w
jobs:
  - name: j
    RESUME
    max_lost_retries: 9
    steps:
      - {name: prepare, shell: 'echo "prepare $TORC_ATTEMPT_ID" >> witness; echo 7', capture: {seven: number}}
      - name: build
        shell: 'echo "build $TORC_ATTEMPT_ID" >> witness; test -e fixed'
        on_failure:
          commands:
            - 'echo "first $TORC_ATTEMPT_ID ${error.exit_code}" >> witness'
            - 'echo "second $TORC_ATTEMPT_ID" >> witness; touch fixed'
          max_attempts: 2
      - {name: finish, shell: 'echo "finish $TORC_ATTEMPT_ID $seven" >> witness; touch finished'}
"#;

#[test]
fn a_kill_at_any_point_of_a_handler_loses_nothing() {
    let points = torc_failpoint::ALL.iter().filter(|name| name.starts_with("steps."));
    let (mut kills, mut resumed) = (0, 0);
    for point in points {
        for (resume, nths) in [("resume: step", [1, 2, 3, 4]), ("resume: start", [1, 2, 3, 5])] {
            for nth in nths {
                let test = Test::new().spec(&SPEC.replace("RESUME", resume));
                let place = format!("{point}:{nth}");
                let first =
                    test.torc(["run", "workflow.yaml"]).env("TORC_FAILPOINT", &place).done();
                if first.code.is_some() {
                    first.expect(0);
                    continue;
                }
                kills += 1;
                let before = test.read("witness");
                test.torc(["run", "latest"]).success();
                let witness = test.read("witness");
                let lines: Vec<&str> = witness.lines().collect();
                let about = format!("{place}, {resume}:\n{witness}");
                assert_eq!(test.statuses(), ["j completed"], "{about}");
                // Within one attempt: `build` twice at most, everything else once.
                for attempt in ["1", "2"] {
                    let count = |step: &str| {
                        lines
                            .iter()
                            .filter(|line| line.starts_with(&format!("{step} {attempt}")))
                            .count()
                    };
                    assert!(count("build") <= 2, "{about}");
                    assert!(
                        ["prepare", "first", "second", "finish"]
                            .iter()
                            .all(|step| count(step) <= 1),
                        "{about}"
                    );
                }
                assert!(
                    lines.contains(&"finish 2 7") || lines.contains(&"finish 1 7"),
                    "the capture is there: {about}"
                );
                let again = lines.contains(&"prepare 2");
                if resume == "resume: start" {
                    assert!(again, "it starts over: {about}");
                } else if before.contains("build 1") && !again {
                    resumed += 1;
                }
                if resume == "resume: step" {
                    // What an earlier attempt has finished is not done again.
                    assert!(!(again && before.contains("build 1")), "{about}");
                }
                // The first attempt is kept as lost, with what it had told by then.
                let attempts = test.torc(["-f", "json", "jobs", "attempts", "j"]).success().json();
                let attempts = attempts["attempts"].as_array().unwrap().clone();
                assert_eq!(attempts.len(), 2, "{about}");
                assert_eq!(
                    (text(&attempts[0]["cause"]), attempts[0]["return_code"].as_i64()),
                    ("lost", Some(-128))
                );
            }
        }
    }
    println!("{kills} kills, {resumed} resumed in the middle");
    assert!(kills >= 20 && resumed >= 5, "{kills} kills, {resumed} resumed");
}

/// Values that would do something if a shell read them.
fn corpus() -> Vec<String> {
    let acts = ["touch PWNED", "echo x > PWNED", "rm -rf keep"];
    let mut all: BTreeSet<String> = BTreeSet::new();
    for act in acts {
        for (before, after) in [
            ("$(", ")"),
            ("`", "`"),
            ("; ", ""),
            ("; ", ";"),
            ("\n", "\n"),
            ("| ", ""),
            ("& ", " &"),
            ("&& ", ""),
            ("|| ", ""),
            ("\"; ", "; \""),
            ("'; ", "; '"),
            ("\"$(", ")\""),
            ("'$(", ")'"),
            ("${x:-$(", ")}"),
            ("$((`", "`))"),
            ("<(", ")"),
            ("\\\"; ", ""),
            ("EOF\n", "\nEOF\n"),
            ("')\n", "\n('"),
            ("\\`", "\\`"),
        ] {
            all.insert(format!("{before}{act}{after}"));
            all.insert(format!("a {before}{act}{after} b"));
        }
    }
    let odd = [
        "-rf",
        "--help",
        "-",
        "--",
        "*",
        "?",
        "[a-z]",
        "~",
        "~root",
        "!x",
        "!!",
        "#",
        "a#b",
        "\\",
        "\\\\",
        "\"",
        "'",
        "''",
        "\"\"",
        "$",
        "$$",
        "$1",
        "$@",
        "$*",
        "${",
        "${}",
        "}",
        "${error.message}",
        "${item}",
        "$${item}",
        "$((1+1))",
        "%s%n",
        "{a,b}",
        "a\tb",
        " lead",
        "trail ",
        "two\nlines",
        "\r",
        "é😀",
        "\u{1b}[31m",
        "a=b",
        "PATH=/x",
        "()",
        "(",
        ")",
        "<",
        ">",
        ">x",
        "&",
        "|",
        ";",
        "if",
        "\u{2028}",
        "0",
        "-0",
        "true",
        "null",
        "[]",
        "{}",
        "{\"a\":1}",
    ];
    all.extend(odd.iter().map(|value| (*value).to_owned()));
    all.into_iter().collect()
}

/// Each value goes through an item, a capture and an error's message, in every kind of quotes there
/// is.
#[test]
fn values_never_become_shell_text() {
    let values = corpus();
    assert!(values.len() >= 150, "{}", values.len());
    let items: Vec<Value> =
        values.iter().enumerate().map(|(n, value)| json!({"n": n, "v": value})).collect();
    let test = Test::new().file("items.json", &Value::from(items).to_string()).file("keep/it", "").spec(
        r#"name: w
jobs:
  - name: m
    map: {items: {file: items.json}, key: item.n}
    steps:
      # Printed back by a program, it is captured; the capture must be the item again.
      - {shell: 'printf "%sX" "${item.v}"', capture: back}
      - shell: 'test "${back}" = "${item.v}X" && printf %s "${item.v}" > "out_${item.n}"'
      # Unquoted it may be split and matched against file names, but is never run.
      - shell: 'set -f; printf "%s\n" ${item.v} ${back} > /dev/null'
      - shell: |
          cat <<EOF > /dev/null
          ${item.v} ${back}
          EOF
      - shell: 'bash -c "printf %s \"\$item__v\"" > /dev/null && bash -c ''printf %s "${item.v}"'' > nested_${item.n}'
      - shell: 'printf "%s" "${item.v}" >&2; exit 3'
        on_failure:
          - 'printf %s "${error.message}" > "error_${item.n}"; printf %s ${error.message} ${error.command} > /dev/null'
          - 'test "${error.exit_code}" = 3'
"#,
    );
    test.run().expect(0);
    assert!(!test.exists("PWNED") && test.exists("keep/it"), "a value was run");
    for (n, value) in values.iter().enumerate() {
        assert_eq!(test.read(&format!("out_{n}")), *value, "item {n}");
        assert_eq!(test.read(&format!("nested_{n}")), *value, "item {n} in a nested shell");
        let message = test.read(&format!("error_{n}"));
        assert!(
            value.trim().is_empty() || message.trim() == value.trim(),
            "item {n}: {message:?} is not {value:?}"
        );
    }
}

#[test]
fn a_nul_character_is_refused() {
    let test = Test::new()
        .file("items.json", "[\"a\\u0000b\"]")
        .spec("name: w\njobs:\n  - {name: m, map: {items: {file: items.json}}, command: 'echo \"${item}\"'}\n");
    test.run().expect(1);
    test.torc(["why", "m"]).done().says("NUL");
}

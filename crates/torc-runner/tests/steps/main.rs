//! Step trees with real processes, without a server.

use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use torc_model::api::{AttemptPacket, CompletionReport};
use torc_model::ids::{AttemptId, JobId};
use torc_model::status::Cause;
use torc_runner::{LocalRun, run_locally};

struct Test {
    dir: TempDir,
    attempt: i64,
    limit: Option<i64>,
}

impl Test {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), attempt: 1, limit: None }
    }

    fn run(&self, tree: Value) -> CompletionReport {
        let packet = AttemptPacket {
            id: AttemptId(1),
            token: "t".into(),
            job_id: JobId(7),
            job_name: "j".into(),
            run_id: 1,
            attempt_id: self.attempt,
            command: String::new(),
            invocation_script: None,
            steps: Some(tree),
            env: Default::default(),
            num_cpus: 1,
            num_gpus: 0,
            num_nodes: 1,
            memory_bytes: None,
            time_limit_seconds: self.limit,
            is_limited_by_runtime: false,
            stdio: None,
            output_files: Vec::new(),
            lists: Vec::new(),
            strictness: Default::default(),
            recovery: None,
        };
        let local = LocalRun {
            packet,
            workflow_name: "w".into(),
            working_dir: self.dir.path().into(),
            output_dir: self.dir.path().join("output"),
            grace: Duration::from_millis(300),
            first_try: None,
        };
        // One at a time: who owns processes also looks after orphans of the whole program.
        static ONE: Mutex<()> = Mutex::new(());
        let _guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        *run_locally(local).unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// How many lines a file has: each line is one run of something.
    fn count(&self, name: &str) -> usize {
        self.read(name).lines().count()
    }
}

fn counters(report: &CompletionReport) -> (i64, i64) {
    let steps = report.steps.as_ref().unwrap();
    (steps["recovered"].as_i64().unwrap(), steps["ignored"].as_i64().unwrap())
}

#[test]
fn no_handler_runs_on_success_and_a_plain_step_is_light() {
    let test = Test::new();
    let report = test.run(json!({"steps": [{"shell": "echo hello"}]}));
    assert_eq!((report.return_code, report.cause, report.steps), (0, None, None));
    assert_eq!(test.read("output/job_stdio/job_wf0_j7_r1_a1.o"), "hello\n");
    let handled = json!({"steps": [{"shell": "true", "on_failure": {"commands": [{"shell": "echo x >> ran"}]}}]});
    assert_eq!(test.run(handled).return_code, 0);
    assert_eq!(test.count("ran"), 0);
}

#[test]
fn error_variables_tell_what_happened() {
    let cases = [
        (json!({"shell": "echo oops >&2; exit 3"}), "exit|3||oops"),
        (json!({"shell": "kill -9 $$"}), "signal|137|9|killed by SIGKILL"),
        (json!({"shell": "echo part; sleep 60", "timeout": "PT1S"}), "timeout|124|15|part"),
        (json!({"shell": "true", "dir": "no/such/dir"}), "spawn|127||cannot start in"),
        (json!({"claude": "hi"}), "agent|127||cannot start"),
        (json!({"shell": "true", "check": [{"shell": "echo bad; exit 4"}]}), "validation|4||bad"),
        (
            json!({"shell": "echo no", "capture": {"x": "json"}}),
            "capture|1||`x` cannot be captured",
        ),
        (
            json!({"shell": "echo 5", "capture": {"n": "number"}, "expect": "n > 7"}),
            "expect|1||`n > 7` does not hold",
        ),
        (json!({"shell": "echo ${item.none}"}), "variable|1||`item.none` has no value"),
    ];
    for (step, expected) in cases {
        let test = Test::new();
        let mut step = step;
        step["name"] = json!("the step");
        step["on_failure"] = json!({"commands": [{"shell":
            "printf '%s|%s|%s|%s' \"${error.kind}\" \"${error.exit_code}\" \"${error.signal:-}\" \"${error.message}\" > seen; \
             printf '%s %s %s' \"${error.step}\" \"${error.attempt}\" \"${error.timestamp}\" > more"}]});
        let agent = json!({"command": ["/no/such/program"]});
        let report = test.run(json!({"steps": [step], "agent": agent, "item": {"a": 1}}));
        assert_eq!(report.return_code, 0, "{expected}: {report:?}");
        let seen = test.read("seen");
        assert!(seen.starts_with(expected), "expected {expected:?}, found {seen:?}");
        assert!(test.read("more").starts_with("the step 1 20"), "{}", test.read("more"));
        assert_eq!(counters(&report), (1, 0));
    }
}

#[test]
fn each_strategy_has_its_outcome_and_the_evidence_stays() {
    let handler = |strategy: &str, command: &str| {
        json!({"steps": [
            {"name": "s", "shell": "echo original >&2; exit 7",
             "on_failure": {"strategy": strategy, "commands": [{"shell": command}]}},
            {"shell": "echo next >> after"},
        ]})
    };
    for (strategy, command, code) in [
        ("recovery", "true", 0),
        ("recovery", "exit 9", 7),
        ("fallback", "true", 0),
        ("fallback", "false", 7),
        ("cleanup", "true", 7),
        ("cleanup", "false", 7),
        ("custom", "true", 7),
        ("custom", "echo recovered > \"$OUTCOME_FILE\"", 0),
        ("custom", "echo failed > \"$OUTCOME_FILE\"", 7),
        ("custom", "echo nonsense > \"$OUTCOME_FILE\"", 7),
    ] {
        let test = Test::new();
        let report = test.run(handler(strategy, command));
        assert_eq!(report.return_code, code, "{strategy} {command}");
        assert_eq!(test.count("after"), usize::from(code == 0));
        let rows = report.steps.unwrap()["rows"].clone();
        assert_eq!(
            (&rows[0]["exit_code"], &rows[0]["error"]),
            (&json!(7), &json!("original")),
            "{strategy} {command}"
        );
        assert_eq!(rows[1]["path"], "steps[0].on_failure[0]");
    }
}

#[test]
fn nested_handlers_see_their_own_error_and_its_cause() {
    let test = Test::new();
    let say = |file: &str| {
        format!("echo \"${{error.message}} ${{error.cause.message:-none}}\" >> {file}")
    };
    let report = test.run(json!({"steps": [{
        "shell": "echo outer >&2; exit 1",
        "on_failure": {"commands": [
            {"shell": "echo inner >&2; exit 2", "on_failure": {"commands": [{"shell": say("inner")}]}},
            {"shell": say("outer")},
        ]},
    }]}));
    assert_eq!(report.return_code, 0);
    assert_eq!(test.read("inner"), "inner outer\n");
    assert_eq!(test.read("outer"), "outer none\n");
    assert_eq!(counters(&report), (2, 0));
}

#[test]
fn tolerated_commands_of_a_handler_do_not_fail_it_but_one_must_succeed() {
    let tree = |commands: Value| json!({"steps": [{"shell": "false", "on_failure": {"commands": commands}}]});
    let tolerated = json!({"shell": "false", "continue_on_error": true});
    let test = Test::new();
    assert_eq!(test.run(tree(json!([tolerated, {"shell": "true"}]))).return_code, 0);
    assert_eq!(test.run(tree(json!([tolerated]))).return_code, 1);
    let ignored = test.run(
        json!({"steps": [{"shell": "exit 4", "continue_on_error": true}, {"shell": "echo >> on"}]}),
    );
    assert_eq!((ignored.return_code, counters(&ignored), test.count("on")), (0, (0, 1), 1));
}

#[test]
fn a_timeout_kills_the_whole_tree_and_keeps_what_was_printed() {
    let test = Test::new();
    let begun = Instant::now();
    let report = test.run(json!({"steps": [{
        "shell": "exit 5",
        "on_failure": {"timeout": "PT1S", "commands": [
            {"shell": "echo partial; (trap '' TERM; sleep 50; echo late >> late) & echo $! > pid; sleep 50"},
            {"shell": "echo never >> never"},
        ]},
    }]}));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(report.return_code, 5, "the original failure stays");
    assert_eq!(test.count("never"), 0);
    let log = std::fs::read_dir(test.dir.path().join("output/job_stdio")).unwrap();
    let logs: Vec<String> =
        log.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let partial =
        logs.iter().find(|name| name.contains("_s0f0_t1.o")).unwrap_or_else(|| panic!("{logs:?}"));
    assert_eq!(test.read(&format!("output/job_stdio/{partial}")), "partial\n");
    let pid = test.read("pid").trim().to_owned();
    let alive = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z "));
    assert!(!alive, "a grandchild outlived its handler");
}

#[test]
fn a_fatal_handler_ends_everything() {
    let test = Test::new();
    let report = test.run(json!({
        "steps": [{
            "shell": "exit 3",
            "continue_on_error": true,
            "on_failure": {"handler_failure_fatal": true, "commands": [{"shell": "exit 8"}]},
        }],
        "on_failure": {"commands": [{"shell": "echo >> job_handler"}]},
    }));
    assert_eq!(report.return_code, 3);
    assert_eq!(report.steps.as_ref().unwrap()["fatal"], true);
    assert_eq!(test.count("job_handler"), 0);
}

#[test]
fn retries_come_before_handlers_and_both_are_counted_exactly() {
    for attempts in 1..=3usize {
        for max_attempts in 1..=3usize {
            let test = Test::new();
            let report = test.run(json!({"steps": [{
                "shell": "echo >> tries; exit 1",
                "retry": {"attempts": attempts, "delay": 0.0},
                "on_failure": {"max_attempts": max_attempts, "commands": [{"shell": "echo >> handled"}]},
            }]}));
            let handled = if max_attempts == 1 { 1 } else { max_attempts - 1 };
            assert_eq!(test.count("tries"), attempts * max_attempts, "{attempts} {max_attempts}");
            assert_eq!(test.count("handled"), handled, "{attempts} {max_attempts}");
            assert_eq!(report.return_code, i64::from(max_attempts > 1));
        }
    }
}

#[test]
fn a_failed_check_runs_only_the_check_again() {
    let test = Test::new();
    let report = test.run(json!({"steps": [{
        "shell": "echo >> main",
        "check": [{"shell": "echo >> checks; test -e repaired"}],
        "on_failure": {"max_attempts": 3, "commands": [{"shell": "touch repaired"}]},
    }]}));
    assert_eq!((report.return_code, test.count("main"), test.count("checks")), (0, 1, 2));
    assert_eq!(counters(&report), (1, 0));
}

#[test]
fn a_failing_on_success_fails_the_step_without_its_handler() {
    let test = Test::new();
    let report = test.run(json!({"steps": [{
        "shell": "true",
        "on_success": [{"shell": "exit 6"}],
        "on_failure": {"commands": [{"shell": "echo >> handled"}]},
    }]}));
    assert_eq!((report.return_code, test.count("handled")), (6, 0));
}

#[test]
fn captures_reach_the_steps_after_them() {
    let test = Test::new();
    let report = test.run(json!({"steps": [
        {"shell": "echo '{\"a\": [1, {\"b\": \"x y\"}]}'", "capture": {"v": "json", "raw": "stdout"}},
        {"shell": "printf '%s|%s|%s' \"${v.a[1].b}\" \"${v.exit_code}\" \"$raw\" > seen", "when": "v.a[0] == 1"},
        {"shell": "echo >> skipped", "when": "v.a[0] == 2"},
        {"shell": "echo \"$K\" > k; pwd > where", "env": {"K": "<${v.a[1].b}>"}, "dir": "."},
    ]}));
    assert_eq!(report.return_code, 0, "{report:?}");
    assert_eq!(test.read("seen"), "x y|0|{\"a\": [1, {\"b\": \"x y\"}]}");
    assert_eq!((test.count("skipped"), test.read("k").trim()), (0, "<x y>"));
    assert_eq!(report.steps.unwrap()["captures"]["v"]["a"][0], 1);
}

#[test]
fn a_value_too_large_is_refused_by_name_and_its_file_works() {
    let test = Test::new();
    let big =
        json!({"shell": "head -c 100000 /dev/zero | tr '\\0' x", "capture": {"big": "stdout"}});
    let refused = test.run(json!({"steps": [big, {"shell": "echo \"$big\" >> seen"}]}));
    assert_eq!(
        (refused.return_code, refused.steps.unwrap()["events"].as_array().unwrap().len() > 1),
        (1, true)
    );
    assert!(refused.error.unwrap().contains("${big.file}"));
    let read = test.run(json!({"steps": [big, {"shell": "wc -c < \"${big.file}\" > size"}, {"shell": "env | grep -c '^big=' > env; true"}]}));
    assert_eq!(read.return_code, 0);
    assert_eq!((test.read("size").trim(), test.read("env").trim()), ("100000", "0"));
}

/// Values that would do harm if any shell read them as text.
fn corpus() -> Vec<String> {
    let evil = [
        "touch PWNED",
        "$(touch PWNED)",
        "`touch PWNED`",
        "; touch PWNED",
        "| touch PWNED",
        "&& touch PWNED",
        "\n touch PWNED\n",
        "-rf /",
        "--help",
        "*",
        "~",
        "$HOME",
        "${HOME}",
        "$((1+1))",
        "a'b",
        "a\"b",
        "a\\b",
        "'",
        "\"",
        "\\",
        "\t",
        "\r\n",
        "é ü 漢字",
        "\u{1b}[31m",
        "$IFS",
        "#",
        "!!",
        "%s%n",
        "{a,b}",
        "<(touch PWNED)",
        "> PWNED",
        "\"; touch PWNED; \"",
        "'; touch PWNED; '",
        "\\$(touch PWNED)",
        "EOF\ntouch PWNED\nEOF",
        "]]; touch PWNED",
        ") touch PWNED",
        "\\`touch PWNED\\`",
        "${item}",
        "${x:-$(touch PWNED)}",
        "",
    ];
    let mut all: Vec<String> = evil.iter().map(|text| (*text).to_owned()).collect();
    for prefix in ["x", " ", "'", "\"", "\\", "$", "\n", "-"] {
        for suffix in ["", "'", "\"", "\n", "\\", ";"] {
            for text in &evil[..8] {
                all.push(format!("{prefix}{text}{suffix}"));
            }
        }
    }
    all
}

#[test]
fn no_value_ever_becomes_code() {
    let test = Test::new();
    let values = corpus();
    assert!(values.len() > 300);
    // All values at once as an item, each used in every way; one process per way keeps it quick.
    let item: Value = json!({"list": values.clone()});
    let mut steps = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let name = format!("item.list[{index}]");
        let mut text = format!("printf '%s' \"${{{name}}}\" > q{index}\n");
        text += &format!("set -f; : ${{{name}}}\n");
        text += &format!("cat > h{index} <<END_OF_TEXT\n${{{name}}}\nEND_OF_TEXT\n");
        text += &format!("bash -c 'printf %s \"${{{name}}}\" > n{index}'\n");
        text += &format!("sh -c ': ${{{name}:-}}'\n");
        steps.push(json!({"shell": text}));
        // As the message of an error, and as a capture.
        if index % 8 == 0 {
            let fails = format!("printf '%s' \"${{{name}}}\" >&2; exit 1");
            steps.push(json!({"shell": fails, "on_failure": {"commands": [
                {"shell": format!("printf '%s' \"${{error.message}}\" > m{index}; bash -c ': ${{error.message}}'; cat <<X\n${{error.message}}\nX\n: ${{error.message}}; : $error__message")},
            ]}}));
            let prints = format!("printf '%s' \"${{{name}}}\"");
            steps.push(json!({"shell": prints, "capture": {"seen": "stdout"}}));
            steps.push(json!({"shell": format!("printf '%s' \"$seen\" > c{index}; : $seen; bash -c ': ${{seen}}'; cat <<X\n${{seen}}\nX")}));
        }
        let _ = value;
    }
    let report = test.run(json!({"steps": steps, "item": item}));
    assert_eq!(report.return_code, 0, "{:?}", report.error);
    assert!(!Path::new(&test.dir.path().join("PWNED")).exists(), "a value was executed");
    for (index, value) in values.iter().enumerate() {
        assert_eq!(test.read(&format!("q{index}")), *value, "quoted");
        assert_eq!(test.read(&format!("n{index}")), *value, "nested");
        assert_eq!(test.read(&format!("h{index}")), format!("{value}\n"), "here-document");
        if index % 8 == 0 {
            assert_eq!(
                test.read(&format!("c{index}")),
                value.trim_end_matches(['\n', '\r']),
                "captured"
            );
        }
    }
}

#[test]
fn what_is_the_shells_stays_the_shells() {
    let test = Test::new();
    let report = test.run(json!({"steps": [{"shell":
        "echo 'a b' | awk '{print $1}' > awk; echo ${x:-0} > def; a=(1 2 3); echo ${a[@]} ${#a[*]} > arr; [ $$ -gt 1 ] && echo yes > pid"}]}));
    assert_eq!(report.return_code, 0);
    let all = ["awk", "def", "arr", "pid"].map(|name| test.read(name).trim().to_owned());
    assert_eq!(all, ["a", "0", "1 2 3 3", "yes"]);
}

/// A scripted program in the place of the real agent.
fn scripted_agent(test: &Test, script: &str) -> Value {
    let path = test.dir.path().join("agent.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    json!(["/bin/sh", path.display().to_string()])
}

#[test]
fn a_scripted_agent_gets_its_prompt_as_data() {
    let test = Test::new();
    let command = scripted_agent(&test, "cat > prompt; echo done");
    let report = test.run(json!({
        "agent": {"command": command},
        "item": "it's $(touch PWNED) `x`",
        "steps": [
            {"claude": "fix ${item} $${not_ours}", "capture": {"answer": "stdout"}},
            {"shell": "echo \"$answer\" > answer"},
        ],
    }));
    assert_eq!(report.return_code, 0, "{:?}", report.error);
    assert_eq!(test.read("prompt"), "fix it's $(touch PWNED) `x` ${not_ours}");
    assert_eq!(
        (test.read("answer").trim(), test.dir.path().join("PWNED").exists()),
        ("done", false)
    );
}

#[test]
fn the_scripted_agents_budget_ends_with_a_clear_error() {
    let test = Test::new();
    let command = scripted_agent(&test, "echo >> calls");
    let report = test.run(json!({
        "agent": {"command": command, "max_calls": 2},
        "steps": [{"claude": "one"}, {"claude": "two"}, {"claude": "three"}],
    }));
    assert_eq!((report.return_code, test.count("calls")), (1, 2));
    assert!(report.error.unwrap().contains("budget is used up: 2 of 2 calls"));
}

#[test]
fn the_attempts_own_time_limit_leaves_no_time_for_handlers() {
    let mut test = Test::new();
    test.limit = Some(1);
    let report =
        test.run(json!({"steps": [{"shell": "sleep 30", "on_failure": {"commands": [{"shell": "echo >> handled"}]}}]}));
    assert_eq!(
        (report.cause, report.return_code, test.count("handled")),
        (Some(Cause::Timeout), 152, 0)
    );
}

#[test]
fn a_new_attempt_begins_where_the_last_one_stopped() {
    let mut test = Test::new();
    let tree = json!({"resume": "step", "steps": [
        {"shell": "echo >> first; echo v1", "capture": {"version": "stdout"}},
        {"shell": "echo >> second; test -e go"},
        {"shell": "echo \"$version\" > third"},
    ]});
    assert_eq!(test.run(tree.clone()).return_code, 1);
    std::fs::write(test.dir.path().join("go"), "").unwrap();
    test.attempt = 2;
    assert_eq!(test.run(tree).return_code, 0);
    assert_eq!(
        (test.count("first"), test.count("second"), test.read("third").trim()),
        (1, 2, "v1")
    );
}

#[test]
fn items_are_found_in_files_and_by_commands() {
    let test = Test::new();
    std::fs::write(test.dir.path().join("items.json"), "{\"items\": [{\"id\": 1}, {\"id\": 2}]}")
        .unwrap();
    let items = |source: Value| {
        let report = test.run(json!({"expand": {"items": source}}));
        (report.return_code, report.steps.unwrap()["items"].clone(), report.error)
    };
    let (code, found, _) = items(json!({"file": {"path": "items.json", "select": "$.items[*]"}}));
    assert_eq!((code, found.as_array().unwrap().len()), (0, 2));
    let (code, found, _) =
        items(json!({"command": {"command": "printf 'a\\nb\\n'", "select": null}}));
    assert_eq!((code, &found[1]), (0, &json!({"key": "b", "item": "b"})));
    let (code, _, error) = items(json!({"file": {"path": "none.json", "select": null}}));
    assert_eq!(code, 1);
    assert!(error.unwrap().contains("cannot read the items from"));
    assert_eq!(items(json!({"command": {"command": "exit 4", "select": null}})).0, 4);
}

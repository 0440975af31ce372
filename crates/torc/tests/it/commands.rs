//! The smaller commands, one claim each.

use crate::support::{Test, text};

const TWO: &str = "name: two\njobs:\n  - {name: a, command: 'echo out; echo err >&2'}\n  - {name: b, command: 'exit 4', depends_on: [a]}\n";

fn ran(spec: &str) -> Test {
    let test = Test::new().spec(spec);
    test.run();
    test
}

#[test]
fn lists_are_wrapped_by_name_with_their_count() {
    let test = ran(TWO);
    for (call, name, count) in [
        (&["jobs", "list"][..], "jobs", 2),
        (&["workflows", "list"], "workflows", 1),
        (&["results", "list"], "results", 2),
        (&["jobs", "attempts", "a"], "attempts", 1),
        (&["user-data", "list"], "user_data", 0),
        (&["failure-handlers", "list"], "failure_handlers", 0),
    ] {
        let list = test.torc([&["-f", "json"], call].concat()).success().json();
        assert_eq!(list["total_count"], count, "{call:?}: {list}");
        assert_eq!(list[name].as_array().map(Vec::len), Some(count), "{call:?}: {list}");
    }
    let list = test.torc(["jobs", "list"]).env("TORC_FORMAT", "json").success().json();
    assert_eq!(text(&list["jobs"][1]["status"]), "failed");
}

#[test]
fn a_job_is_named_by_id_by_name_or_with_its_workflow() {
    let test = ran(TWO);
    for name in ["2", "b", "two/b", "1/b", "latest/b"] {
        let job = test.torc(["-f", "json", "jobs", "get", name]).success().json();
        assert_eq!(job["id"], 2, "{name}");
    }
    test.torc(["jobs", "get", "b", "--workflow", "two"])
        .success()
        .says("b (job 2 of workflow 1): failed");
    test.torc(["jobs", "get", "c"]).exit(2).tells("job `c` not found in workflow 1 (`two`)");
    test.torc(["jobs", "get", "three/c"])
        .exit(2)
        .tells("workflow `three` not found (known workflows: two (1))");
}

#[test]
fn a_wrong_word_is_answered_with_the_right_one() {
    let test = ran(
        "name: sweep\njobs:\n  - {name: train_1, command: 'true'}\n  - {name: train_2, command: 'true'}\n",
    );
    for (call, told) in [
        (&["why", "trian_2"][..], "did you mean `train_2`? `torc jobs list 1` lists its jobs"),
        (&["status", "sweeep"], "did you mean `sweep`?"),
        (&["status", "99"], "workflow `99` not found (known workflows: sweep (1))"),
        (&["logs", "99"], "`torc jobs list WORKFLOW` lists the jobs of a workflow"),
        (
            &["jobs", "list", "-s", "faild"],
            "did you mean `failed`? known statuses: uninitialized, blocked,",
        ),
        (&["jobs", "list", "--limit", "many"], "expected a whole number"),
        (&["items", "list", "train_1"], "`train_1` is not a job with `map`"),
    ] {
        test.torc(call).exit(2).tells(told);
    }
}

#[test]
fn a_webhook_is_made_at_the_server_that_is_meant() {
    let test = ran(TWO);
    let made =
        test.torc(["webhooks", "create", "http://127.0.0.1:9/hook", "--allow-private"]).success();
    assert!(
        made.stdout.starts_with("webhook 1 posts to http://127.0.0.1:9/hook\nsecret "),
        "{}",
        made.stdout
    );
    let list = test.torc(["-f", "json", "webhooks", "list"]).success().json();
    assert_eq!(text(&list["webhooks"][0]["url"]), "http://127.0.0.1:9/hook");
}

#[test]
fn logs_show_both_streams_or_one() {
    let test = ran(TWO);
    assert_eq!(test.torc(["-q", "logs", "a"]).success().stdout, "out\nerr\n");
    assert_eq!(test.torc(["-q", "logs", "a", "--stdout"]).success().stdout, "out\n");
    assert_eq!(test.torc(["-q", "logs", "a", "--stderr"]).success().stdout, "err\n");
    test.torc(["logs", "a"]).success().tells("--- stdout").tells("--- stderr");
    let test = ran("name: l\njobs:\n  - {name: a, command: 'seq 1 1000; printf end'}\n");
    assert_eq!(
        test.torc(["-q", "logs", "a", "--stdout", "--tail", "3"]).success().stdout,
        "999\n1000\nend"
    );
    assert_eq!(test.torc(["-q", "logs", "a", "--stdout", "-n", "0"]).success().stdout, "");
    let whole = test.torc(["-q", "logs", "a", "--stdout", "-n", "5000"]).success().stdout;
    assert_eq!(whole.lines().count(), 1001);
}

#[test]
fn logs_follow_a_job_from_before_its_beginning_to_its_end() {
    let test = Test::new().spec("name: f\njobs:\n  - {name: gatekeeper, command: 'read line < gate0'}\n  - {name: a, command: 'echo one; read line < gate; echo two', depends_on: [gatekeeper]}\n");
    let (gate0, gate) = (test.gate("gate0"), test.gate("gate"));
    let mut run = test.torc(["run", "workflow.yaml"]).spawn();
    run.wait_for_stderr("created workflow");
    let mut logs = test.torc(["logs", "a", "--follow"]).spawn();
    logs.wait_for_stderr("waiting for `a` to begin");
    gate0.open();
    logs.wait_for_stdout("one");
    gate.open();
    let done = logs.wait().expect(0);
    assert_eq!(done.stdout, "one\ntwo\n");
    run.wait().expect(0);
}

#[test]
fn a_watched_status_prints_a_line_per_change_until_the_end() {
    let test = Test::new().spec(
        "name: s\njobs:\n  - {name: a, command: 'read line < gate'}\n  - {name: b, command: 'exit 4', depends_on: [a]}\n",
    );
    let gate = test.gate("gate");
    test.torc(["create", "workflow.yaml"]).success();
    let mut lines = test.torc(["status", "--watch"]).spawn();
    lines.wait_for_stdout("0 of 2 jobs succeeded (0%)  uninitialized 2");
    let mut objects = test.torc(["-f", "json", "status", "s", "-w"]).spawn();
    objects.wait_for_stdout("\"uninitialized\":2");
    let run = test.torc(["run", "1"]).spawn();
    lines.wait_for_stdout("0 of 2 jobs succeeded (0%)  running 1  blocked 1");
    gate.open();
    let lines = lines.wait().expect(1);
    assert!(
        lines
            .stdout
            .trim_end()
            .ends_with("  1 of 2 jobs succeeded, 1 failed  completed 1  failed 1"),
        "{}",
        lines.stdout
    );
    let objects = objects.wait().expect(1);
    let objects: Vec<serde_json::Value> =
        objects.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.windows(2).all(|pair| pair[0]["counts"] != pair[1]["counts"]), "{objects:?}");
    assert_eq!(objects.last().unwrap()["is_complete"], true);
    run.wait().expect(1);
    // It only looks at what is complete already.
    test.torc(["status", "--watch"]).exit(1).says("1 of 2 jobs succeeded, 1 failed");
}

#[test]
fn a_watched_status_goes_on_when_the_run_that_served_it_is_gone() {
    let test = Test::new()
        .spec("name: s\njobs:\n  - {name: a, command: 'echo >> begun; read line < gate'}\n");
    let gate = test.gate("gate");
    let mut run = test.torc(["run", "workflow.yaml"]).spawn();
    run.wait_for_stderr("created workflow");
    let mut status = test.torc(["status", "--watch"]).spawn();
    status.wait_for_stdout("running 1");
    run.signal("INT");
    run.wait().expect(130);
    status.wait_for_stdout("ready 1");
    let mut again = test.torc(["run", "1"]).spawn();
    status.wait_for_stdout("running 1");
    gate.open();
    assert!(status.wait().expect(0).stdout.contains("1 of 1 job succeeded  completed 1"));
    again.wait_for_stderr("workflow 1 complete");
    again.wait().expect(0);
}

#[test]
fn a_number_that_is_one_jobs_id_and_another_ones_name_is_refused() {
    let test = Test::new().spec("name: n\njobs: [{name: '3', command: echo three}, {name: b, command: ':'}, {name: '1', command: echo one}, {name: '7', command: echo seven}]\n");
    test.run().expect(0);
    test.torc(["logs", "3"])
        .exit(2)
        .tells("`3` is the id of job `1` of workflow 1 and the name of job 1")
        .tells("say `1/1` for the one with this id, or `1/3` for the one with this name");
    test.torc(["logs", "1/3"]).success().says("three");
    test.torc(["logs", "1/1"]).success().says("one");
    // Nothing else is meant.
    test.torc(["logs", "7"]).success().says("seven");
    test.torc(["jobs", "get", "2"]).success().says("b");
}

#[test]
fn a_workflow_belongs_to_the_user_in_its_spec_or_to_its_creator() {
    let test = Test::new()
        .file("theirs.yaml", "name: theirs\nuser: ada\njobs: [{name: a, command: 'true'}]\n");
    let test = test.spec("name: mine\njobs: [{name: a, command: 'true'}]\n");
    test.torc(["create", "theirs.yaml"]).env("USER", "grace").success();
    test.torc(["create", "workflow.yaml"]).env("USER", "grace").success();
    test.torc(["create", "workflow.yaml"]).env("USER", "").env("LOGNAME", "").success();
    let list = test.torc(["-f", "json", "workflows", "list"]).success().json();
    let owner = |id: i64| {
        let workflows = list["workflows"].as_array().unwrap();
        text(&workflows.iter().find(|workflow| workflow["id"] == id).unwrap()["user"]).to_owned()
    };
    // `id` prints the number of an account that has no name.
    let me = test.shell("id -un 2>/dev/null || id -u").success().stdout;
    assert_eq!([owner(1), owner(2), owner(3)], ["ada", "grace", me.trim()]);
}

#[test]
fn events_follow_until_the_workflow_is_complete() {
    let test = Test::new().spec("name: e\njobs:\n  - {name: a, command: 'read line < gate'}\n");
    let gate = test.gate("gate");
    let mut run = test.torc(["run", "workflow.yaml"]).spawn();
    run.wait_for_stderr("created workflow");
    let mut events = test.torc(["events", "--follow"]).spawn();
    events.wait_for_stdout("job_started");
    gate.open();
    let done = events.wait().expect(0);
    assert!(
        done.stdout.contains("job_completed") && done.stdout.contains("workflow_completed"),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("job 1 a "), "jobs have names: {}", done.stdout);
    run.wait().expect(0);
    let kinds = test.torc(["events", "--kind", "job_completed"]).success().stdout;
    assert_eq!(kinds.lines().count(), 1, "{kinds}");
    assert!(kinds.contains("job 1 a "), "{kinds}");
    let wrong = test.torc(["events", "--kind", "job_complete"]).exit(2);
    assert!(
        wrong.stdout.is_empty() && wrong.stderr.contains("did you mean `job_completed`?"),
        "{}",
        wrong.stderr
    );
    test.torc(["events", "--follow"]).success().says("workflow_completed");
}

#[test]
fn exec_takes_commands_from_everywhere() {
    let test = Test::new().file("more.txt", "# a comment\necho file >> out.txt\n\n");
    test.torc([
        "exec",
        "-c",
        "echo flag >> out.txt",
        "-C",
        "more.txt",
        "-j",
        "1",
        "--",
        "sh",
        "-c",
        "echo 'two words' >> out.txt",
    ])
    .success()
    .tells("created workflow 1 `exec`: 3 jobs");
    assert_eq!(test.read("out.txt"), "flag\nfile\ntwo words\n");
    test.torc(["exec", "-C", "-", "-n", "piped"]).stdin("echo piped > piped.txt\n").success();
    assert_eq!(test.read("piped.txt"), "piped\n");
}

#[test]
fn exec_multiplies_by_parameters() {
    let test = Test::new().file("names.txt", "x\ny\n");
    test.torc([
        "exec",
        "-j",
        "1",
        "--param",
        "n=1:2",
        "--param",
        "k=@names.txt",
        "-c",
        "echo {n}{k} {other} >> out.txt",
    ])
    .success();
    let mut lines: Vec<String> = test.read("out.txt").lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["1x {other}", "1y {other}", "2x {other}", "2y {other}"]);
    test.torc([
        "exec",
        "--link",
        "zip",
        "--param",
        "n=1:2",
        "--param",
        "k=a,b",
        "-c",
        "echo {n}{k} >> zip.txt",
    ])
    .success();
    let mut lines: Vec<String> = test.read("zip.txt").lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["1a", "2b"]);
}

#[test]
fn exec_says_when_a_command_fails() {
    Test::new().torc(["exec", "-c", "exit 9"]).exit(1).tells("exit code 9");
}

#[test]
fn json_of_a_run_is_its_status() {
    let test = Test::new().spec(TWO);
    let status = test.torc(["-q", "-f", "json", "run", "workflow.yaml"]).exit(1);
    assert!(status.stderr.starts_with("failed: b (job 2) after "), "{}", status.stderr);
    assert_eq!(status.stderr.lines().count(), 1, "only the failure: {}", status.stderr);
    assert_eq!(status.json()["counts"]["failed"], 1);
}

#[test]
fn a_spec_may_come_from_standard_input() {
    Test::new()
        .torc(["run", "-"])
        .stdin(r#"{"name": "piped", "jobs": [{"name": "a", "command": "true"}]}"#)
        .success();
}

#[test]
fn held_jobs_wait_and_disabled_ones_are_passed_over() {
    let test = Test::new().spec("name: h\njobs:\n  - {name: a, command: 'echo a >> ran.txt'}\n  - {name: b, command: 'echo b >> ran.txt', depends_on: [a]}\n  - {name: c, command: 'echo c >> ran.txt'}\n");
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["jobs", "disable", "a"]).success().says("disabled a (job 1 of workflow 1)");
    test.torc(["jobs", "hold", "c"]).success();
    test.run().expect(1).tells("held");
    assert_eq!(test.read("ran.txt"), "b\n");
    assert_eq!(test.statuses(), ["a disabled", "b completed", "c ready"]);
    test.torc(["why", "c"]).success().says("held");
    test.torc(["jobs", "release", "c"]).success();
    test.run().expect(0);
    assert_eq!(test.read("ran.txt"), "b\nc\n");
}

#[test]
fn an_enabled_job_runs_whenever_it_was_disabled() {
    let test = Test::new().spec("name: e\njobs:\n  - {name: a, command: 'echo a >> ran.txt'}\n  - {name: b, command: 'echo b >> ran.txt', depends_on: [a]}\n");
    test.torc(["create", "workflow.yaml"]).success();
    let switch = |how: &str, job: &str| {
        test.torc(["jobs", how, job]).success().says(&format!("{how}d {job}"))
    };
    switch("disable", "b");
    switch("enable", "b");
    assert_eq!(test.statuses(), ["a uninitialized", "b uninitialized"]);
    test.torc(["workflows", "initialize", "1"]).success();
    switch("disable", "a");
    assert_eq!(test.statuses(), ["a disabled", "b ready"]);
    switch("enable", "a");
    assert_eq!(test.statuses(), ["a ready", "b blocked"]);
    switch("disable", "b");
    test.run().expect(0);
    assert_eq!(
        (test.read("ran.txt").as_str(), test.statuses()),
        ("a\n", vec!["a completed".into(), "b disabled".into()])
    );
    test.torc(["workflows", "reset-status", "1", "--job", "b", "--dry-run"]).success().says("b");
    switch("enable", "b");
    test.run().expect(0);
    assert_eq!(test.read("ran.txt"), "a\nb\n");
}

#[test]
fn a_complete_workflow_can_not_be_canceled() {
    let test =
        Test::new().spec("name: r\njobs:\n  - {name: a, command: '[ $TORC_ATTEMPT_ID = 2 ]'}\n");
    test.run().expect(1);
    let said = test.torc(["cancel", "latest"]).success();
    said.says("r (workflow 1) is complete: there is nothing to cancel");
    test.torc(["jobs", "retry", "a"]).success();
    test.run().expect(0);
}

#[test]
fn a_failed_job_is_retried_on_demand() {
    let test = Test::new().spec("name: r\njobs:\n  - {name: a, command: '[ $TORC_ATTEMPT_ID = 2 ]'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    test.run().expect(1);
    assert_eq!(test.statuses(), ["a failed", "b canceled"]);
    test.torc(["jobs", "retry", "a"]).success().says("attempt 2 of a");
    test.run().expect(0).tells("resuming r");
    assert_eq!(test.statuses(), ["a completed", "b completed"]);
}

#[test]
fn reset_lets_failed_jobs_run_again_with_what_follows_them() {
    let test = Test::new().spec("name: r\njobs:\n  - {name: ok, command: 'echo ok >> ran.txt'}\n  - {name: a, command: 'test -e fixed'}\n  - {name: b, command: 'true', depends_on: [a]}\n");
    test.run().expect(1);
    let dry = test
        .torc(["workflows", "reset-status", "r", "--failed-only", "--dry-run"])
        .success()
        .tells("nothing was changed");
    assert!(
        dry.stdout.contains("a ") && dry.stdout.contains("b ") && !dry.stdout.contains("ok"),
        "{}",
        dry.stdout
    );
    assert_eq!(test.statuses(), ["ok completed", "a failed", "b canceled"]);
    test.write("fixed", "");
    test.torc(["workflows", "reset-status", "r", "--failed-only"]).success();
    test.torc(["run", "r"]).success();
    assert_eq!(test.statuses(), ["ok completed", "a completed", "b completed"]);
    assert_eq!(test.read("ran.txt"), "ok\n");
}

#[test]
fn reinitialize_finds_what_changed_and_says_why() {
    let test = Test::new()
        .spec("name: r\nfiles: [{name: in, path: in.txt}, {name: mid, path: mid.txt}]\njobs:\n  - {name: a, command: 'cp ${files.input.in} ${files.output.mid}'}\n  - {name: b, command: 'cat ${files.input.mid}'}\n  - {name: c, command: 'true'}\n")
        .file("in.txt", "one\n");
    test.run().expect(0);
    let nothing = test.torc(["workflows", "reinitialize", "latest", "--dry-run"]).success();
    assert_eq!(nothing.stdout, "");
    test.write("in.txt", "another\n");
    let dry =
        test.torc(["workflows", "reinitialize", "latest", "--dry-run"]).success().says("in.txt");
    assert!(!dry.stdout.contains("\n 3  c"), "{}", dry.stdout);
    assert_eq!(test.statuses(), ["a completed", "b completed", "c completed"]);
    test.torc(["workflows", "reinitialize", "latest"]).success();
    test.torc(["run", "latest"]).success();
    assert_eq!(test.read("mid.txt"), "another\n");
    assert_eq!(
        test.torc(["-f", "json", "jobs", "attempts", "c"]).success().json()["total_count"],
        1
    );
}

#[test]
fn a_missing_input_is_named_before_anything_runs() {
    let test = Test::new()
        .spec("name: m\nfiles: [{name: in, path: in.txt}]\njobs:\n  - {name: a, command: 'true', input_files: [in]}\n");
    test.run().expect(2).tells("in.txt").tells("--force");
    assert_eq!(test.torc(["-f", "json", "workflows", "list"]).success().json()["total_count"], 0);
    test.torc(["run", "workflow.yaml", "--force"]).success();
}

#[test]
fn a_workflow_can_be_exported_and_run_again() {
    let test =
        ran("name: x\njobs:\n  - {name: 'j_{i}', command: 'echo {i}', parameters: {i: '1:3'}}\n");
    test.torc(["workflows", "export", "latest", "-o", "copy.json"]).success();
    test.torc(["run", "copy.json"]).success().tells("up to date: 3 of 3 jobs");
    test.torc(["run", "copy.json", "--new"]).success().tells("created workflow 2 `x`: 3 jobs");
}

#[test]
fn deleting_needs_a_yes() {
    let test = ran(TWO);
    test.torc(["workflows", "delete", "two"]).exit(2).tells("--yes");
    test.torc(["workflows", "delete", "two", "--yes"]).success().says("deleted two (workflow 1)");
    test.torc(["workflows", "get", "1"]).exit(2).tells("not found");
}

#[test]
fn user_data_comes_as_json_text_or_file() {
    let test = Test::new()
        .spec("name: u\nuser_data: [{name: v, data: 1}]\njobs:\n  - {name: a, command: 'true', input_user_data: [v]}\n")
        .file("v.json", "[1, 2]");
    test.torc(["create", "workflow.yaml"]).success();
    for (args, expected) in [
        (&["update", "v", "{\"a\": 1}"][..], "{\n  \"a\": 1\n}\n"),
        (&["update", "v", "@v.json"], "[\n  1,\n  2\n]\n"),
        (&["update", "v", "--string", "plain"], "\"plain\"\n"),
        (&["update", "v", "-5"], "-5\n"),
    ] {
        test.torc([&["user-data"], args].concat()).success();
        assert_eq!(test.torc(["user-data", "get", "v"]).success().stdout, expected);
    }
    test.torc(["user-data", "update", "v", "-"]).stdin("true").success();
    assert_eq!(test.torc(["user-data", "get", "v"]).success().stdout, "true\n");
    test.torc(["user-data", "get", "w"]).exit(2).tells("known names: v");
}

#[test]
fn output_without_a_reader_ends_quietly() {
    let test =
        ran("name: many\njobs:\n  - {name: 'j_{i}', command: 'true', parameters: {i: '1:200'}}\n");
    let done = test.shell("torc jobs list | head -n 2; exit ${PIPESTATUS[0]}").success();
    assert_eq!(done.stdout.lines().count(), 2);
    assert_eq!(done.stderr, "");
}

#[test]
fn limit_and_offset_show_a_part() {
    let test =
        ran("name: many\njobs:\n  - {name: 'j_{i}', command: 'true', parameters: {i: '1:20'}}\n");
    let page =
        test.torc(["-f", "json", "jobs", "list", "--limit", "3", "--offset", "5"]).success().json();
    assert_eq!(page["total_count"], 20);
    let names: Vec<&str> =
        page["jobs"].as_array().expect("jobs").iter().map(|job| text(&job["name"])).collect();
    assert_eq!(names, ["j_6", "j_7", "j_8"]);
    test.torc(["jobs", "list", "-l", "3"]).success().tells("3 of 20 shown");
}

#[test]
fn a_hostile_text_is_shown_and_not_obeyed() {
    let test = Test::new();
    test.torc(["exec", "-c", "echo '\u{1b}[31m\u{202e}'"]).success();
    let card = test.torc(["jobs", "get", "job1"]).success().says("\\u{1b}[31m").stdout;
    assert!(!card.contains(['\u{1b}', '\u{202e}']), "{card:?}");
}

#[test]
fn jobs_are_retried_all_or_none() {
    let test = Test::new().spec(
        "name: r\njobs:\n  - {name: bad1, command: 'test -e fixed'}\n  - {name: good, command: 'true'}\n  - {name: bad2, command: 'test -e fixed'}\n  - {name: late, command: 'true', depends_on: [bad1]}\n",
    );
    test.run().expect(1);
    let before = ["bad1 failed", "good completed", "bad2 failed", "late canceled"];
    assert_eq!(test.statuses(), before);
    test.torc(["jobs", "retry", "bad1", "good", "bad2", "late"])
        .exit(2)
        .tells("`good`: job 2 is completed")
        .tells("`late`: job 4 is canceled")
        .tells("nothing was retried");
    assert_eq!(test.statuses(), before, "nothing was changed");
    assert_eq!(test.last_attempt("bad1")["attempt_id"], 1);
    test.write("fixed", "");
    let told = test.torc(["jobs", "retry", "bad1", "bad2", "1/bad1"]).success();
    assert_eq!(told.stdout.matches("attempt 2 of bad1").count(), 1, "{}", told.stdout);
    test.run().expect(0);
    assert_eq!(test.last_attempt("bad1")["attempt_id"], 2, "named twice, retried once");
}

#[test]
fn only_what_may_still_start_is_held() {
    let test = Test::new()
        .spec("name: h\njobs:\n  - {name: a, command: 'exit 3'}\n  - {name: b, command: 'true', depends_on: [a]}\n  - {name: c, command: 'true'}\n");
    test.run().expect(1);
    for (job, status) in [("a", "failed"), ("b", "canceled"), ("c", "completed")] {
        test.torc(["jobs", "hold", job])
            .exit(2)
            .tells(&format!("is {status}: there is nothing to hold"));
    }
}

#[test]
fn the_steps_of_a_plain_command_are_told_with_its_outcome() {
    let test = Test::new().spec(
        "name: p\njobs:\n  - {name: bad, command: 'exit 3'}\n  - {name: good, command: 'true'}\n",
    );
    test.run().expect(1);
    let bad = test
        .torc(["jobs", "steps", "bad"])
        .success()
        .says("failed (exit, code 3)")
        .says("without steps");
    assert!(!bad.stdout.contains("succeeded"), "{}", bad.stdout);
    test.torc(["jobs", "steps", "good"]).success().says("completed");
}

#[test]
fn a_live_attempt_has_no_return_code_yet() {
    let test = Test::new()
        .spec("name: c\njobs:\n  - {name: a, command: '[ $TORC_ATTEMPT_ID = 2 ] || exit 3'}\n");
    test.run().expect(1);
    assert!(test.torc(["jobs", "list"]).success().stdout.contains(" 3"));
    test.torc(["jobs", "retry", "a"]).success();
    let list = test.torc(["jobs", "list"]).success();
    let line = list.stdout.lines().find(|line| line.contains("ready")).expect("the job's line");
    assert!(!line.contains('3'), "{line}");
}

#[test]
fn a_name_that_no_parameter_has_is_noticed() {
    let test = Test::new();
    test.torc(["exec", "--param", "i=1:2", "-c", "echo {i} {j}"])
        .success()
        .tells("`{j}` stays as it is")
        .tells("`i` given");
    let plain = test.torc(["exec", "-c", "echo {j}"]).success();
    assert!(!plain.stderr.contains("warning"), "{}", plain.stderr);
}

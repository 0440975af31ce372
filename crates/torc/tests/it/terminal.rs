//! What a person sees in the terminal: failures with their last words, output of commands, lists.

use crate::support::{TORC, Test, text};

const MIXED: &str = r#"
name: mixed
failure_handlers: [{name: flaky, rules: [{exit_codes: [42], max_retries: 3}]}]
jobs:
  - {name: good, command: "echo fine"}
  - {name: bad, command: "echo first >&2; echo the last word >&2; exit 3"}
  - {name: shaky, failure_handler: flaky, command: "test -e tried && exit 0; touch tried; exit 42"}
  - {name: after, command: "true", depends_on: [bad]}
"#;

#[test]
fn a_failure_is_told_with_its_last_line_at_once_and_again_at_the_end() {
    let test = Test::new().spec(MIXED);
    let run = test.run().expect(1);
    let told = "failed: bad (job 2) after ";
    let places: Vec<_> = run.stderr.match_indices(told).map(|(at, _)| at).collect();
    let end = run.stderr.find("workflow 1 complete: 2 of 4 jobs succeeded").expect("the end");
    assert_eq!(places.len(), 2, "{}", run.stderr);
    assert!(places[0] < end && places[1] > end, "{}", run.stderr);
    assert_eq!(
        run.stderr.matches(": exit code 3\n  | the last word\n").count(),
        2,
        "{}",
        run.stderr
    );
    run.tells("  retried: 1 job, 1 recovered (shaky)");
}

#[test]
fn quiet_tells_failures_and_nothing_else() {
    let test = Test::new().spec(MIXED);
    let run = test.torc(["-q", "run", "workflow.yaml"]).exit(1);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert!(
        matches!(lines.as_slice(), [first, "  | the last word"] if first.starts_with("failed: bad")),
        "{lines:?}"
    );
    let good = test.torc(["-q", "exec", "-c", "true", "-c", "true"]).success();
    assert_eq!((good.stdout.as_str(), good.stderr.as_str()), ("", ""));
}

#[test]
fn verbose_tells_starts_and_ends_of_jobs_and_not_the_inside() {
    let test = Test::new().spec(MIXED);
    let run = test.torc(["-v", "run", "workflow.yaml"]).exit(1);
    for line in [
        "started: good (job 1)\n",
        "finished: good (job 1) after ",
        "started: shaky (job 3), attempt 2\n",
    ] {
        assert!(run.stderr.contains(line), "{line}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("torc_server"), "{}", run.stderr);
}

#[test]
fn ctrl_c_ends_with_130() {
    let test = Test::new();
    test.gate("gate");
    let mut run = test.torc(["exec", "-c", "echo > begun; read line < gate"]).spawn();
    run.wait_for_stderr("created workflow");
    let mut status = test.torc(["status", "--watch"]).spawn();
    status.wait_for_stdout("running 1");
    status.signal("INT");
    status.wait().expect(130);
    run.signal("INT");
    run.wait().expect(130).tells("resume with `torc run 1`");
}

#[test]
fn exec_shows_each_line_of_a_single_command_when_it_is_printed() {
    let test = Test::new();
    for options in [&[][..], &["--show-output"], &["--tag"]] {
        let gates = [test.gate("first"), test.gate("second")];
        let command = "echo one; echo warned >&2; read -r _ < first; printf 'two\\nhalf a '; \
                       read -r _ < second; printf line";
        let call = [&["exec"], options, &["-c", command]].concat();
        let mut run = test.torc(call).spawn();
        // It waits for the gate after the first line, and for the next one after the second.
        run.wait_for_stdout("one");
        run.wait_for_stderr("warned");
        gates[0].open();
        run.wait_for_stdout("two");
        gates[1].open();
        let done = run.wait().expect(0);
        let expected = match options {
            ["--tag"] => "job1\tone\njob1\ttwo\njob1\thalf a line\n",
            _ => "one\ntwo\nhalf a line\n",
        };
        assert_eq!(done.stdout, expected, "{options:?}");
        assert_eq!(done.stderr.matches("warned").count(), 1, "{}", done.stderr);
        std::fs::remove_file(test.path("first")).unwrap();
        std::fs::remove_file(test.path("second")).unwrap();
    }
}

#[test]
fn exec_shows_every_byte_of_a_command_that_prints_much() {
    let test = Test::new();
    let run = test.torc(["exec", "-c", "seq 1 200000; yes x | head -c 300000 | tr -d '\\n'"]);
    let run = run.success();
    let mut expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    expected += &"x".repeat(150_000);
    expected += "\n";
    assert_eq!(run.stdout.len(), expected.len());
    assert!(run.stdout == expected);
}

#[test]
fn exec_shows_what_commands_print() {
    let test = Test::new();
    let one = test.torc(["exec", "--", "echo", "hello"]).success();
    assert_eq!(one.stdout, "hello\n");
    assert_eq!(test.torc(["exec", "--hide-output", "--", "echo", "hello"]).success().stdout, "");
    let two = ["exec", "-c", "echo one", "-c", "echo two"];
    assert_eq!(test.torc(two).success().stdout, "", "of several only on request");
    // The first ends last: it waits for what the second writes.
    let gate = test.gate("gate");
    let tagged = test
        .torc(["exec", "--tag", "-k", "-c", "read x < gate; echo 1; echo e >&2", "-c", "printf 2"])
        .spawn();
    gate.open();
    let tagged = tagged.wait().expect(0);
    assert_eq!(tagged.stdout, "job1\t1\njob2\t2\n");
    assert!(tagged.stderr.contains("job1\te\n"), "{}", tagged.stderr);
    test.torc(["-f", "json", "exec", "--tag", "-c", "true"]).exit(2).tells("cannot hold both JSON");
}

#[test]
fn exec_shows_only_the_last_attempt_and_a_failure_without_repeating_it() {
    let test = Test::new();
    let done = test.torc(["exec", "-c", "echo out; echo err >&2; exit 5"]).exit(1);
    assert_eq!(done.stdout, "out\n");
    assert_eq!(done.stderr.matches("err\n").count(), 1, "{}", done.stderr);
}

#[test]
fn a_workflow_with_failures_does_not_read_as_complete() {
    let test = Test::new().spec(MIXED);
    test.run().expect(1);
    test.torc(["status"])
        .success()
        .says("2 of 4 jobs succeeded, 1 failed, 1 canceled\n")
        .says("state       ended with failures");
    let list = test.torc(["workflows", "list"]).success();
    assert!(list.stdout.starts_with("id  name   user"), "{}", list.stdout);
    list.says("ended with failures").says("2 of 4");
    test.torc(["why"]).success().says("failed      1 job of bad").says("hint        `torc why 2`");
    test.torc(["reports", "summary"]).success().tells("1 job tried again, 1 recovered");
}

#[test]
fn why_without_a_job_counts_what_waits_by_reason() {
    let test = Test::new().spec(
        r#"
name: waits
jobs:
  - {name: "gpu_{i}", parameters: {i: "1:3"}, gpus: 64, command: "true"}
  - {name: held, command: "true"}
  - {name: after, command: "true", depends_on: [held]}
"#,
    );
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["workflows", "initialize"]).success();
    test.torc(["jobs", "hold", "held"]).success();
    let why = test.torc(["-f", "json", "why"]).success().json();
    let groups: Vec<(String, i64)> = why["waiting"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| (text(&group["status"]).to_owned(), group["jobs"].as_i64().expect("a number")))
        .collect();
    assert_eq!(groups.iter().map(|(_, count)| count).sum::<i64>(), 5, "{why}");
    assert!(
        groups.contains(&("ready".into(), 3)) && groups.contains(&("ready".into(), 1)),
        "{why}"
    );
    assert!(groups.contains(&("blocked".into(), 1)), "{why}");
    test.torc(["why"]).success().says("3 jobs (such as gpu_1").says("it is held back");
}

#[test]
fn what_runs_now_is_listed_with_host_and_memory() {
    let test = Test::new();
    let gate = test.gate("gate");
    let mut run = test.torc(["exec", "-c", "read line < gate"]).spawn();
    run.wait_for_stderr("created workflow");
    let mut status = test.torc(["status", "--watch"]).spawn();
    status.wait_for_stdout("running 1");
    let running = test.torc(["jobs", "running"]).success();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    running.says("job1").says(&host).says("iB");
    test.torc(["runners", "list"]).success().says(&host).says("active");
    gate.open();
    run.wait().expect(0);
    status.wait().expect(0);
    test.torc(["jobs", "running"]).success().tells("no jobs");
    test.torc(["runners", "list"]).success().tells("no runners");
    test.torc(["runners", "list", "--all"]).success().says("ended");
}

#[test]
fn lists_sort_filter_and_become_csv() {
    let test = Test::new().spec(MIXED);
    test.run().expect(1);
    let names = |args: &[&str]| -> Vec<String> {
        let list = test.torc([&["-f", "json"], args].concat()).success().json();
        let jobs = list.as_object().and_then(|all| all.values().next().cloned()).expect("a list");
        let name =
            |job: &serde_json::Value| text(job.get("name").unwrap_or(&job["job_name"])).to_owned();
        jobs.as_array().expect("rows").iter().map(name).collect()
    };
    assert_eq!(names(&["jobs", "list", "--sort-by", "name"]), ["after", "bad", "good", "shaky"]);
    assert_eq!(
        names(&["jobs", "list", "--sort-by", "name", "--reverse"]),
        ["shaky", "good", "bad", "after"]
    );
    assert_eq!(names(&["results", "list", "--where", "name:bad"]), ["bad"]);
    let csv = test.torc(["-f", "csv", "jobs", "list", "--where", "name:bad"]).success().stdout;
    let mut lines = csv.split("\r\n");
    assert!(
        lines.next().is_some_and(|head| head.starts_with("id,workflow_id,name,command,status,"))
    );
    assert!(lines.next().is_some_and(|row| row.starts_with("2,1,bad,")), "{csv}");
    test.torc(["jobs", "list", "--sort-by", "colour"]).exit(2).tells("priority");
    let newest = test.torc(["-f", "json", "events", "--tail", "1"]).success().json();
    assert_eq!(text(&newest["events"][0]["kind"]), "runner_ended");
}

#[test]
fn follow_is_f_where_output_is_followed() {
    let test = Test::new();
    test.torc(["exec", "-c", "echo hi"]).success();
    assert_eq!(test.torc(["logs", "job1", "-f"]).success().stdout, "hi\n");
    test.torc(["events", "-f", "-F", "json"]).success().says("{\"id\":1,");
    test.torc(["-f", "json", "events", "--tail", "1"]).success().says("\"events\": [");
}

#[test]
fn help_explains_commands_and_keys() {
    let test = Test::new();
    test.torc(["help"]).success().says("Run workflows of shell jobs");
    test.torc(["help", "jobs", "list"]).success().says("torc jobs list [OPTIONS]");
    test.torc(["help", "spec", "retries"])
        .success()
        .says("retries of a job")
        .says("example   retries: 2");
    test.torc(["help", "spec", "retires"]).exit(2).tells("did you mean `torc help spec retries`?");
    test.torc(["version"]).success().says("torc ");
    test.torc(["man", "pages"]).success();
    assert!(test.read("pages/torc-jobs-list.1").contains("torc\\-jobs\\-list"));
}

#[test]
fn completions_offer_workflows_jobs_and_statuses() {
    let test = Test::new().spec(MIXED);
    test.run().expect(1);
    let script = test.torc(["completions", "bash"]).success().stdout;
    test.write("complete.bash", &script);
    let complete = |words: &str, index: usize| -> String {
        let ask = format!(
            "PATH={}:$PATH; source complete.bash; COMP_WORDS=({words}); COMP_CWORD={index}; \
             _clap_complete_torc torc \"${{COMP_WORDS[{index}]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            std::path::Path::new(TORC).parent().expect("a directory").display()
        );
        test.shell(&ask).success().stdout
    };
    assert_eq!(complete("torc why sha", 2).trim(), "shaky");
    assert_eq!(complete("torc status mi", 2).trim(), "mixed");
    assert_eq!(complete("torc jobs list -s can", 4).trim(), "canceled");
}

#[test]
fn a_spec_that_is_there_is_not_overwritten() {
    let test = Test::new().spec(MIXED);
    test.torc(["create", "workflow.yaml"]).success();
    test.torc(["workflows", "export", "-o", "workflow.yaml"]).exit(2).tells("is there already");
    assert_eq!(test.read("workflow.yaml"), MIXED);
    test.torc(["workflows", "export", "-o", "workflow.yaml", "--force"]).success();
    assert_ne!(test.read("workflow.yaml"), MIXED);
    test.torc(["workflows", "export", "-o", "x.toml"]).exit(2).tells(".yaml, .json");
    test.write("x.toml", "name = 1\n");
    test.torc(["run", "x.toml"]).exit(2).tells("is TOML");
}

#[test]
fn times_have_their_zone() {
    let test = Test::new();
    test.torc(["exec", "-c", "true"]).success();
    test.torc(["status"]).env("TZ", "America/New_York").success().says(" E");
    test.torc(["status"]).success().says(" UTC (");
}

/// The line is drawn for the terminal's own width.
#[test]
fn the_live_line_names_running_jobs_in_a_terminal() {
    let test = Test::new();
    if test.shell("command -v script stdbuf").done().code != Some(0) {
        eprintln!("skipped: `script` or `stdbuf` is not installed");
        return;
    }
    let gate = test.gate("gate");
    // Carriage returns become ends of lines, so that each drawing of the line is one.
    let call = "stty cols 60; torc exec --hide-output -c 'read line < gate'";
    let screen = format!("script -qec \"{call}\" /dev/null | stdbuf -o0 tr '\\r' '\\n'");
    let mut run = test.shell(&screen).env("TERM", "xterm").spawn();
    run.wait_for_stdout("0/1  1 running: job1");
    gate.open();
    run.wait().expect(0).says("workflow 1 complete: 1 of 1 job succeeded");
}

#[test]
fn a_limit_that_the_server_has_set_otherwise_is_told() {
    let test = Test::new().spec(
        "name: l\nlimits: {licence: 2}\njobs: [{name: x, command: 'true', uses: [licence]}]\n",
    );
    test.torc(["limits", "set", "licence", "1"]).success();
    test.torc(["create", "workflow.yaml"])
        .success()
        .tells("limit `licence` is 1 on the server, which counts, and 2 in the spec");
}

#[test]
fn a_name_that_means_another_workflow_is_warned_about() {
    for name in ["latest", "17"] {
        let test =
            Test::new().spec(&format!("name: '{name}'\njobs: [{{name: x, command: 'true'}}]\n"));
        test.torc(["check", "workflow.yaml"]).success().tells("means another workflow");
    }
}

#[test]
fn the_doctor_refuses_a_database_of_a_newer_version() {
    let test = Test::new();
    test.torc(["exec", "-c", "true"]).success();
    let database = rusqlite::Connection::open(test.path(".torc/torc.db")).expect("the database");
    database.pragma_update(None, "user_version", 99).expect("a version");
    drop(database);
    test.torc(["server", "doctor"]).exit(3).tells("has schema version 99");
}

#[test]
fn a_directory_whose_name_is_not_utf8_is_refused_before_anything_is_created() {
    let test = Test::new();
    let script = "d=$(printf 'e\\377'); mkdir \"$d\" && cd \"$d\" && torc exec -c true";
    test.shell(script).exit(2).tells("is not UTF-8");
    test.torc(["workflows", "list"]).exit(2);
}

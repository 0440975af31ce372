//! A workflow that changes: the same command again does what is needed, and nothing else.

use crate::support::{Done, Running, Test, text};
use serde_json::{Value, json};

/// Three jobs that tell when they ran: `b` reads what `a` writes, `c` stands alone.
const SPEC: &str = r#"
name: w
files:
  - {name: in, path: in.txt}
  - {name: mid, path: mid.txt}
  - {name: end, path: end.txt}
jobs:
  - {name: a, command: "cp in.txt mid.txt; echo a >> ran.txt", input_files: [in], output_files: [mid]}
  - {name: b, command: "cp mid.txt end.txt; echo b >> ran.txt", input_files: [mid], output_files: [end]}
  - {name: c, command: "echo c >> ran.txt"}
"#;

fn first_run(spec: &str) -> Test {
    let test = Test::new().spec(spec).file("in.txt", "one\n");
    test.run().expect(0);
    test
}

/// The jobs that ran since the last look, in alphabetical order.
fn ran(test: &Test) -> String {
    if !test.exists("ran.txt") {
        return String::new();
    }
    let mut names: Vec<String> = test.read("ran.txt").lines().map(Into::into).collect();
    names.sort();
    std::fs::remove_file(test.path("ran.txt")).expect("it is there");
    names.join(" ")
}

/// What the server says of each job, and the counts in one line.
fn plan(test: &Test, options: &[&str]) -> (Vec<String>, Value) {
    let call = ["-f", "json", "run", "workflow.yaml", "--dry-run"].iter().chain(options);
    let view = test.torc(call).success().json();
    let jobs = view["jobs"].as_array().expect("jobs").iter();
    let jobs = jobs.map(|job| format!("{} {}", text(&job["name"]), text(&job["change"])));
    (jobs.collect(), view["counts"].clone())
}

fn serve(test: &Test) -> (Running, String) {
    let mut running = test.torc(["server", "run"]).spawn();
    let url = running.wait_for_stdout("http://").trim().to_string();
    (running, url)
}

#[test]
fn the_same_command_again_says_up_to_date_and_runs_nothing() {
    let test = first_run(SPEC);
    assert_eq!(ran(&test), "a b c");
    let again = test.run().expect(0);
    assert_eq!(again.stderr, "up to date: 3 of 3 jobs\n");
    assert_eq!(ran(&test), "");
    let told = test.torc(["-f", "json", "run", "workflow.yaml"]).success().json();
    assert_eq!(told["is_complete"], true);
    // A file that was moved is the same spec.
    test.shell("mv workflow.yaml other.yaml").success();
    test.torc(["run", "other.yaml"]).success().tells("up to date: 3 of 3 jobs");
}

#[test]
fn after_failures_only_those_run_and_what_they_canceled() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: good, command: echo good >> ran.txt}\n  \
         - {name: bad, command: echo bad >> ran.txt; test -e mended}\n  \
         - {name: after, command: echo after >> ran.txt, depends_on: [bad]}\n",
    );
    test.run().expect(1);
    assert_eq!(ran(&test), "bad good");
    test.write("mended", "");
    let again = test.run().expect(0);
    again.tells("2 that did not succeed, 1 up to date").tells("bad: it failed");
    assert_eq!(ran(&test), "after bad");
    test.run().expect(0).tells("up to date: 3 of 3 jobs");
}

#[test]
fn a_changed_spec_shows_its_plan_first_and_runs_only_what_it_must() {
    let test = first_run(
        "name: w\nfiles: [{name: in, path: in.txt}]\njobs:\n  \
         - {name: old, command: echo old >> ran.txt}\n  \
         - {name: reads, command: cat in.txt; echo reads >> ran.txt, input_files: [in]}\n  \
         - {name: same, command: echo same >> ran.txt}\n  \
         - {name: gone, command: echo gone >> ran.txt}\n  \
         - {name: last, command: echo last >> ran.txt, depends_on: [old]}\n",
    );
    ran(&test);
    test.write("in.txt", "something else\n");
    test.write(
        "workflow.yaml",
        "name: w\nfiles: [{name: in, path: in.txt}]\njobs:\n  \
         - {name: old, command: echo new >> ran.txt}\n  \
         - {name: reads, command: cat in.txt; echo reads >> ran.txt, input_files: [in]}\n  \
         - {name: same, command: echo same >> ran.txt}\n  \
         - {name: more_1, command: echo more_1 >> ran.txt}\n  \
         - {name: more_2, command: echo more_2 >> ran.txt, depends_on: [more_1]}\n  \
         - {name: last, command: echo last >> ran.txt, depends_on: [old]}\n",
    );
    let line = "w (workflow 1): 2 new, 1 changed (command), 1 whose inputs changed, 1 that follow, 1 up to date, \
                1 removed";
    let dry = test.torc(["run", "workflow.yaml", "--dry-run"]).success().tells(line);
    dry.says("its input `in.txt` was modified").says("job `old`, which it depends on, runs again");
    assert_eq!(ran(&test), "", "a dry run runs nothing");
    assert_eq!(test.statuses().len(), 5, "and changes nothing");
    // Without a terminal, a removal must be meant.
    let refused = test.run().expect(2);
    refused.tells(line).tells("no longer has 1 job of workflow 1: `gone`").tells("`--yes`");
    assert_eq!(ran(&test), "");
    let done = test.torc(["run", "workflow.yaml", "--yes"]).success();
    done.tells(line).tells("old: its command is another").tells("gone: the spec no longer has it");
    assert_eq!(ran(&test), "last more_1 more_2 new reads");
    test.run().expect(0).tells("up to date: 6 of 6 jobs");
    // What the removed job did is still there.
    let attempts = test.torc(["-f", "json", "jobs", "attempts", "gone"]).success().json();
    assert_eq!(attempts["attempts"][0]["state"], "completed");
    let history = test.torc(["workflows", "history"]).success();
    history.says("5 new").says("2 new, 1 changed (command)").says("1 removed");
    let history = test.torc(["-f", "json", "workflows", "history", "1"]).success().json();
    let revisions = history["revisions"].as_array().expect("revisions");
    assert_eq!(revisions.len(), 2);
    assert_eq!((&revisions[0]["revision"], &revisions[0]["run_id"]), (&json!(2), &json!(2)));
    assert!(!text(&revisions[0]["made_by"]).is_empty());
    assert!(revisions[0]["made_ms"].as_i64() >= revisions[1]["made_ms"].as_i64());
}

#[test]
fn what_does_not_change_a_result_runs_nothing_again() {
    let test = first_run(SPEC);
    ran(&test);
    let edited = r#"
# A comment, another order of keys, and what only plans.
jobs:
  - {input_files: [in], output_files: [mid], command: "cp in.txt mid.txt; echo a >> ran.txt", name: a, priority: 7}
  - {name: b, command: "cp mid.txt end.txt; echo b >> ran.txt", input_files: [mid], output_files: [end], timeout: 1h}
  - {name: c, command: "echo c >> ran.txt", resource_requirements: small, max_lost_retries: 5}
resource_requirements: [{name: small, memory: 100m, runtime: 5m, num_cpus: 1}]
files:
  - {name: in, path: in.txt}
  - {name: mid, path: mid.txt}
  - {name: end, path: end.txt}
description: the same
name: w
"#;
    test.write("workflow.yaml", edited);
    let (jobs, counts) = plan(&test, &[]);
    assert_eq!((jobs.len(), &counts["up_to_date"]), (0, &json!(3)));
    test.run().expect(0).tells("up to date: 3 of 3 jobs");
    assert_eq!(ran(&test), "");
    let job = test.torc(["-f", "json", "jobs", "get", "a"]).success().json();
    assert_eq!(job["priority"], 7, "and yet it is taken over");
}

#[test]
fn what_changes_a_result_is_named_as_the_reason() {
    let test = first_run(SPEC);
    let cases = [
        ("echo c >> ran.txt\"", "echo other >> ran.txt\"", "c command"),
        ("echo c >> ran.txt\"", "echo c >> ran.txt\", env: {LEVEL: high}", "c env"),
        ("command: \"echo c >> ran.txt\"", "steps: [{shell: echo}]", "c command"),
        ("echo c >> ran.txt\"", "echo c >> ran.txt\", input_files: [in]", "c input_files"),
        ("echo c >> ran.txt\"", "echo c >> ran.txt\", shell: strict", "c success"),
        ("echo c >> ran.txt\"", "echo c >> ran.txt\", depends_on: [b]", "c dependencies"),
    ];
    for (from, to, reason) in cases {
        test.write("workflow.yaml", &SPEC.replace(from, to));
        let (jobs, counts) = plan(&test, &[]);
        assert_eq!(jobs, [reason], "{to}");
        assert_eq!(counts["up_to_date"], 2, "{to}");
    }
    test.write("workflow.yaml", &SPEC.replace("name: w", "name: w\nenv: {LEVEL: high}"));
    assert_eq!(plan(&test, &[]).0, ["a env", "b env", "c env"]);
    let gpus = "name: w\nresource_requirements: [{name: gpu, num_gpus: 1}]";
    let gpus =
        SPEC.replace("name: w", gpus).replace("name: c,", "name: c, resource_requirements: gpu,");
    test.write("workflow.yaml", &gpus);
    assert_eq!(plan(&test, &[]).0, ["c requirements"]);
    test.write("workflow.yaml", SPEC);
    assert!(plan(&test, &[]).0.is_empty());
    test.shell("rm mid.txt").success();
    assert_eq!(plan(&test, &[]).0, ["a output_missing", "b upstream"]);
}

#[test]
fn a_declared_script_that_the_command_names_counts_as_an_input() {
    let spec = "name: w\nfiles: [{name: code, path: sim.sh}]\njobs:\n  \
                - {name: a, command: sh sim.sh >> ran.txt}\n  - {name: b, command: echo b my_sim.sh.bak >> ran.txt}\n";
    let test = Test::new().spec(spec).file("sim.sh", "echo a\n");
    test.run().expect(0);
    ran(&test);
    test.write("sim.sh", "echo a2\n");
    test.run().expect(0).tells("a: `sim.sh`, which its command names, was modified");
    assert_eq!(ran(&test), "a2");
    test.run().expect(0).tells("up to date: 2 of 2 jobs");
}

#[test]
fn an_intermediate_file_changed_by_hand_lets_its_reader_run_once() {
    let test = first_run(SPEC);
    ran(&test);
    test.write("mid.txt", "by hand\n");
    test.shell("touch -d '+1 hour' mid.txt").success();
    test.run().expect(0).tells("b: its input `mid.txt` was changed after it had been written");
    assert_eq!((ran(&test), test.read("end.txt")), ("b".into(), "by hand\n".into()));
    test.run().expect(0).tells("up to date: 3 of 3 jobs");
}

#[test]
fn rerun_forces_jobs_by_name_by_regex_or_all() {
    let test = first_run(SPEC);
    ran(&test);
    for (which, expected) in [("c", "c"), ("a", "a b"), ("[bc]", "b c"), ("all", "a b c")] {
        test.torc(["run", "workflow.yaml", "--rerun", which]).success();
        assert_eq!(ran(&test), expected, "{which}");
    }
    let wrong = test.torc(["run", "workflow.yaml", "--rerun", "nothing"]).exit(2);
    wrong.tells("no job is called `nothing`").tells("hint:");
    test.run().expect(0).tells("up to date: 3 of 3 jobs");
}

#[test]
fn touch_accepts_outputs_as_they_are() {
    let test = first_run(SPEC);
    ran(&test);
    // Another command, a new job whose output is there, and one whose output is not.
    let grown = SPEC.replace("cp in.txt mid.txt", "cp -p in.txt mid.txt").replace(
        "  - {name: end, path: end.txt}",
        "  - {name: end, path: end.txt}\n  - {name: x, path: x.txt}\n  - {name: y, path: y.txt}",
    ) + "  - {name: d, command: \"echo d >> ran.txt; touch x.txt\", output_files: [x]}\n  \
           - {name: e, command: \"echo e >> ran.txt; touch y.txt\", output_files: [y]}\n";
    test.write("workflow.yaml", &grown);
    test.write("x.txt", "made elsewhere\n");
    let touched = test.torc(["run", "workflow.yaml", "--touch"]).success();
    touched.tells("the outputs of 2 jobs were accepted as they are; 1 job to run");
    assert_eq!(ran(&test), "", "nothing runs");
    let job = test.torc(["-f", "json", "jobs", "get", "d"]).success().json();
    assert_eq!((text(&job["status"]), text(&job["status_reason"])), ("completed", "accepted"));
    test.run().expect(0);
    assert_eq!(ran(&test), "e");
    test.run().expect(0).tells("up to date: 5 of 5 jobs");
}

#[test]
fn touch_in_the_first_call_accepts_what_was_made_elsewhere() {
    let test = Test::new().spec(SPEC).file("in.txt", "1\n").file("mid.txt", "1\n");
    let touched = test.torc(["run", "workflow.yaml", "--touch"]).success();
    touched.tells("the outputs of 1 job were accepted as they are; ");
    assert_eq!(ran(&test), "", "nothing runs");
    test.run().expect(0);
    assert!(!ran(&test).contains('a'), "the job whose output was there does not run");
    test.run().expect(0).tells("up to date: ");
}

/// A call on a terminal of its own, with this typed.
fn on_a_terminal(test: &Test, call: &str, typed: &str) -> Done {
    let call = format!("{} {call}", crate::support::TORC);
    test.command("script", ["-qec", &call, "/dev/null"]).stdin(typed).done()
}

#[test]
fn a_terminal_is_asked_before_jobs_are_removed() {
    let test = first_run(SPEC);
    ran(&test);
    let shorter: String =
        SPEC.lines().filter(|line| !line.contains("name: c,")).collect::<Vec<_>>().join("\n")
            + "\n";
    test.write("workflow.yaml", &shorter);
    // Anything but a terminal must say it.
    test.torc(["run", "workflow.yaml"]).exit(2).tells("--yes");
    let refused = on_a_terminal(&test, "run workflow.yaml", "n\n");
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
    assert!(test.statuses().contains(&"c completed".to_owned()), "{:?}", test.statuses());
    let agreed = on_a_terminal(&test, "run workflow.yaml", "y\n");
    assert_eq!(agreed.code, Some(0), "{}", agreed.stdout);
    assert!(test.statuses().contains(&"c disabled".to_owned()), "{:?}", test.statuses());
}

#[test]
fn new_starts_over_and_each_file_finds_its_own_workflow() {
    let test = first_run(SPEC);
    test.torc(["run", "workflow.yaml", "--new"]).success().tells("created workflow 2");
    assert_eq!(ran(&test), "a a b b c c");
    test.run().expect(0).tells("up to date");
    // Another file with the same name is a question, not a guess.
    test.write("other.yaml", "name: w\njobs: [{name: z, command: 'true'}]\n");
    let clash = test.torc(["run", "other.yaml"]).exit(2);
    let clash = clash.tells("`other.yaml` and `workflow.yaml` both describe a workflow called `w`");
    clash.tells("--new").tells("`torc workflows reinitialize 2 --spec FILE`");
    assert_eq!(test.torc(["-f", "json", "workflows", "list"]).success().json()["total_count"], 2);
    test.torc(["run", "other.yaml", "--new"]).success().tells("created workflow 3");
    test.torc(["run", "other.yaml"]).success().tells("up to date: 1 of 1 job");
    test.run().expect(0).tells("up to date: 3 of 3 jobs");
    test.torc(["run", "latest", "--touch"]).exit(2).tells("`--touch` needs a spec");
}

/// A job that waits at a gate in its first attempt, beside one that does not change.
fn gated(version: &str) -> String {
    format!(
        "name: w\njobs:\n  - {{name: busy, command: 'echo {version} >> ran.txt; [ $TORC_ATTEMPT_ID != 1 ] || {{ echo begun > begun; read x < gate; }}'}}\n  \
         - {{name: calm, command: 'echo calm >> ran.txt; echo begun > begun2; read x < gate2'}}\n"
    )
}

#[test]
fn a_running_workflow_takes_a_new_spec_and_what_did_not_change_goes_on() {
    for how in ["finish", "stop"] {
        let test = Test::new().spec(&gated("old"));
        let (gate, calm) = (test.gate("gate"), test.gate("gate2"));
        let begun = [test.gate("begun"), test.gate("begun2")];
        let mut run = test.torc(["run", "workflow.yaml", "-j", "4"]).spawn();
        run.wait_for_stderr("created workflow");
        begun.iter().for_each(|gate| gate.read());
        let more = gated("new") + "  - {name: more, command: 'echo more >> ran.txt'}\n";
        test.write("new.yaml", &more);
        let call = ["workflows", "reinitialize", "1", "--spec", "new.yaml", "--running", how];
        test.torc(call).success().tells("plan: 1 new, 1 changed (command), 1 unfinished");
        if how == "finish" {
            gate.open();
        }
        // The changed job runs again in the same run, as the new spec says.
        let mut events = test.torc(["-f", "json", "events", "--follow"]).spawn();
        events.wait_for_stdout("\"job_retried\"");
        calm.open();
        run.wait().expect(0).tells("3 of 3 jobs succeeded");
        drop(events);
        assert_eq!(ran(&test), "calm more new old", "{how}");
        let attempts = test.torc(["-f", "json", "jobs", "attempts", "busy"]).success().json();
        let first = text(&attempts["attempts"][0]["state"]).to_owned();
        assert_eq!(first, if how == "finish" { "completed" } else { "canceled" });
        let calm = test.torc(["-f", "json", "jobs", "attempts", "calm"]).success().json();
        assert_eq!(calm["total_count"], 1, "{how}");
    }
}

#[test]
fn of_two_people_who_apply_at_once_the_second_is_told() {
    let test = first_run(SPEC);
    let (server, url) = serve(&test);
    let spec = |command: &str| json!({"name": "w", "jobs": [{"name": "c", "command": command}]});
    let post = |body: Value| {
        test.write("body.json", &body.to_string());
        let script = format!(
            "curl -s -X POST -H \"Authorization: Bearer $(cat .torc/token)\" -H 'Content-Type: application/json' \
             --data @body.json {url}/torc-service/v1/workflows/1/apply"
        );
        test.shell(&script).success().json()
    };
    let seen = post(json!({"spec": spec("one"), "dry_run": true}));
    assert_eq!((&seen["revision"], &seen["dry_run"]), (&json!(1), &json!(true)));
    let first = post(json!({"spec": spec("one"), "revision": 1, "user": "ada"}));
    assert_eq!(first["revision"], 2);
    let second = post(json!({"spec": spec("two"), "revision": 1, "user": "bob"}));
    assert_eq!(second["error"]["code"], "revision_changed");
    let job = test.torc(["-f", "json", "jobs", "get", "c"]).success().json();
    assert_eq!(job["command"], "one");
    let history = test.torc(["-f", "json", "workflows", "history", "1"]).success().json();
    assert_eq!(history["revisions"][0]["made_by"], "ada");
    drop(server);
}

/// Whatever is edited, and wherever the program is killed in between: in the end the outputs are those
/// of a fresh run of the last spec.
#[test]
fn edits_and_kills_end_as_a_fresh_run_of_the_last_spec() {
    let spec = |version: usize, jobs: usize| {
        let mut text = "name: w\nfiles:\n".to_owned();
        for n in 0..jobs {
            text += &format!("  - {{name: f{n}, path: f{n}.txt}}\n");
        }
        text += "jobs:\n";
        for n in 0..jobs {
            let read = if n == 0 { String::new() } else { format!("cat f{}.txt; ", n - 1) };
            let inputs =
                if n == 0 { String::new() } else { format!(", input_files: [f{}]", n - 1) };
            let own = if n % 3 == version % 3 { version } else { 0 };
            text += &format!(
                "  - {{name: j{n}, command: '({read}echo {own}-{n}) > f{n}.tmp; mv f{n}.tmp f{n}.txt', \
                 output_files: [f{n}]{inputs}}}\n"
            );
        }
        text
    };
    let test = Test::new().spec(&spec(0, 4));
    test.run().expect(0);
    for (version, jobs) in [(1, 6), (2, 5), (3, 7), (4, 3), (5, 6)] {
        test.write("workflow.yaml", &spec(version, jobs));
        let mut run = test.torc(["run", "workflow.yaml", "--yes"]).spawn();
        // In the middle of applying, or a little later.
        run.wait_for_stderr("workflow 1)");
        run.signal("KILL");
        run.wait();
    }
    let last = test.torc(["run", "workflow.yaml", "--yes"]).success();
    assert!(last.stderr.contains("6 of 6") || last.stderr.contains("succeeded"), "{}", last.stderr);
    test.run().expect(0).tells("up to date: 6 of 6 jobs");
    let fresh = Test::new().spec(&spec(5, 6));
    fresh.run().expect(0);
    for n in 0..6 {
        let name = format!("f{n}.txt");
        assert_eq!(test.read(&name), fresh.read(&name), "{name}");
    }
}

//! Steps, handlers, map and reduce with the real program. The agent is a scripted program in every
//! test.

use crate::support::{Test, text};
use serde_json::Value;

fn steps(test: &Test, job: &str) -> Value {
    test.torc(["-f", "json", "jobs", "steps", job]).success().json()
}

#[test]
fn a_recovered_job_succeeds_and_shows_it() {
    let test = Test::new().spec(
        "name: w
jobs:
  - name: j
    steps:
      - {name: build, shell: 'echo broken >&2; exit 3', on_failure: 'echo fixing \"${error.exit_code}\" > fixed'}
      - {name: bench, shell: 'exit 5', continue_on_error: true}
      - echo done > done
",
    );
    test.run().expect(0);
    assert_eq!((test.read("fixed").as_str(), test.read("done").as_str()), ("fixing 3\n", "done\n"));
    let report = steps(&test, "j");
    assert_eq!((&report["recovered"], &report["ignored"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(report["rows"][0]["exit_code"], 3, "the original failure stays");
    test.torc(["jobs", "steps", "j"])
        .success()
        .says("recovered 1, ignored 1")
        .says("build")
        .says("=> recovered");
    let events = test.torc(["-f", "json", "events"]).success().json();
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| text(&event["kind"])).collect();
    for kind in
        ["step_started", "handler_started", "handler_finished", "step_recovered", "step_ignored"]
    {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    test.torc(["logs", "j"]).success().says("broken");
    for args in [vec!["status"], vec!["jobs", "list"], vec!["jobs", "get", "j"]] {
        test.torc(&args).success().says("recovered 1, ignored 1");
        let value = test.torc(["-f", "json"].iter().chain(&args)).success().json();
        let value = value["jobs"].get(0).unwrap_or(&value).clone();
        assert_eq!(
            (&value["recovered_steps"], &value["ignored_steps"]),
            (&1.into(), &1.into()),
            "{args:?}"
        );
    }
}

/// Each event once, although it is told while the job runs and again with its report.
#[test]
fn what_steps_do_is_told_while_they_do_it() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: j, steps: [{name: first, shell: exit 3, on_failure: 'true'}, {name: second, shell: 'read line < gate'}]}\n",
    );
    let gate = test.gate("gate");
    let mut running = test.torc(["run", "workflow.yaml"]).spawn();
    running.wait_for_stderr("workflow 1");
    let mut events = test.torc(["events", "--follow"]).spawn();
    // The job stands at the gate: nothing but the events themselves can have told.
    events.wait_for_stdout("step_recovered");
    gate.open();
    running.wait().expect(0);
    let all = test.torc(["-f", "json", "events"]).success().json();
    let count = |kind: &str| {
        all["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).count()
    };
    assert_eq!(
        (
            count("step_started"),
            count("step_recovered"),
            count("handler_started"),
            count("step_finished")
        ),
        (3, 1, 1, 3)
    );
}

#[test]
fn a_map_that_fails_fast_starts_no_more_items() {
    let spec = |fast: bool| {
        format!(
            "name: w\njobs:\n  - {{name: m, map: {{items: [a, bad, c, d], max_parallel: 1, tolerate: 0, fail_fast: {fast}}}, command: 'echo >> ran; test \"${{item}}\" != bad'}}\n"
        )
    };
    let fast = Test::new().spec(&spec(true));
    fast.run().expect(1);
    assert_eq!(
        fast.statuses(),
        ["m failed", "m/a completed", "m/bad failed", "m/c canceled", "m/d canceled"]
    );
    assert_eq!(fast.read("ran").lines().count(), 2);
    let slow = Test::new().spec(&spec(false));
    slow.run().expect(1);
    assert_eq!(slow.read("ran").lines().count(), 4);
}

/// The map is a failed job beside its item, and a count of failures says which of both.
#[test]
fn a_map_that_failed_because_of_its_items_is_told_apart_in_the_summary() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: m, map: {items: [a, bad]}, command: 'test ${item} = a'}\n",
    );
    test.run().expect(1);
    let summary = test.torc(["reports", "summary"]).success().tells("1 failure in w (workflow 1)");
    summary.tells("not counted: 1 map that failed because of its items (m); `torc status` counts it as a failed job");
    let summary = test.torc(["-f", "json", "reports", "summary"]).success().json();
    assert_eq!(
        (&summary["failures"], &summary["failed_maps"]),
        (&1.into(), &serde_json::json!(["m"]))
    );
    assert_eq!(test.torc(["-f", "json", "status"]).success().json()["counts"]["failed"], 2);

    let fine = Test::new().spec("name: w\njobs:\n  - {name: a, command: 'false'}\n");
    fine.run().expect(1);
    let summary = fine.torc(["reports", "summary"]).success().tells("1 failure in w");
    assert!(!summary.stderr.contains("not counted"), "{}", summary.stderr);
}

/// Whatever opens the failed item again opens those that were canceled because of it.
#[test]
fn items_that_a_map_gave_up_come_back_with_the_one_that_failed() {
    let spec = "name: w\njobs:\n  - {name: m, map: {items: [a, bad, c, d], max_parallel: 1, tolerate: 0, fail_fast: true}, command: 'test \"${item}\" != bad || test -e fixed'}\n";
    for command in [
        &["recover", "--retry-unknown"][..],
        &["jobs", "retry", "m/bad"],
        &["items", "retry", "m", "bad"],
    ] {
        let test = Test::new().spec(spec);
        test.run().expect(1);
        let why = test.torc(["why", "m/c"]).success().says("too many other items failed");
        assert!(!why.stdout.contains("a user"), "no user canceled it: {}", why.stdout);
        if command[0] == "recover" {
            test.torc(["recover", "--retry-unknown", "--dry-run"])
                .success()
                .tells("2 canceled jobs");
        }
        let test = test.file("fixed", "");
        let told = test.torc(command).success();
        if command[0] == "recover" {
            told.tells("1 job queued again, and 2 canceled jobs come back with it");
        }
        assert_eq!(
            test.statuses(),
            ["m blocked", "m/a completed", "m/bad ready", "m/c ready", "m/d ready"]
        );
        test.torc(["run", "1"]).success();
        assert_eq!(
            test.statuses(),
            ["m completed", "m/a completed", "m/bad completed", "m/c completed", "m/d completed"]
        );
    }
}

/// Three items wait for the one slot of the agent, and each is woken by the end of another's call.
#[test]
fn calls_of_the_agent_wait_for_each_other() {
    let test = Test::new()
        .file("agent.sh", "mkdir busy || echo overlap >> overlaps\nread -r line\necho >> calls\nrmdir busy\n")
        .spec(
            "name: w\nagent: {command: [sh, agent.sh], max_parallel: 1}\njobs:\n  - {name: m, map: {items: [a, b, c, d, e, f]}, steps: [{claude: 'do ${item}'}]}\n",
        );
    test.run().expect(0);
    assert_eq!((test.read("calls").lines().count(), test.exists("overlaps")), (6, false));
}

#[test]
fn the_layers_follow_each_other_and_a_fatal_handler_skips_the_outer_ones() {
    let spec = |fatal: bool| {
        format!(
            "name: w
failure_handlers:
  - {{name: again, rules: [{{exit_codes: [7], max_retries: 3}}]}}
jobs:
  - name: j
    failure_handler: again
    steps:
      - shell: echo >> tries; exit 7
        retry: {{attempts: 2, delay: 0}}
        on_failure: {{commands: ['echo >> handled; exit 9'], handler_failure_fatal: {fatal}}}
    on_failure: {{strategy: cleanup, commands: ['echo >> cleaned']}}
"
        )
    };
    let test = Test::new().spec(&spec(false));
    test.run().expect(1);
    let lines = |name: &str| test.read(name).lines().count();
    assert_eq!((lines("tries"), lines("handled"), lines("cleaned")), (6, 3, 3));
    assert_eq!(test.last_attempt("j")["return_code"], 7);

    let fatal = Test::new().spec(&spec(true));
    fatal.run().expect(1);
    assert_eq!((fatal.read("tries").lines().count(), fatal.exists("cleaned")), (2, false));
    assert_eq!(fatal.last_attempt("j")["attempt_id"], 1);
}

#[test]
fn why_names_the_step_that_failed_and_the_attempts_that_it_took() {
    let test = Test::new().spec(
        "name: w
failure_handlers:
  - {name: again, rules: [{exit_codes: [3], max_retries: 3}]}
jobs:
  - {name: stepped, steps: ['true', {name: build, shell: 'echo no compiler >&2; exit 2'}]}
  - {name: third, failure_handler: again, command: 'echo >> tries; test $(wc -l < tries) -ge 3 || exit 3'}
",
    );
    test.run().expect(1);
    let why = test.torc(["why", "stepped"]).success().says("step `build` failed with exit code 2");
    why.says("`torc jobs steps 1`");
    let why =
        test.torc(["why", "third"]).success().says("it succeeded at attempt 3 after 2 failures");
    why.says("`torc jobs attempts 2`");
}

const MAP: &str = "
jobs:
  - name: types
    map: {items: [a, bad, c], tolerate: TOLERATE}
    command: test \"${item}\" != bad || test -e fixed
  - name: report
    reduce: types
    command: echo \"${map.successful}/${map.total} dead ${map.failed}\" >> report; cp \"${map.dead.file}\" dead
";

#[test]
fn a_dead_item_fails_its_map_unless_that_is_tolerated() {
    for (tolerate, code) in [("0", 1), ("1", 0), ("50%", 0), ("10%", 1)] {
        let test = Test::new()
            .spec(&format!("name: w{}", MAP.replace("TOLERATE", &format!("'{tolerate}'"))));
        test.run();
        let statuses = test.statuses();
        assert!(statuses.contains(&"types/bad failed".to_owned()), "{statuses:?}");
        let (map, report) =
            if code == 0 { ("completed", "completed") } else { ("failed", "canceled") };
        assert!(
            statuses.contains(&format!("types {map}"))
                && statuses.contains(&format!("report {report}")),
            "{tolerate}: {statuses:?}"
        );
        if code == 0 {
            assert_eq!(test.read("report"), "2/3 dead 1\n");
            assert!(test.read("dead").contains("\"key\":\"bad\""));
        }
    }
}

#[test]
fn a_retried_item_completes_its_map_and_releases_the_reduce() {
    let test = Test::new().spec(&format!("name: w{}", MAP.replace("TOLERATE", "0")));
    test.run().expect(1);
    test.torc(["logs", "types"]).exit(2).tells("job `types` failed and never began");
    let why = test
        .torc(["why", "types"])
        .success()
        .says("it failed: more items failed than it tolerates");
    let why =
        why.says("`torc items list types --failed -w 1`").says("`torc items retry types -w 1`");
    assert!(!why.stdout.contains("jobs retry"), "{}", why.stdout);
    test.torc(["items", "list", "types", "--failed"]).success().says("bad");
    test.torc(["items", "show", "types", "bad"]).success().says("failed");
    test.torc(["items", "retry", "types", "nothing"]).exit(2).tells("no item `nothing`");
    test.write("fixed", "");
    test.torc(["items", "retry", "types"]).success().tells("1 item will run again");
    test.torc(["run", "latest"]).success();
    assert_eq!(
        test.statuses(),
        [
            "types completed",
            "report completed",
            "types/a completed",
            "types/bad completed",
            "types/c completed"
        ]
    );
    assert_eq!(test.read("report"), "3/3 dead 0\n");
}

/// Items in the spec, and items that a command finds.
const TWO_ITEMS: [&str; 2] = ["[a, bad]", "{command: 'printf \"a\\nbad\\n\"'}"];

fn map_with_a_dead_item(items: &str) -> Test {
    let test = Test::new().spec(&format!(
        "name: w\njobs:\n  - {{name: m, map: {{items: {items}}}, command: 'test \"${{item}}\" != bad || test -e fixed'}}\n  - {{name: r, reduce: m, command: 'echo ${{map.successful}}/${{map.total}} >> totals'}}\n"
    ));
    test.run().expect(1);
    test.torc(["server", "doctor"]).success();
    test
}

#[test]
fn to_run_a_failed_map_again_is_to_run_its_dead_items_again() {
    let ways: [&[&str]; 4] = [
        &["jobs", "retry", "m"],
        &["recover", "--retry-unknown", "1"],
        &["workflows", "reset-status", "1", "--job", "m"],
        &["workflows", "reset-status", "1", "--failed-only"],
    ];
    for (items, way) in TWO_ITEMS.into_iter().flat_map(|items| ways.map(|way| (items, way))) {
        // Each call is a server of its own, so what counts is what is in the database.
        let test = map_with_a_dead_item(items);
        let bad = || {
            ["m failed".to_owned(), "m/bad failed".to_owned()]
                .iter()
                .all(|line| test.statuses().contains(line))
        };
        let done = test.torc(way).done();
        assert!(!done.stdout.contains("attempt 1 of m "), "{items} {way:?}: {}", done.stdout);
        test.torc(["run", "1"]).exit(1);
        assert!(bad() && !test.exists("totals"), "{items} {way:?}: {:?}", test.statuses());
        test.write("fixed", "");
        test.torc(way).done();
        test.torc(["run", "1"]).success();
        assert_eq!(test.read("totals"), "2/2\n", "{items} {way:?}");
        test.torc(["server", "doctor"]).success();
    }
}

#[test]
fn a_map_that_could_not_find_its_items_looks_again() {
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: m, map: {items: {command: 'cat list'}}, command: 'true'}\n  - {name: r, reduce: m, command: 'echo ${map.total} > total'}\n",
    );
    test.run().expect(1);
    test.write("list", "a\nb\n");
    test.torc(["jobs", "retry", "m"]).success();
    test.torc(["run", "1"]).success();
    assert_eq!(test.read("total"), "2\n");
}

#[test]
fn a_dropped_item_counts_no_more() {
    let test = Test::new().spec(&format!("name: w{}", MAP.replace("TOLERATE", "0")));
    test.run().expect(1);
    test.torc(["items", "drop", "types", "bad"]).success().tells("1 item no longer counts");
    test.torc(["run", "latest"]).success();
    assert_eq!(test.read("report"), "2/2 dead 0\n");
}

#[test]
fn no_items_are_no_failure() {
    for items in ["[]", "{command: 'true'}"] {
        let test = Test::new().spec(&format!(
            "name: w\njobs:\n  - {{name: m, map: {{items: {items}}}, command: 'echo ${{item}}'}}\n  - {{name: r, reduce: m, command: 'echo ${{map.total}} > total'}}\n"
        ));
        test.run().expect(0);
        assert_eq!(test.read("total"), "0\n");
    }
}

#[test]
fn items_come_from_user_data_that_an_earlier_job_captured() {
    let test = Test::new().spec(
        "name: w
jobs:
  - name: find
    output_user_data: [files]
    steps:
      - {shell: 'printf %s \"[{\\\"p\\\": \\\"x y\\\", \\\"n\\\": 1}, {\\\"p\\\": \\\"z\\\", \\\"n\\\": 9}, {\\\"p\\\": \\\"q\\\", \\\"n\\\": 5}]\"', capture: {files: json}}
  - name: m
    depends_on: [find]
    map: {items: {user_data: files, select: '$[*]'}, where: 'item.n > 2', sort: [-n], key: item.p, max_parallel: 1}
    command: echo \"${item.p}\" >> seen
  - {name: r, reduce: m, command: 'cp \"${map.results.file}\" results'}
",
    );
    test.run().expect(0);
    assert_eq!(test.read("seen"), "z\nq\n");
    let results = test.read("results");
    let first: Value = serde_json::from_str(results.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["key"], &first["outcome"], &first["item"]["n"]),
        (&"z".into(), &"ok".into(), &9.into())
    );
}

#[test]
fn an_item_list_that_changed_keeps_what_did_not() {
    let test = Test::new()
        .spec(
            "name: w
jobs:
  - {name: up, command: 'true'}
  - {name: m, depends_on: [up], map: {items: {file: items.json}, key: item.id}, command: 'echo \"${item.id} ${item.v}\" >> ran'}
  - {name: r, reduce: m, command: 'echo ${map.total} >> totals'}
",
        )
        .file("items.json", "[{\"id\": \"keep\", \"v\": 1}, {\"id\": \"change\", \"v\": 1}, {\"id\": \"gone\", \"v\": 1}]");
    test.run().expect(0);
    test.write(
        "items.json",
        "[{\"id\": \"keep\", \"v\": 1}, {\"id\": \"change\", \"v\": 2}, {\"id\": \"new\", \"v\": 1}]",
    );
    test.torc(["workflows", "reset-status", "latest", "--job", "up"]).done();
    test.torc(["workflows", "initialize", "latest"]).done();
    // What is gone does not count against success.
    test.torc(["run", "latest"]).success();
    let ran = test.read("ran");
    let count = |line: &str| ran.lines().filter(|other| *other == line).count();
    assert_eq!(
        (count("keep 1"), count("change 1"), count("change 2"), count("gone 1"), count("new 1")),
        (1, 1, 1, 1, 1),
        "{ran}"
    );
    let statuses = test.statuses();
    assert!(
        statuses.contains(&"m/gone disabled".to_owned())
            && statuses.contains(&"m/new completed".to_owned()),
        "{statuses:?}"
    );
    assert_eq!(test.read("totals"), "3\n3\n");
}

/// The two blocks of the contract document, verbatim but for one line: the whitepaper names no
/// input.
#[test]
fn the_documented_blocks_run_as_written() {
    let test = Test::new()
        .file("items.json", "[\"one\", \"two\"]")
        .file(
            "bin/npm",
            "#!/bin/sh\necho npm \"$@\" >> calls\ntest \"$1\" != run || test -e cache-clean\n",
        )
        .file("bin/tsc", "#!/bin/sh\necho tsc >> calls\ntest -e typed\n")
        .file("deploy.sh", "#!/bin/sh\necho deploy \"$1\" >> calls\ntest \"$1\" = staging\n")
        .file("bin/notify-team", "#!/bin/sh\necho \"$1\" >> notified\n")
        .file("bin/test-performance", "#!/bin/sh\ntest \"$1\" = one\n")
        .file("bin/claude", "#!/bin/sh\nread -r prompt; echo \"$prompt\" >> prompts; touch typed\n")
        .spec(include_str!("../../../torc-spec/tests/shared/tasks_and_map.yaml"));
    test.shell("sed -i 's/cache-clean/calls/' bin/npm; chmod +x bin/* deploy.sh").success();
    let path = format!("{}:{}", test.path("bin").display(), std::env::var("PATH").unwrap());
    test.torc(["run", "workflow.yaml"]).env("PATH", path).success();
    assert_eq!(
        test.statuses(),
        ["main completed", "map completed", "map/one completed", "map/two completed"]
    );
    assert_eq!(test.read("notified"), "Production deploy failed, staged to staging\n");
    let prompts = test.read("prompts");
    for prompt in
        ["/fix-typescript-errors", "/optimize one", "/optimize two", "/rollback-optimization two"]
    {
        assert!(prompts.lines().any(|line| line == prompt), "{prompt} is not in {prompts}");
    }
    assert!(!prompts.contains("/rollback-optimization one"));
}

#[test]
fn a_killed_runner_loses_the_handler_but_not_the_work() {
    let test = Test::new().spec(
        "name: w
jobs:
  - {name: done, command: 'echo >> done'}
  - name: j
    depends_on: [done]
    steps:
      - shell: echo >> first; test -e again
        on_failure: {commands: ['echo >> handled; touch in-handler; sleep 100'], timeout: 5m}
",
    );
    let running = test.torc(["run", "workflow.yaml"]).spawn();
    let begun = std::time::Instant::now();
    while !test.exists("in-handler") {
        assert!(begun.elapsed().as_secs() < 60, "the handler never began");
        std::thread::yield_now();
    }
    running.signal("KILL");
    drop(running);
    test.write("again", "");
    test.torc(["run", "latest"]).success();
    let lines = |name: &str| test.read(name).lines().count();
    assert_eq!((lines("done"), lines("first"), lines("handled")), (1, 2, 1));
}

#[test]
fn a_handler_can_be_tried_alone() {
    let test = Test::new().spec(
        "name: w
jobs:
  - name: j
    steps:
      - {name: build, shell: 'touch RAN', on_failure: 'echo \"${error.exit_code} ${error.message}\" > seen'}
",
    );
    test.torc([
        "steps",
        "test",
        "workflow.yaml",
        "--step",
        "build",
        "--exit-code",
        "3",
        "--message",
        "no $(x) ${y}",
    ])
    .success()
    .says("=> recovered");
    assert_eq!(test.read("seen"), "3 no $(x) ${y}\n");
    assert!(!test.exists("RAN"));
    // Whether a handler helps, the step itself tells.
    test.write(
        "again.yaml",
        "name: w\njobs:\n  - name: j\n    steps:\n      - {name: build, shell: 'echo >> tried; test -e fixed', on_failure: {commands: ['touch fixed'], max_attempts: 2}}\n",
    );
    test.torc(["steps", "test", "again.yaml", "--step", "build"])
        .success()
        .says("build [shell] try 2: ok");
    assert_eq!(test.read("tried").lines().count(), 1, "the first try was made up");
    test.torc(["steps", "test", "workflow.yaml", "--step", "bild"])
        .exit(2)
        .tells("there is no step `bild`");
}

#[test]
fn a_thousand_items_with_one_in_ten_dead() {
    let items: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let test = Test::new().spec(&format!(
        "name: w\njobs:\n  - {{name: m, map: {{items: [{}], tolerate: '10%'}}, command: 'test $((item % 10)) != 3'}}\n  - {{name: r, reduce: m, command: 'echo ${{map.successful}} ${{map.failed}} > counts; wc -l < \"${{map.dead.file}}\" > dead'}}\n",
        items.join(", ")
    ));
    test.run();
    assert_eq!((test.read("counts").trim(), test.read("dead").trim()), ("900 100", "100"));
}

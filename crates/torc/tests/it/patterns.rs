//! The control-flow patterns of the Workflow Patterns initiative that a graph with steps, maps and
//! retries can express, each as its definition says. `docs/judges.md` names those that do not fit.

use crate::support::Test;

/// A workflow, how it ends, and what its jobs wrote, by which order.
struct Pattern {
    name: &'static str,
    jobs: &'static str,
    code: i32,
    /// Written as often as here, in any order.
    ran: &'static [&'static str],
    /// The first of each pair before the second.
    order: &'static [(&'static str, &'static str)],
}

const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "WCP-1 sequence",
        jobs: r#"
  - {name: a, command: "echo a >> trace"}
  - {name: b, command: "echo b >> trace", depends_on: [a]}
  - {name: c, command: "echo c >> trace", depends_on: [b]}"#,
        code: 0,
        ran: &["a", "b", "c"],
        order: &[("a", "b"), ("b", "c")],
    },
    Pattern {
        // Each of the two waits for the other: they run at the same time or not at all.
        name: "WCP-2 parallel split, WCP-3 synchronization",
        jobs: r#"
  - {name: a, command: "echo a >> trace"}
  - {name: b, command: "touch b; until [ -e c ]; do sleep 0.02; done; echo b >> trace", depends_on: [a]}
  - {name: c, command: "touch c; until [ -e b ]; do sleep 0.02; done; echo c >> trace", depends_on: [a]}
  - {name: d, command: "echo d >> trace", depends_on: [b, c]}"#,
        code: 0,
        ran: &["a", "b", "c", "d"],
        order: &[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
    },
    Pattern {
        name: "WCP-4 exclusive choice, WCP-5 simple merge",
        jobs: r#"
  - name: a
    steps:
      - {shell: "echo left", capture: way}
      - {shell: "echo left >> trace", when: "way == 'left'"}
      - {shell: "echo right >> trace", when: "way == 'right'"}
      - {shell: "echo merged >> trace"}"#,
        code: 0,
        ran: &["left", "merged"],
        order: &[("left", "merged")],
    },
    Pattern {
        name: "WCP-6 multi-choice, WCP-7 structured synchronizing merge",
        jobs: r#"
  - name: a
    steps:
      - {shell: "echo 12", capture: number}
      - {shell: "echo even >> trace", when: "number == '12' || number == '14'"}
      - {shell: "echo large >> trace", when: "number != '1'"}
      - {shell: "echo odd >> trace", when: "number == '1'"}
      - {shell: "echo merged >> trace"}"#,
        code: 0,
        ran: &["even", "large", "merged"],
        order: &[("even", "merged"), ("large", "merged")],
    },
    Pattern {
        // A branch ends by itself; the workflow is complete when nothing is left to do.
        name: "WCP-11 implicit termination",
        jobs: r#"
  - {name: a, command: "echo a >> trace"}
  - {name: end, command: "echo end >> trace", depends_on: [a]}
  - {name: b, command: "echo b >> trace", depends_on: [a]}
  - {name: c, command: "echo c >> trace", depends_on: [b]}"#,
        code: 0,
        ran: &["a", "end", "b", "c"],
        order: &[("a", "end"), ("b", "c")],
    },
    Pattern {
        name: "WCP-12 multiple instances without synchronization",
        jobs: r#"
  - {name: "each_{i}", command: "echo {i} >> trace", parameters: {i: "1:3"}}
  - {name: beside, command: "echo beside >> trace"}"#,
        code: 0,
        ran: &["1", "2", "3", "beside"],
        order: &[],
    },
    Pattern {
        name: "WCP-13 multiple instances known when the workflow is written",
        jobs: r#"
  - {name: "each_{i}", command: "echo {i} >> trace", parameters: {i: "1:3"}}
  - {name: after, command: "echo after >> trace", depends_on_regexes: ["^each_"]}"#,
        code: 0,
        ran: &["1", "2", "3", "after"],
        order: &[("1", "after"), ("2", "after"), ("3", "after")],
    },
    Pattern {
        name: "WCP-14 multiple instances known when they are begun",
        jobs: r#"
  - {name: each, map: {items: {command: "seq 1 3"}}, steps: [{shell: "echo ${item} >> trace"}]}
  - {name: after, reduce: each, steps: [{shell: "echo after >> trace"}]}"#,
        code: 0,
        ran: &["1", "2", "3", "after"],
        order: &[("1", "after"), ("2", "after"), ("3", "after")],
    },
    Pattern {
        name: "WCP-21 structured loop",
        jobs: r#"
  - name: a
    steps:
      - shell: "echo turn >> trace; [ $(grep -c turn trace) = 3 ]"
        retry: {attempts: 5, delay: 0s}
      - {shell: "echo after >> trace"}"#,
        code: 0,
        ran: &["turn", "turn", "turn", "after"],
        order: &[("turn", "after")],
    },
    Pattern {
        // Only what follows the failure is canceled.
        name: "WCP-25 cancel region",
        jobs: r#"
  - {name: a, command: "echo a >> trace; exit 3"}
  - {name: b, command: "echo b >> trace", depends_on: [a]}
  - {name: c, command: "echo c >> trace", depends_on: [b]}
  - {name: other, command: "echo other >> trace"}"#,
        code: 1,
        ran: &["a", "other"],
        order: &[],
    },
    Pattern {
        name: "WCP-33 generalized AND-join",
        jobs: r#"
  - {name: a, command: "echo a >> trace"}
  - {name: b, command: "exit 3"}
  - {name: c, command: "echo c >> trace", depends_on: [a, b], cancel_on_blocking_job_failure: false}"#,
        code: 1,
        ran: &["a", "c"],
        order: &[("a", "c")],
    },
    Pattern {
        // Two of three are enough; the third counts as a failed job all the same.
        name: "WCP-34 static partial join of instances",
        jobs: r#"
  - {name: each, map: {items: [x, y, z], tolerate: 1}, steps: [{shell: "echo ${item} >> trace; [ ${item} != y ]"}]}
  - {name: after, reduce: each, steps: [{shell: "echo after >> trace"}]}"#,
        code: 1,
        ran: &["x", "y", "z", "after"],
        order: &[("x", "after"), ("z", "after")],
    },
];

#[test]
fn control_flow_patterns_do_what_their_definitions_say() {
    for pattern in PATTERNS {
        let test = Test::new().spec(&format!("name: w\njobs:{}\n", pattern.jobs));
        let done = test.run();
        assert_eq!(done.code, Some(pattern.code), "{}: {}", pattern.name, done.stderr);
        let trace = test.read("trace");
        let lines: Vec<&str> = trace.lines().collect();
        let place = |word: &str| lines.iter().rposition(|line| *line == word);
        let (mut ran, mut expected): (Vec<&str>, _) =
            (trace.lines().collect(), pattern.ran.to_vec());
        for (first, second) in pattern.order {
            assert!(place(first) < place(second), "{}: {trace}", pattern.name);
        }
        ran.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ran, expected, "{}", pattern.name);
    }
}

#[test]
fn instances_may_be_added_while_others_run() {
    // WCP-15, multiple instances of which no one knows the number before: each decides on the next.
    let test = Test::new()
        .spec("name: w\ndynamic_jobs: true\njobs:\n  - {name: round_1, command: \"bash round.sh 1\"}\n")
        .file(
            "round.sh",
            "echo \"$1\" >> trace\n[ \"$1\" -lt 4 ] || exit 0\nn=$(($1 + 1))\n\
             printf 'jobs:\\n  - {name: round_%s, command: \"bash round.sh %s\"}\\n' $n $n | \"$TORC\" jobs add -\n",
        );
    let done = test.torc(["run", "workflow.yaml"]).env("TORC", crate::support::TORC).done();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(test.read("trace"), "1\n2\n3\n4\n");
}

#[test]
fn a_job_and_a_whole_case_can_be_withdrawn() {
    // WCP-19 and WCP-26: the job goes, what stands beside it stays. WCP-20: everything goes.
    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: a, command: \"touch a; sleep 600\"}\n  - {name: b, command: \"until [ -e stop ]; do sleep 0.02; done; echo b >> trace\"}\n  - {name: c, command: \"echo c >> trace\", depends_on: [a]}\n",
    );
    let running = test.torc(["run", "workflow.yaml"]).spawn();
    while !test.exists("a") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    test.torc(["jobs", "cancel", "a"]).success();
    test.write("stop", "");
    assert_eq!(running.wait().code, Some(1));
    assert_eq!(test.read("trace"), "b\n");

    let test = Test::new().spec(
        "name: w\njobs:\n  - {name: a, command: \"touch a; sleep 600\"}\n  - {name: b, command: \"echo b >> trace\", depends_on: [a]}\n",
    );
    let running = test.torc(["run", "workflow.yaml"]).spawn();
    while !test.exists("a") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    test.torc(["cancel", "latest"]).success();
    assert_eq!(running.wait().code, Some(1));
    assert!(!test.exists("trace"));
}

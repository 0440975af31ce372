//! The meaning of steps with real processes and without a server. The agent is a scripted program
//! wherever one is called.

use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use torc_model::api::{AttemptPacket, CompletionReport};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId};
use torc_model::status::Cause;
use torc_model::steps::{ErrorKind, Outcome, Report};
use torc_runner::{LocalRun, run_locally};
use torc_spec::{Source, SpecFormat};

/// A directory in which steps run.
struct Place(TempDir);

/// What they did.
struct Ran {
    report: Box<CompletionReport>,
    steps: Report,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn lines(&self, name: &str) -> usize {
        if self.path(name).exists() { self.read(name).lines().count() } else { 0 }
    }

    /// A program that plays the agent.
    fn agent(self, script: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path("agent.sh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        self
    }

    /// Runs the first job of a workflow, given without its name.
    fn run(&self, text: &str) -> Ran {
        let text = format!("name: w\n{text}");
        let parsed = torc_spec::parse(&Source::new("test.yaml", text.as_str(), SpecFormat::Yaml));
        let spec = parsed.unwrap_or_else(|errors| panic!("{errors}")).spec;
        let (plan, _) = spec.plan().unwrap_or_else(|errors| panic!("{errors}"));
        let packet = AttemptPacket {
            is_limited_by_runtime: false,
            id: AttemptId(1),
            token: String::new(),
            job_id: JobId(1),
            job_name: plan.jobs[0].name.clone(),
            run_id: 1,
            attempt_id: 1,
            command: String::new(),
            invocation_script: None,
            steps: plan.jobs[0].steps.clone(),
            env: Default::default(),
            num_cpus: 1,
            num_gpus: 0,
            num_nodes: 1,
            memory_bytes: None,
            time_limit_seconds: None,
            stdio: None,
            output_files: Vec::new(),
            lists: Vec::new(),
            strictness: Default::default(),
            recovery: None,
        };
        let local = LocalRun {
            packet,
            workflow_name: plan.name,
            working_dir: self.0.path().into(),
            output_dir: self.path("output"),
            grace: Duration::from_millis(200),
            first_try: None,
        };
        let report = run_locally(local).unwrap();
        let steps = report
            .steps
            .clone()
            .map(|steps| serde_json::from_value(steps).unwrap())
            .unwrap_or_default();
        Ran { report, steps }
    }

    /// Runs one job with these steps, each a line of YAML.
    fn steps(&self, steps: &[&str]) -> Ran {
        let list: String = steps.iter().map(|step| format!("      - {step}\n")).collect();
        self.run(&format!("agent: {{command: ./agent.sh}}\njobs:\n  - name: j\n    steps:\n{list}"))
    }
}

impl Ran {
    /// What the step at this path came to.
    fn outcome(&self, path: &str) -> Option<Outcome> {
        let event = self
            .steps
            .events
            .iter()
            .rev()
            .find(|event| event.kind == EventKind::StepFinished && event.path == path)?;
        event.data.get("outcome").and_then(|word| serde_json::from_value(word.clone()).ok())
    }

    /// The first try at this path.
    fn row(&self, path: &str) -> &torc_model::steps::Row {
        self.steps
            .rows
            .iter()
            .find(|row| row.path == path)
            .unwrap_or_else(|| panic!("{path}: {:?}", self.steps.rows))
    }
}

#[test]
fn a_handler_does_not_run_on_success() {
    let place = Place::new();
    let ran = place.steps(&["{shell: echo fine, on_failure: touch handled}"]);
    assert_eq!((ran.report.return_code, place.path("handled").exists()), (0, false));
    assert_eq!((ran.outcome("steps[0]"), ran.steps.rows.len()), (Some(Outcome::Ok), 1));
}

#[test]
fn the_failure_is_described_to_its_handler_whatever_it_was() {
    let tell = "on_failure: 'printf \"%s|%s|%s|%s\" \"${error.kind}\" \"${error.exit_code}\" \"${error.signal:-}\" \"${error.step}\" > told'";
    for (step, kind, code, signal) in [
        ("shell: 'echo no >&2; exit 3'", "exit", 3, ""),
        ("shell: 'kill -KILL $$'", "signal", 137, "9"),
        ("shell: 'sleep 60', timeout: 1s", "timeout", 124, "15"),
        ("shell: './no-such-program'", "exit", 127, ""),
        ("claude: hello", "agent", 4, ""),
        ("shell: 'true', validate: ['exit 5']", "validation", 5, ""),
        ("shell: 'echo {', capture: {x: json}", "capture", 1, ""),
        ("shell: 'echo 3', capture: {x: number}, expect: 'x > 5'", "expect", 1, ""),
    ] {
        let place = Place::new().agent("echo busy >&2; exit 4");
        let ran = place.steps(&[&format!("{{name: it, {step}, {tell}}}")]);
        assert_eq!(place.read("told"), format!("{kind}|{code}|{signal}|it"), "{step}");
        assert!(ran.row("steps[0]").exit_code.is_some(), "{step}: the evidence stays");
        assert_eq!(ran.outcome("steps[0]"), Some(Outcome::Recovered), "{step}");
    }
}

#[test]
fn the_message_is_the_end_of_what_was_said() {
    let place = Place::new();
    let long = "{shell: 'i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1', on_failure: 'printf %s \"${error.message}\" > told; cp \"${error.stderr_file}\" all'}";
    place.steps(&[
        long,
        "{shell: 'echo only this; exit 1', on_failure: 'printf %s \"${error.message}\" > told2'}",
    ]);
    let told = place.read("told");
    assert!(told.len() <= 4096 && told.ends_with("line 2999"), "{} bytes", told.len());
    assert_eq!((place.lines("all"), place.read("told2").as_str()), (3000, "only this"));
}

#[test]
fn each_strategy_means_what_it_says_and_the_evidence_stays() {
    for (strategy, handler, outcome, code) in [
        ("recovery", "'true'", Outcome::Recovered, 0),
        ("recovery", "'exit 9'", Outcome::Failed, 3),
        ("fallback", "'true'", Outcome::Recovered, 0),
        ("fallback", "'exit 9'", Outcome::Failed, 3),
        ("cleanup", "'true'", Outcome::Failed, 3),
        ("cleanup", "'exit 9'", Outcome::Failed, 3),
        ("custom", "'echo recovered > \"$OUTCOME_FILE\"'", Outcome::Recovered, 0),
        ("custom", "'echo failed > \"$OUTCOME_FILE\"'", Outcome::Failed, 3),
        ("custom", "'true'", Outcome::Failed, 3),
    ] {
        let ran = Place::new().steps(&[&format!(
            "{{shell: 'echo original >&2; exit 3', on_failure: {{strategy: {strategy}, commands: [{handler}]}}}}"
        )]);
        assert_eq!(
            (ran.outcome("steps[0]"), ran.report.return_code),
            (Some(outcome), code),
            "{strategy} {handler}"
        );
        let first = ran.row("steps[0]");
        assert_eq!(
            (first.exit_code, first.error_kind),
            (Some(3), Some(ErrorKind::Exit)),
            "{strategy} {handler}"
        );
        assert_eq!(first.error.as_deref(), Some("original"), "{strategy} {handler}");
        assert!(
            ran.steps.rows.iter().any(|row| row.path == "steps[0].on_failure[0]"),
            "{strategy} {handler}"
        );
    }
    // The words of a custom handler may also ask for another try.
    let place = Place::new();
    let again = place.steps(&[
        "{shell: 'echo >> tries; test -e fixed', on_failure: {strategy: custom, max_attempts: 2, commands: ['touch fixed; echo retry > \"$OUTCOME_FILE\"']}}",
    ]);
    assert_eq!((again.report.return_code, place.lines("tries")), (0, 2));
}

#[test]
fn the_result_of_a_fallback_stands_for_the_step() {
    let place = Place::new();
    place.steps(&[
        "{shell: 'echo a; exit 1', capture: v, on_failure: {strategy: fallback, commands: ['echo b']}}",
        "'printf %s \"$v\" > v'",
    ]);
    assert_eq!(place.read("v"), "b");
}

#[test]
fn inside_a_handler_of_a_handler_the_outer_failure_is_the_cause() {
    let place = Place::new();
    let ran = place.run(
        "jobs:
  - name: j
    steps:
      - name: outer
        shell: exit 3
        on_failure:
          - name: inner
            shell: exit 4
            on_failure: 'echo \"${error.step} ${error.exit_code} ${error.cause.step} ${error.cause.exit_code}\" > nested'
          - 'echo \"${error.step} ${error.exit_code}\" > after'
",
    );
    assert_eq!(
        (place.read("nested").as_str(), place.read("after").as_str()),
        ("inner 4 outer 3\n", "outer 3\n")
    );
    assert_eq!((ran.report.return_code, ran.steps.recovered), (0, 2));
}

#[test]
fn tolerated_failures_in_a_handler_recover_only_beside_a_success() {
    let place = Place::new();
    let mixed = place.steps(&[
        "{shell: exit 3, on_failure: [{shell: exit 1, continue_on_error: true}, 'true']}",
    ]);
    assert_eq!(mixed.outcome("steps[0]"), Some(Outcome::Recovered));
    let none =
        place.steps(&["{shell: exit 3, on_failure: [{shell: exit 1, continue_on_error: true}]}"]);
    assert_eq!((none.outcome("steps[0]"), none.report.return_code), (Some(Outcome::Failed), 3));
}

#[test]
fn the_time_of_a_handler_ends_all_of_its_processes_and_keeps_what_they_said() {
    let place = Place::new();
    let ran = place.run(
        "jobs:
  - name: j
    steps:
      - shell: exit 3
        on_failure:
          timeout: 1s
          commands: ['echo partial; (sleep 300 & echo $! > grandchild; wait); echo never']
",
    );
    assert_eq!((ran.outcome("steps[0]"), ran.report.return_code), (Some(Outcome::Failed), 3));
    let handler = ran.row("steps[0].on_failure[0]");
    assert_eq!(handler.error_kind, Some(ErrorKind::Timeout));
    assert_eq!(
        std::fs::read_to_string(handler.stdout_path.as_ref().unwrap()).unwrap(),
        "partial\n"
    );
    let pid = place.read("grandchild");
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = state.rsplit(") ").next().and_then(|rest| rest.chars().next());
    assert!(matches!(state, None | Some('Z' | 'X')), "the grandchild lives: {state:?}");
}

#[test]
fn retries_come_first_and_each_repeated_run_has_its_own() {
    for attempts in 1..=3 {
        for max_attempts in 1..=3 {
            let place = Place::new();
            let ran = place.steps(&[&format!(
                "{{shell: 'echo >> tries; exit 3', retry: {{attempts: {attempts}, delay: 0}}, on_failure: {{commands: ['echo >> handled'], max_attempts: {max_attempts}}}}}"
            )]);
            let trusted = max_attempts == 1;
            assert_eq!(
                (place.lines("tries"), place.lines("handled")),
                (attempts * max_attempts, if trusted { 1 } else { max_attempts - 1 }),
                "{attempts} tries, {max_attempts} runs"
            );
            assert_eq!(ran.report.return_code, if trusted { 0 } else { 3 });
        }
    }
}

#[test]
fn a_retry_may_be_for_some_failures_only() {
    let place = Place::new();
    place.steps(&["{shell: 'echo >> a; exit 3', retry: {attempts: 3, delay: 0, only: [75]}, continue_on_error: true}"]);
    place.steps(&["{shell: 'echo >> b; echo rate limit >&2; exit 3', retry: {attempts: 3, delay: 0, only: ['re:rate.?limit']}, continue_on_error: true}"]);
    assert_eq!((place.lines("a"), place.lines("b")), (1, 3));
}

#[test]
fn a_failed_check_repeats_only_the_check() {
    let place = Place::new();
    let ran = place.steps(&[
        "{shell: 'echo >> ran', validate: ['echo >> checked; test -e fixed'], on_failure: {commands: [touch fixed], max_attempts: 3}}",
    ]);
    assert_eq!((place.lines("ran"), place.lines("checked"), ran.report.return_code), (1, 2, 0));
}

#[test]
fn what_follows_success_may_fail_the_step_without_its_handler() {
    let place = Place::new();
    let ran = place.steps(&["{shell: 'true', on_success: exit 6, on_failure: touch handled}"]);
    assert_eq!((ran.outcome("steps[0]"), ran.report.return_code), (Some(Outcome::Failed), 6));
    assert!(!place.path("handled").exists());
    // After a recovery that was only trusted it does not run.
    let trusted = place.steps(&["{shell: exit 3, on_success: touch followed, on_failure: 'true'}"]);
    assert_eq!((trusted.report.return_code, place.path("followed").exists()), (0, false));
}

#[test]
fn a_group_fails_as_one_and_is_recovered_as_one() {
    let place = Place::new();
    let ran = place.run(
        "jobs:
  - name: j
    steps:
      - name: group
        steps: ['echo >> a', 'echo >> b; test -e fixed', 'echo >> c']
        on_failure: {commands: [touch fixed], max_attempts: 2}
    on_failure: {strategy: cleanup, commands: [touch cleaned]}
",
    );
    assert_eq!((place.lines("a"), place.lines("b"), place.lines("c")), (2, 2, 1));
    assert_eq!((ran.outcome("steps[0]"), ran.report.return_code), (Some(Outcome::Recovered), 0));
    assert!(!place.path("cleaned").exists());
}

#[test]
fn what_belongs_to_the_shell_stays_the_shells() {
    let place = Place::new();
    place.run(
        r#"jobs:
  - name: j
    steps:
      - {shell: 'echo one two', capture: words}
      - shell: |
          echo "$words" | awk '{print $2}' > awk
          a=(x y z); printf '%s' "${a[@]}" > array
          printf '%s' "${nothing:-0}" > default
          test "$$" -gt 1 && f=name.js && printf '%s' "${f%.js}.ts" > cut
          printf '%s' '$${words}' > literal
          cat <<'EOF' > quoted
          $words ${other}
          EOF
"#,
    );
    assert_eq!(place.read("awk"), "two\n");
    assert_eq!((place.read("array").as_str(), place.read("default").as_str()), ("xyz", "0"));
    assert_eq!(
        (place.read("cut").as_str(), place.read("literal").as_str()),
        ("name.ts", "${words}")
    );
    assert_eq!(place.read("quoted"), "$words ${other}\n");
}

#[test]
fn large_values_stay_in_their_files() {
    let place = Place::new();
    let ran = place.steps(&[
        "{shell: 'head -c 100000 /dev/zero | tr \"\\0\" x', capture: big}",
        "'wc -c < \"${big.file}\" > size; printf %s \"${big.exit_code} ${big.success} ${big.attempts}\" > about'",
        "{shell: 'printf %s \"${big}\" > never', continue_on_error: true}",
    ]);
    assert_eq!((place.read("size").trim(), place.read("about").as_str()), ("100000", "0 true 1"));
    assert_eq!(ran.outcome("steps[2]"), Some(Outcome::Ignored));
    let error = ran
        .steps
        .events
        .iter()
        .find(|event| event.kind == EventKind::StepFinished && event.path == "steps[2]")
        .unwrap();
    assert_eq!(error.data["error_kind"], "variable");
    assert!(!place.path("never").exists());
}

#[test]
fn captures_of_every_kind() {
    let place = Place::new();
    let ran = place.run(
        r#"jobs:
  - name: j
    steps:
      - shell: 'echo "{\"a\": [{\"b\": 5}], \"t\": \"x y\"}"; echo warn >&2; echo 1.5 > n.txt; echo "[1, 2]" > l.json'
        capture: {whole: json, five: "json:$.a[0].b", err: stderr, text: stdout, code: exit_code, ok: boolean, n: "file:n.txt", l: "file:l.json"}
      - {shell: "printf 'p\nq\n'", capture: {rows: lines}}
      - {shell: 'printf %s "${whole.t}|${five}|${err}|${code}|${ok}|${n}|${l[1]}|${rows[1]}" > out'}
"#,
    );
    assert_eq!(ran.report.return_code, 0, "{:?}", ran.report.error);
    assert_eq!(place.read("out"), "x y|5|warn|0|true|1.5|2|q");
    assert_eq!(ran.steps.captures["five"], Value::from(5));
}

#[test]
fn conditions_directories_and_environments() {
    let place = Place::new();
    std::fs::create_dir(place.path("sub")).unwrap();
    let ran = place.steps(&[
        "{shell: 'echo 3', capture: {n: number}}",
        "{when: 'n > 5', shell: touch never}",
        "{when: 'n < 5 && !defined(x.y)', shell: 'pwd > here; printf %s \"$A\" > a', dir: sub, env: {A: 'n is ${n}'}}",
    ]);
    assert_eq!((ran.report.return_code, ran.outcome("steps[1]")), (0, Some(Outcome::Skipped)));
    assert!(!place.path("never").exists());
    assert!(place.read("sub/here").trim().ends_with("/sub"));
    assert_eq!(place.read("sub/a"), "n is 3");
}

#[test]
fn the_agent_leaves_no_core_dump_and_other_steps_keep_the_users_limit() {
    let place = Place::new().agent("ulimit -Hc > agent.core");
    place.steps(&["shell: ulimit -Hc > step.core", "claude: hello"]);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap().trim().to_owned();
    let own = std::process::Command::new("sh").args(["-c", "ulimit -Hc"]).output().unwrap();
    assert_eq!(read("agent.core"), "0");
    assert_eq!(read("step.core"), String::from_utf8_lossy(&own.stdout).trim());
}

#[test]
fn the_agent_gets_its_prompt_as_data() {
    let place = Place::new().agent("cat > prompt; echo \"[$#]\"");
    let ran = place.steps(&[
        "{shell: 'printf \"%s\" \"$(printf \"\\047; touch PWNED; \\047\")\"', capture: bad}",
        "{claude: 'do ${bad} $(touch PWNED)', capture: answer}",
        "'printf %s \"$answer\" > answer'",
    ]);
    assert_eq!(ran.report.return_code, 0, "{:?}", ran.report.error);
    assert_eq!(place.read("prompt"), "do '; touch PWNED; ' $(touch PWNED)");
    assert_eq!((place.read("answer").as_str(), place.path("PWNED").exists()), ("[0]", false));
    // As one argument, where the command says so.
    let place = Place::new().agent("printf '%s' \"$2\" > prompt; echo \"$#\" > count");
    place.run("agent: {command: [./agent.sh, -p, '{prompt}']}\njobs: [{name: j, steps: [{claude: 'a \"b\" $c'}]}]");
    assert_eq!(
        (place.read("prompt").as_str(), place.read("count").as_str()),
        ("a \"b\" $c", "2\n")
    );
}

#[test]
fn the_agents_budget_and_its_absence_are_clear_failures() {
    let place = Place::new().agent("echo >> calls");
    let ran = place.run(
        "agent: {command: ./agent.sh, max_calls: 2, max_parallel: 1}\njobs: [{name: j, steps: [{claude: a}, {claude: b}, {claude: c}]}]",
    );
    assert_eq!((place.lines("calls"), ran.report.return_code), (2, 1));
    let error = ran.report.error.unwrap();
    assert!(error.contains("2 of 2 calls were made (`agent.max_calls`)"), "{error}");
    let gone = Place::new()
        .run("agent: {command: ./no-such-agent}\njobs: [{name: j, steps: [{claude: a}]}]");
    let error = gone.report.error.unwrap();
    assert!(error.contains("agent 127") && gone.steps.rows.len() == 1, "{error}");
    let dry = Place::new();
    let ran = dry.run(
        "agent: {command: ./no-such-agent, dry_run: true}\njobs: [{name: j, steps: [{claude: hello, capture: v}]}]",
    );
    assert_eq!((ran.report.return_code, &ran.steps.captures["v"]), (0, &Value::from("hello")));
}

#[test]
fn a_fatal_handler_ends_everything() {
    let place = Place::new();
    let ran = place.run(
        "jobs:
  - name: j
    steps:
      - steps:
          - {shell: exit 3, continue_on_error: true, on_failure: {commands: [exit 9], handler_failure_fatal: true}}
        on_failure: touch outer
      - touch next
    on_failure: touch job
",
    );
    assert_eq!((ran.report.return_code, ran.steps.fatal), (3, true));
    assert!(["outer", "next", "job"].iter().all(|name| !place.path(name).exists()));
    assert_eq!(ran.report.cause, Some(Cause::Exit));
}

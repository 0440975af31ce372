//! The page in a real browser.
//!
//! `scripts/page-lab` installs what is needed (Chromium, Playwright, axe, TypeScript).
//! `TORC_PAGE_LAB` names a directory in which the packages are already, or is `none` where they
//! cannot be fetched. Where they are missing these tests say so and are skipped; with `CI=true` that
//! is a failure.

use crate::support::{Running, TORC, Test};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the packages are; `None` where they cannot be had.
fn lab() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("TORC_PAGE_LAB").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: the packages for the tests of the page cannot be fetched here");
        return None;
    }
    let ready = named.unwrap_or_else(|| root.join("target/page-lab"));
    if ready.join("installed").is_file() {
        return Some(ready);
    }
    let how = "no browser for the tests of the page; `scripts/page-lab` installs it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// Does one part of `tests/page/walk.mjs` and gives what it measured. Everything that it finds
/// wrong is a failure.
fn walk(lab: &Path, task: Value) -> Value {
    walk_with(lab, task, |step| panic!("unexpected step `{step}`"))
}

/// The same; the script asks for `steps` on its way, such as the death of the server, and waits for
/// each.
fn walk_with(lab: &Path, mut task: Value, mut steps: impl FnMut(&str)) -> Value {
    task["lab"] = json!(lab);
    task["chromium"] = json!("/usr/bin/chromium");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/walk.mjs");
    let mut node = Command::new("node")
        .arg(script)
        .arg(task.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node");
    let mut answers = node.stdin.take().expect("a pipe");
    let (mut wrong, mut figures) = (Vec::new(), Value::Null);
    for line in BufReader::new(node.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        match line.split_once(' ') {
            Some(("STEP", step)) => {
                steps(step);
                answers.write_all(b"done\n").expect("the script waits");
            }
            Some(("FIGURES", text)) => figures = serde_json::from_str(text).unwrap(),
            _ => wrong.push(line),
        }
    }
    let status = node.wait().expect("an end");
    assert!(wrong.is_empty() && status.success(), "{status}\n{}", wrong.join("\n"));
    figures
}

/// A workflow with what can go wrong, names and output that try to be markup, and long names.
const SPEC: &str = r#"
name: sweep
files: [{name: f, path: "f.txt"}]
user_data: [{name: u, data: {n: "</script><script>alert(1)</script>"}}]
jobs:
  - {name: prep, command: "true", output_files: [f], invocation_script: "touch f.txt"}
  - name: "train_{i}"
    command: "printf '\\033[31mred\\033[0m <img src=x onerror=alert(1)>\\n10%%\\r50%%\\r100%%\\n\\377\\376\\n'; if [ {i} = 3 ]; then echo 'ValueError: </script><script>alert(1)</script>' >&2; exit 4; fi"
    depends_on: [prep]
    parameters: {i: "1:12"}
  - {name: "<script>alert(1)</script>", command: "echo ok"}
  - {name: "a_very_long_name_without_any_place_to_break_it_that_is_longer_than_any_column_of_the_page_can_be", command: "true"}
  - {name: "long_line", command: "head -c 10000000 /dev/zero | tr '\\0' x"}
  - {name: report, command: "true", depends_on_regexes: ["train_.*"]}
"#;

fn ran() -> Test {
    let test = Test::new().file("sweep.yaml", SPEC);
    test.torc(["run", "sweep.yaml"]).exit(1);
    test
}

fn served(test: &Test, more: &[&str]) -> (Running, String) {
    let args: Vec<&str> = ["ui", "--no-browser"].iter().chain(more).copied().collect();
    let mut page = test.torc(args).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1").trim().to_owned();
    (page, link)
}

fn end(page: Running) {
    page.signal("INT");
    page.wait();
}

#[test]
fn every_place_is_drawn_accessible_and_runs_nothing_of_the_jobs() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let (page, link) = served(&test, &[]);
    let jobs =
        test.torc(["-f", "json", "jobs", "list", "--where", "name:train_3"]).success().json();
    let shots = std::env::var("TORC_PAGE_SHOTS").ok();
    let task = json!({"do": "places", "link": link, "workflow": 1, "job": jobs["jobs"][0]["id"], "shots": shots});
    walk(&lab, task);
    end(page);
}

#[test]
fn a_failed_job_is_recovered_with_the_keyboard_alone() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let (page, link) = served(&test, &[]);
    walk(&lab, json!({"do": "keyboard", "link": link, "workflow": 1, "job": 1}));
    let listed = test.torc(["-f", "json", "jobs", "list", "--where", "name:train_3"]).success();
    assert_eq!(listed.json()["jobs"][0]["status"], "ready");
    end(page);
}

#[test]
fn a_verdict_that_an_agent_proposes_is_accepted_in_the_page() {
    let Some(lab) = lab() else { return };
    let spec = "name: w\nuse_pending_failed: true\njobs: [{name: a, command: 'exit 3'}]\n";
    let test = Test::new().file("w.yaml", spec);
    test.torc(["run", "w.yaml"]).done();
    let (page, link) = served(&test, &[]);
    let api = link.split("/ui/").next().unwrap();
    let body = r#"{"agent":"bot","classifications":[{"job_id":1,"action":"retry","confidence":0.2,"reason":"the <b>network</b> was away"}]}"#;
    let token = test.read(".torc/token");
    let held = test.shell(&format!(
        "curl -sSf -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' -d '{body}' {api}/torc-service/v1/workflows/1/classify",
        token.trim()
    ));
    assert_eq!(held.success().json()["jobs_held"], 1);
    walk(&lab, json!({"do": "verdict", "link": link, "workflow": 1, "job": 1}));
    assert_eq!(
        test.torc(["-f", "json", "jobs", "list"]).success().json()["jobs"][0]["status"],
        "ready"
    );
    end(page);
}

#[test]
fn groups_of_lines_fold_and_lines_have_links() {
    let Some(lab) = lab() else { return };
    let spec = r#"
name: w
jobs:
  - name: a
    steps:
      - {name: build, shell: "echo begin; echo '::group::Compile'; echo one; echo two; echo '::endgroup::'; printf '1%%\r50%%\r100%%\n'; echo done"}
      - {name: check, shell: "exit 3", continue_on_error: true}
"#;
    let test = Test::new().file("w.yaml", spec);
    test.torc(["run", "w.yaml"]).success();
    let (page, link) = served(&test, &[]);
    walk(&lab, json!({"do": "log", "link": link, "workflow": 1, "job": 1}));
    end(page);
}

#[test]
fn other_machines_are_tried_out_and_ways_between_jobs_found() {
    let Some(lab) = lab() else { return };
    // A time is known of each job.
    let spec = "
name: sweep
resource_requirements: [{name: r, num_cpus: 1, memory: 100m, runtime: PT3M}]
jobs:
  - {name: prep, command: 'true', resource_requirements: r}
  - {name: 'train_{i}', command: 'test {i} != 3', depends_on: [prep], parameters: {i: '1:12'}, resource_requirements: r}
  - {name: report, command: 'true', depends_on_regexes: ['train_.*'], resource_requirements: r}
";
    let test = Test::new().file("sweep.yaml", spec);
    test.torc(["run", "sweep.yaml"]).exit(1);
    let (page, link) = served(&test, &[]);
    let between: Vec<String> = (1..=12).map(|i| format!("train_{i}")).collect();
    walk(&lab, json!({"do": "whatif", "link": link, "workflow": 1, "job": 1, "between": between}));
    end(page);
}

/// Allocations as Slurm would have made them; there is no Slurm here.
#[test]
fn allocations_tell_why_they_wait_and_what_they_cost() {
    let Some(lab) = lab() else { return };
    let spec = "name: w\nslurm_schedulers: [{name: short, account: a, nodes: 1, walltime: '01:00:00'}]\njobs: [{name: a, command: 'true', scheduler: short}, {name: b, command: 'true', scheduler: short}]\n";
    let test = Test::new().file("w.yaml", spec);
    test.torc(["create", "w.yaml"]).success();
    test.torc(["workflows", "initialize", "1"]).success();
    let output = test.path("output");
    std::fs::create_dir_all(&output).unwrap();
    for (end, text) in [("e", "slurmstepd: error: <b>late</b>\n"), ("o", "begun\n")] {
        std::fs::write(output.join(format!("slurm_output_x1_sl71.{end}")), text).unwrap();
    }
    let db = rusqlite::Connection::open(test.path(".torc/torc.db")).unwrap();
    // One waits for half an hour; one ran for two hours, of which a job took a half.
    db.execute_batch(&format!(
        "INSERT INTO scheduled_compute_node (workflow_id, run_id, scheduler_id, name, status, slurm_job_id, state, reason, created_ms, submitted_ms,
             expected_start_ms, request_key, start_one_worker_per_node)
         SELECT 1, 1, id, 'x0', 'pending', '70', 'PENDING', 'Priority', {now} - 1800000, {now} - 1800000, {now} + 600000, 'k0', 0 FROM slurm_scheduler;
         INSERT INTO scheduled_compute_node (workflow_id, run_id, scheduler_id, name, status, slurm_job_id, state, created_ms, submitted_ms,
             started_ms, ended_ms, ended_as, request_key, start_one_worker_per_node)
         SELECT 1, 1, id, 'x1', 'complete', '71', 'COMPLETED', {now} - 9000000, {now} - 9000000, {now} - 7200000, {now}, 'reported', 'k1', 0 FROM slurm_scheduler;
         INSERT INTO compute_node (workflow_id, register_key, hostname, boot_id, pid, pid_start, kind, capacity, output_dir, started_ms, last_seen_ms,
             ended_ms, end_reason, allocation_id)
         SELECT 1, 'r1', 'n1', 'b', 1, 1, 'slurm', '{{\"num_cpus\":2,\"memory_bytes\":1000000000,\"num_gpus\":0,\"num_nodes\":1}}', '{output}',
             {now} - 7200000, {now}, {now}, 'its time was over', id FROM scheduled_compute_node WHERE name = 'x1';
         DELETE FROM attempt WHERE job_id = 1;
         UPDATE job SET status = 5 WHERE id = 1;
         INSERT INTO attempt (workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, compute_node_id, token, claimed_ms, started_ms, ended_ms,
             ended_by, return_code, exec_seconds)
         SELECT 1, 1, 1, 1, 'completed', 'initial', {now} - 7200000, id, 't', {now} - 7200000, {now} - 7200000, {now} - 3600000, 'runner', 0, 3600 FROM compute_node;",
        now = jiff::Timestamp::now().as_millisecond(),
        output = output.display(),
    ))
    .unwrap();
    drop(db);
    // Without Slurm's programs nothing is sent.
    let mut page = test.torc(["ui", "--no-browser"]).env("PATH", &output).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1").trim().to_owned();
    walk(&lab, json!({"do": "nodes", "link": link, "workflow": 1, "job": 1}));
    end(page);
}

#[test]
fn runners_show_what_their_jobs_hold_of_what_they_have() {
    let Some(lab) = lab() else { return };
    let spec = "
name: w
resource_requirements: [{name: r, num_cpus: 2, num_gpus: 1, memory: 4g, runtime: PT1M}]
jobs: [{name: a, command: 'read line < gate', resource_requirements: r}]
";
    let other = "name: other\njobs: [{name: a, command: 'true'}]\n";
    let test = Test::new().file("w.yaml", spec).file("other.yaml", other);
    let gate = test.gate("gate");
    let has = ["--num-cpus", "8", "--memory", "8g", "--num-gpus", "4", "--time-limit", "2h"];
    let server = server_at(&test, "0");
    let mut run = test.torc(["run", "w.yaml"].iter().chain(&has)).spawn();
    run.wait_for_stderr("created workflow");
    let mut status = test.torc(["status", "--watch"]).spawn();
    status.wait_for_stdout("running 1");
    test.torc(["create", "other.yaml"]).success();
    let link = test.torc(["ui", "--no-browser"]).success().stdout.trim().to_owned();
    walk_with(&lab, json!({"do": "runners", "link": link, "workflow": 1, "job": 1}), |_| {
        gate.open()
    });
    run.wait().expect(0);
    end(server);
}

#[test]
fn two_attempts_of_a_job_are_compared() {
    let Some(lab) = lab() else { return };
    let spec = r#"
name: w
failure_handlers: [{name: again, rules: [{exit_codes: [4], max_retries: 2}]}]
jobs:
  - {name: a, failure_handler: again, command: "for i in 1 2 3 4; do echo step $i of $RANDOM in /tmp/$$/x; done; if [ ! -e tried ]; then touch tried; echo '<b>broken</b>'; exit 4; fi; echo fine"}
"#;
    let test = Test::new().file("w.yaml", spec);
    test.torc(["run", "w.yaml"]).success();
    let (page, link) = served(&test, &[]);
    // The numbers and paths of the steps differ from attempt to attempt; what remains is the end.
    let last = |n: usize| {
        test.read("output/job_stdio/job_wf1_j1_r1_a2.o").lines().nth(n).unwrap().to_owned()
    };
    let expected = json!([
        "… 2 equal lines",
        format!(" {}", last(2)),
        format!(" {}", last(3)),
        "−<b>broken</b>",
        "+fine"
    ]);
    walk(
        &lab,
        json!({"do": "compare", "link": link, "workflow": 1, "job": 1, "expected": expected}),
    );
    end(page);
}

/// A family of more jobs than are opened by themselves; one fails, is tried again by its rule, and fails
/// again, with samples of its memory.
#[test]
fn jobs_stand_by_family_and_a_failure_tells_what_was_done() {
    let Some(lab) = lab() else { return };
    let spec = r#"
name: w
resource_monitor: {granularity: time_series, sample_interval_seconds: 0.2}
failure_handlers: [{name: again, rules: [{exit_codes: [4], max_retries: 2}]}]
files: [{name: made, path: made.txt}]
jobs:
  - {name: prep, command: "touch made.txt", output_files: [made]}
  - {name: "train_{i}", command: "test {i} != 7 || { sleep 1.5; exit 4; }", failure_handler: again, parameters: {i: "1:130"}}
"#;
    let test = Test::new().file("w.yaml", spec);
    test.torc(["run", "w.yaml"]).exit(1);
    let jobs = test.torc(["-f", "json", "jobs", "list", "--where", "name:train_7"]).success();
    let (page, link) = served(&test, &[]);
    let job = &jobs.json()["jobs"][0]["id"];
    walk_with(&lab, json!({"do": "families", "link": link, "workflow": 1, "job": job}), |step| {
        match step {
            "touch" => test.shell("touch -d '1 hour' made.txt").success(),
            "remove" => test.shell("rm made.txt").success(),
            _ => test.torc(["jobs", "act", "retry", "--where", "name:train_7"]).success(),
        };
    });
    end(page);
}

#[test]
fn seven_tabs_share_one_link_that_is_good_once() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let (page, link) = served(&test, &["--read-only"]);
    walk_with(&lab, json!({"do": "tabs", "link": link, "workflow": 1, "job": 1}), |step| {
        match step {
            "change" => test.torc(["jobs", "act", "retry", "--where", "name:train_3"]),
            "change back" => test.torc(["jobs", "act", "cancel", "--where", "name:train_3"]),
            _ => test.torc(["workflows", "reset-status", "1", "--failed-only"]),
        }
        .success();
    });
    end(page);
}

/// A server at this port of its own, as `torc server run` is for people.
fn server_at(test: &Test, port: &str) -> Running {
    let mut server = test.torc(["server", "run", "--port", port]).spawn();
    server.wait_for_stdout("http://");
    server
}

#[test]
fn a_killed_server_is_told_with_the_age_of_the_data_and_the_page_comes_back_by_itself() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut server = Some(server_at(&test, &port));
    let link = test.torc(["ui", "--no-browser"]).success().stdout.trim().to_owned();
    walk_with(
        &lab,
        json!({"do": "lost", "link": link, "workflow": 1, "job": 1}),
        |step| match step {
            "kill" => {
                let dead = server.take().expect("it runs");
                dead.signal("KILL");
                dead.wait();
            }
            "start" => server = Some(server_at(&test, &port)),
            _ => {
                test.torc(["jobs", "act", "retry", "--where", "name:train_3"]).success();
            }
        },
    );
    end(server.expect("it runs again"));
}

#[test]
fn the_page_works_below_the_prefixes_of_proxies() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let (page, first) = served(&test, &["sweep"]);
    let second = test.torc(["ui", "--no-browser", "sweep"]).success().stdout.trim().to_owned();
    walk(&lab, json!({"do": "prefix", "links": [first, second], "workflow": 1, "job": 1}));
    end(page);
}

#[test]
fn the_graph_is_grouped_in_other_ways_and_a_span_of_the_timeline_selected() {
    let Some(lab) = lab() else { return };
    let test = ran();
    let (page, link) = served(&test, &[]);
    walk(&lab, json!({"do": "graph", "link": link, "workflow": 1, "job": 1, "jobs": 17}));
    end(page);
}

#[test]
fn a_report_opens_from_disk_without_a_network() {
    let Some(lab) = lab() else { return };
    let test = ran();
    test.torc(["report", "-o", "run.html"]).success();
    let shots = std::env::var("TORC_PAGE_SHOTS").ok();
    walk(&lab, json!({"do": "report", "file": test.path("run.html"), "shots": shots}));
}

#[test]
fn the_modules_of_the_page_have_no_type_errors() {
    let Some(lab) = lab() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../torc-server/page");
    let files = std::fs::read_dir(page).unwrap().map(|entry| entry.unwrap().path());
    let done = Command::new(lab.join("npm/node_modules/.bin/tsc"))
        .args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"])
        .args(["--lib", "es2023,dom,dom.iterable", "--module", "esnext"])
        .args(["--moduleResolution", "bundler"])
        .args(files.filter(|path| path.extension().is_some_and(|end| end == "js")))
        .output()
        .expect("tsc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

/// A hundred thousand jobs that have run, made in the database: running them would take minutes.
#[test]
fn a_hundred_thousand_jobs_are_shown_within_the_budgets() {
    let Some(lab) = lab() else { return };
    let spec = "name: large\njobs:\n  - {name: prep, command: 'true'}\n  - {name: 'work_{i}', command: 'true', depends_on: [prep], parameters: {i: '1:100000'}}\n";
    let test = Test::new().file("large.yaml", spec);
    test.torc(["create", "large.yaml"]).success();
    test.torc(["workflows", "initialize", "1"]).success();
    fill(&test.path(".torc/torc.db"));
    // Times are judged where `scripts/page-speed` names a release build on an idle machine. Here they
    // would judge an unoptimized server and the tests beside it; what is counted is judged in both.
    let program = std::env::var("TORC_PAGE_PROGRAM").ok();
    let budgets = match &program {
        Some(_) => {
            json!({"overview": 1000, "rows": 200, "filter": 200, "scroll": 100, "timeline": 500, "frames": 30})
        }
        None => json!({}),
    };
    let mut page = test.command(program.as_deref().unwrap_or(TORC), ["ui", "--no-browser"]).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1").trim().to_owned();
    let wanted = json!({"all": "100,001 jobs", "some": "1,000 jobs"});
    let task = json!({"do": "large", "link": link, "workflow": 1, "job": 1, "budgets": budgets, "wanted": wanted});
    let figures = walk(&lab, task);
    for (what, figure) in figures.as_object().into_iter().flatten() {
        eprintln!("{what}: {figure}");
    }
    end(page);
    let written = test.torc(["-f", "json", "report", "-o", "run.html"]).success().json();
    assert!(written["bytes"].as_i64().unwrap() <= 6 << 20, "{written}");
    walk(&lab, json!({"do": "report", "file": test.path("run.html")}));
    // Four attempts of each job are more than are sent one by one.
    add_attempts(&test.path(".torc/torc.db"));
    let mut page = test.command(program.as_deref().unwrap_or(TORC), ["ui", "--no-browser"]).spawn();
    let link = page.wait_for_stdout("http://127.0.0.1").trim().to_owned();
    let task = json!({"do": "picture", "link": link, "workflow": 1, "job": 1, "budgets": budgets});
    for (what, figure) in walk(&lab, task).as_object().into_iter().flatten() {
        eprintln!("{what}: {figure}");
    }
    end(page);
}

fn add_attempts(database: &Path) {
    let db = rusqlite::Connection::open(database).unwrap();
    db.execute_batch(
        "PRAGMA synchronous = OFF;
         INSERT INTO attempt (workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, compute_node_id, token, claimed_ms,
             started_ms, ended_ms, ended_by, return_code, cause, exec_seconds)
         SELECT 1, job_id, 1, n.value, state, 'initial', created_ms, compute_node_id, 't', claimed_ms, started_ms + 600000 * (n.value - 1),
             ended_ms + 600000 * (n.value - 1), 'runner', return_code, cause, exec_seconds
         FROM attempt, json_each('[2, 3, 4]') n;",
    )
    .unwrap();
}

/// Attempts of all jobs on eight runners, one in a thousand failed.
fn fill(database: &Path) {
    let db = rusqlite::Connection::open(database).unwrap();
    db.execute_batch(
        "PRAGMA synchronous = OFF;
         DELETE FROM attempt WHERE job_id = 1;
         UPDATE job SET status = 5 WHERE id = 1;
         UPDATE workflow SET run_started_ms = 1700000000000, is_complete = 1;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
         INSERT INTO compute_node (id, workflow_id, register_key, hostname, boot_id, pid, pid_start, kind, capacity, output_dir,
             started_ms, last_seen_ms)
         SELECT i, 1, 'k' || i, 'node' || i, 'b', i, i, 'local', '{\"num_cpus\":8,\"memory_bytes\":1000000000,\"num_gpus\":0,\"num_nodes\":1}', '/nowhere',
             1700000000000, 1700000000000 FROM n;
         UPDATE job SET status = CASE WHEN id % 1000 = 0 THEN 6 ELSE 5 END;
         INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, created_ms, compute_node_id, token, claimed_ms,
             started_ms, ended_ms, ended_by, return_code, cause, exec_seconds, cpu_seconds, peak_memory_bytes, memory_bytes)
         SELECT id, 1, id, 1, 1, CASE WHEN id % 1000 = 0 THEN 'failed' ELSE 'completed' END, 'initial', 1700000000000, 1 + id % 8, 't', 1700000000000,
             1700000000000 + id * 5, 1700000000000 + id * 5 + 300 + (id * 7919) % 200, 'runner', CASE WHEN id % 1000 = 0 THEN 1 ELSE 0 END,
             CASE WHEN id % 1000 = 0 THEN 'exit' END, 0.3 + ((id * 7919) % 200) / 1000.0, 0.2, 1000000 + (id * 7919) % 9000000, 64000000 FROM job;",
    )
    .unwrap();
}

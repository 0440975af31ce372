//! Jobs that add jobs while they run.

use crate::support::{Done, Test, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use torc_model::words;

const PIECE: &str = "\
jobs:
  - {name: child_1, command: echo 1 >> witness}
  - {name: child_2, depends_on: child_1, command: echo 2 >> witness}
";

fn adds(command: &str) -> String {
    format!(
        "name: grow\ndynamic_jobs: true\njobs:\n  - name: parent\n    max_lost_retries: 5\n    command: |\n      {}\n  \
         - {{name: after, depends_on: parent, command: echo after >> witness}}\n",
        command.replace('\n', "\n      ")
    )
}

fn lines(test: &Test) -> Vec<String> {
    test.read("witness").lines().map(str::to_owned).collect()
}

#[test]
fn a_running_job_adds_jobs_and_they_run_after_it() {
    let test = Test::new()
        .spec(&adds("torc jobs add piece.yaml > said; torc -f json jobs list > jobs; echo parent >> witness"))
        .file("piece.yaml", PIECE);
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(test.read("said"), "added 2 jobs\n");
    let during: Value = serde_json::from_str(&test.read("jobs")).expect("JSON");
    let during: Vec<&str> =
        during["jobs"].as_array().expect("jobs").iter().map(|job| text(&job["status"])).collect();
    // The runner reports a start together with what comes next, so the job may ask before the
    // server has heard of it: its attempt is then handed out (pending) but not yet running.
    assert!(["pending", "running"].contains(&during[0]), "{during:?}");
    assert_eq!(during[1..], ["blocked"; 3], "none before the job succeeds");
    let seen = lines(&test);
    assert_eq!(seen[0], "parent");
    let at = |what: &str| seen.iter().position(|line| line == what).expect(what);
    assert!(at("1") < at("2"), "{seen:?}");
    assert_eq!(
        test.statuses(),
        ["parent completed", "after completed", "child_1 completed", "child_2 completed"]
    );
    // The family of a job is the entry of the piece.
    let events = test.torc(["-f", "json", "events"]).success().json().to_string();
    assert!(events.contains("jobs_added"), "{events}");
}

#[test]
fn with_wait_what_depends_on_the_job_waits_for_its_children() {
    let test = Test::new().spec(&adds("torc jobs add piece.yaml --wait")).file("piece.yaml", PIECE);
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(lines(&test), ["1", "2", "after"]);
    // A restart counts the same dependencies.
    let why = test.torc(["-f", "json", "jobs", "get", "after"]).success().json();
    assert_eq!(why["depends_on_job_ids"].as_array().expect("parents").len(), 3, "{why}");
}

#[test]
fn with_now_the_children_do_not_wait_for_the_job() {
    let test = Test::new().file("piece.yaml", "jobs: [{name: child, command: echo go > gate}]\n");
    let gate = test.gate("gate");
    // The parent ends when its child has run beside it.
    test.write("workflow.yaml", &adds("torc jobs add piece.yaml --now\nread line < gate"));
    let done = test.torc(["run", "workflow.yaml", "-j", "2"]).done();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    drop(gate);
}

#[test]
fn a_job_that_is_tried_again_adds_nothing_twice() {
    let test = Test::new()
        .spec(
            &adds("torc jobs add piece.yaml >> said\ntest $TORC_ATTEMPT_ID = 3")
                .replace("max_lost_retries: 5", "retries: 2"),
        )
        .file("piece.yaml", PIECE);
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(
        test.read("said"),
        "added 2 jobs\n2 jobs had been added before; nothing was added\n2 jobs had been added before; nothing was added\n"
    );
    assert_eq!(test.statuses().len(), 4);
    let seen = lines(&test);
    assert_eq!(seen.iter().filter(|line| *line == "1").count(), 1, "{seen:?}");
}

/// A job that adds something else is told what to do, as a program and as a person.
#[test]
fn another_piece_under_the_same_key_is_refused_and_one_under_its_own_is_added() {
    let test = Test::new()
        .spec(&adds(
            "torc jobs add piece.yaml\n\
             torc jobs add other.yaml > said 2>&1 && exit 7\n\
             torc jobs add other.yaml --key other",
        ))
        .file("piece.yaml", PIECE)
        .file(
            "other.yaml",
            "jobs: [{name: other, command: 'true', depends_on: [child_1, after]}]\n",
        );
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    let said = test.read("said");
    assert!(words::has(&said, "job `parent` has added other jobs in run 1 already"), "{said}");
    assert!(said.contains("`key` of its own"), "{said}");
    assert!(test.statuses().contains(&"other completed".to_owned()));
}

#[test]
fn names_are_unique_and_a_wrong_piece_adds_nothing() {
    let cases = [
        ("jobs: [{name: new, command: x}, {name: after, command: x}]", "has a job `after` already"),
        ("jobs: [{name: a, command: x, depends_on: nowhere}]", "there is no job called `nowhere`"),
        (
            "jobs: [{name: a, command: x, depends_on: b}, {name: b, command: x, depends_on: a}]",
            "the jobs wait for each other",
        ),
        ("jobs: [{name: a, command: x, resource_requirements: big}]", "called `big`"),
        ("name: x\nshell: strict\njobs: []", "`shell` belongs to the whole workflow"),
        ("jobs: [{name: a, cmd: x}]", "write `command: TEXT`"),
        ("jobs: [{name: a, map: {items: [1]}, steps: ['true']}]", "cannot have `map`"),
    ];
    let mut script = String::new();
    let mut test = Test::new();
    for (nth, (piece, _)) in cases.iter().enumerate() {
        test = test.file(&format!("{nth}.yaml"), piece);
        script += &format!("torc jobs add {nth}.yaml > said{nth} 2>&1 && exit 9\n");
    }
    test.write("workflow.yaml", &adds(&format!("{script}true")));
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    for (nth, (piece, wanted)) in cases.iter().enumerate() {
        let said = test.read(&format!("said{nth}"));
        assert!(words::has(&said, wanted), "{piece}: {said}");
    }
    assert_eq!(test.statuses(), ["parent completed", "after completed"]);
}

#[test]
fn new_jobs_use_what_the_workflow_has_and_bring_what_it_lacks() {
    let piece = "\
parameters: {i: '1:2'}
files: [{name: 'part_{i}', path: 'part_{i}.txt', use_parameters: [i]}]
user_data: [{name: extra, data: {n: 7}}]
resource_requirements: [{name: tiny, cpus: 1, memory: 64m}]
jobs:
  - name: 'use_{i}'
    use_parameters: [i]
    resource_requirements: small
    failure_handler: again
    command: cat ${files.input.base} > ${files.output.part_{i}}
  - name: sum
    use_parameters: [i]
    depends_on: after
    cpus: 1
    retries: 1
    input_files: ['part_{i}.txt']
    output_files: [sum.txt]
    non_empty: true
    command: cat part_1.txt part_2.txt > sum.txt; echo ${user_data.input.extra}
  - {name: bare, resource_requirements: tiny, input_files: [base.txt], command: 'true'}
";
    let spec = "\
name: grow
dynamic_jobs: true
resource_requirements: [{name: small, cpus: 1}]
failure_handlers: [{name: again, rules: [{exit_codes: [3]}]}]
default_failure_handler: again
files: [{name: base, path: base.txt}]
jobs:
  - {name: base, command: 'echo base > ${files.output.base}'}
  - {name: parent, command: torc jobs add piece.yaml}
  - {name: after, depends_on: parent, command: 'true'}
";
    let test = Test::new().spec(spec).file("piece.yaml", piece);
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(test.read("sum.txt"), "base\nbase\n");
    let get = |job: &str| test.torc(["-f", "json", "jobs", "get", job]).success().json();
    assert_eq!(get("use_1")["resource_requirements"], "small");
    assert_eq!(get("use_1")["failure_handler"], "again");
    assert_eq!(get("sum")["failure_handler"], "again, retries: 1");
    assert_eq!(get("bare")["resource_requirements"], "tiny");
    // base (through its file) and the adding job.
    assert_eq!(get("bare")["depends_on_job_ids"].as_array().expect("parents").len(), 2);
    assert_eq!(get("sum")["depends_on_job_ids"].as_array().expect("parents").len(), 4);
}

/// Least authority: what a job may do is what the spec of its workflow says.
#[test]
fn a_job_may_add_only_where_its_workflow_allows_it_and_only_for_itself() {
    let test = Test::new()
        .spec(
            &adds("torc jobs add piece.yaml > said 2>&1\ntrue").replace("dynamic_jobs: true\n", ""),
        )
        .file("piece.yaml", PIECE);
    assert_eq!(test.run().code, Some(0));
    let said = test.read("said");
    assert!(words::has(&said, "may not add jobs") && said.contains("dynamic_jobs: true"), "{said}");
    assert_eq!(test.statuses().len(), 2);

    let test = Test::new()
        .spec(
            "name: grow\ndynamic_jobs: true\njobs:\n  - {name: a, command: 'read line < gate'}\n  \
             - {name: b, command: 'torc jobs add piece.yaml --job a > said 2>&1; echo go > gate'}\n",
        )
        .file("piece.yaml", PIECE);
    let _gate = test.gate("gate");
    let done = test.torc(["run", "workflow.yaml", "-j", "2"]).done();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert!(
        words::has(&test.read("said"), "this token adds jobs for job 2 only"),
        "{}",
        test.read("said")
    );
}

#[test]
fn only_a_running_job_adds_jobs() {
    let test = Test::new().spec(&adds("true")).file("piece.yaml", PIECE);
    assert_eq!(test.run().code, Some(0));
    let done = test.torc(["jobs", "add", "piece.yaml", "--job", "parent"]).done();
    assert_ne!(done.code, Some(0));
    assert!(words::has(&done.stderr, "only a running job adds jobs"), "{}", done.stderr);
    let done = test.torc(["jobs", "add", "piece.yaml"]).done();
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stderr.contains("--job"), "{}", done.stderr);
}

/// A loop that does not know how long it is: each round adds the next, until one does not.
#[test]
fn a_loop_of_jobs_ends_by_itself_and_a_runaway_ends_at_the_cap() {
    let round = "\
n=${1:-0}; echo $n >> witness
[ $n -ge $2 ] && exit 0
printf 'jobs: [{name: round_%s, command: bash round.sh %s %s}]' $((n + 1)) $((n + 1)) $2 | torc jobs add - || exit 1
";
    let spec = |most: u32, cap: &str| {
        format!(
            "name: loop\ndynamic_jobs: {{{cap}}}\njobs: [{{name: round_0, command: bash round.sh 0 {most}}}]\n"
        )
    };
    let test = Test::new().spec(&spec(5, "max_iterations: 5")).file("round.sh", round);
    let done = test.run();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    assert_eq!(lines(&test), ["0", "1", "2", "3", "4", "5"]);

    let test = Test::new().spec(&spec(50, "max_iterations: 3")).file("round.sh", round);
    assert_eq!(test.run().code, Some(1));
    assert_eq!(lines(&test), ["0", "1", "2", "3"]);
    let log = test.torc(["logs", "round_3"]).done();
    let said = format!("{}{}", log.stdout, log.stderr);
    assert!(words::has(&said, "`dynamic_jobs.max_iterations` is 3"), "{said}");

    let test = Test::new().spec(&spec(50, "max_jobs: 2")).file("round.sh", round);
    assert_eq!(test.run().code, Some(1));
    assert_eq!(lines(&test), ["0", "1", "2"]);
}

/// All or none, wherever the server dies; and the job that is tried again adds nothing twice.
#[test]
fn a_crash_around_the_addition_adds_all_or_none_and_never_twice() {
    for point in
        ["spawn.inserted:1", "spawn.committed:1", "store.before_commit:6", "store.after_commit:6"]
    {
        let test = Test::new()
            .spec(&adds("torc jobs add piece.yaml --wait || exit 1"))
            .file("piece.yaml", PIECE);
        let first = test.torc(["run", "workflow.yaml"]).env("TORC_FAILPOINT", point).done();
        if point.starts_with("spawn") {
            assert_eq!(first.code, None, "{point} was not reached: {}", first.stderr);
        }
        let mut last: Option<Done> = None;
        // The job whose server died may have failed of it; the same command runs it again.
        for _ in 0..3 {
            let again = test.run();
            let is_done = again.code == Some(0);
            last = Some(again);
            if is_done {
                break;
            }
        }
        let last = last.expect("a run");
        assert_eq!(last.code, Some(0), "{point}: {}{}", last.stdout, last.stderr);
        assert_eq!(lines(&test), ["1", "2", "after"], "{point}");
        assert_eq!(
            test.statuses(),
            ["parent completed", "after completed", "child_1 completed", "child_2 completed"],
            "{point}"
        );
    }
}

/// Any sequence of kills ends as one run without them: each child runs once, in order.
#[test]
fn kills_at_any_moment_of_a_growing_workflow_double_nothing() {
    let round = "\
n=$1; echo $n >> witness
[ $n -ge 4 ] && exit 0
for try in 1 2 3 4 5 6 7 8 9; do
  printf 'jobs: [{name: leaf_%s, command: echo leaf_%s >> witness}, {name: round_%s, depends_on: leaf_%s, command: bash round.sh %s}]' $n $n $((n + 1)) $n $((n + 1)) | torc jobs add - && exit 0
done
exit 1
";
    let points = [
        "spawn.inserted",
        "spawn.committed",
        "store.before_commit",
        "store.after_commit",
        "runner.after_exit",
    ];
    let mut kills = 0;
    // More of them on demand, for a longer search.
    let seeds = std::env::var("TORC_SPAWN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        let seed: u32 = seed;
        let test = Test::new()
            .spec("name: loop\ndynamic_jobs: true\njobs: [{name: round_0, max_lost_retries: 100, command: bash round.sh 0}]\n")
            .file("round.sh", round);
        let mut code = None;
        for nth in 0..20u32 {
            let mix = seed.wrapping_mul(2_654_435_761).wrapping_add(nth.wrapping_mul(40_503)) >> 8;
            let point = format!("{}:{}", points[mix as usize % points.len()], 1 + (mix >> 4) % 9);
            let mut call = test.torc(["run", "workflow.yaml"]);
            // The last runs without kills.
            if nth < 6 {
                call = call.env("TORC_FAILPOINT", &point);
            }
            let done = call.done();
            kills += u32::from(done.code.is_none());
            code = done.code;
            if code == Some(0) {
                break;
            }
        }
        assert_eq!(code, Some(0), "seed {seed}");
        let names: Vec<String> = test.statuses();
        let wanted: Vec<String> = std::iter::once("round_0 completed".to_owned())
            .chain((0..4).flat_map(|n| {
                [format!("leaf_{n} completed"), format!("round_{} completed", n + 1)]
            }))
            .collect();
        assert_eq!(names, wanted, "seed {seed}");
        let seen = lines(&test);
        // Rounds may be tried again when their runner dies; leaves come after their round.
        for n in 0..4 {
            assert!(seen.contains(&format!("leaf_{n}")), "{seen:?}");
        }
    }
    eprintln!("{kills} kills in {seeds} workflows");
    assert!(kills >= seeds, "only {kills} kills");
}

/// The page and lists see the families of what was added.
#[test]
fn added_jobs_belong_to_the_family_of_their_entry() {
    let piece = "jobs: [{name: 'part_{i}', parameters: {i: '1:3'}, command: 'true'}]\n";
    let test = Test::new().spec(&adds("torc jobs add piece.yaml")).file("piece.yaml", piece);
    assert_eq!(test.run().code, Some(0));
    let found =
        test.torc(["-f", "json", "jobs", "list", "--where", "family:part"]).success().json();
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(3), "{found}");
    let report = test.torc(["report", "-o", "report.html"]).done();
    assert_eq!(report.code, Some(0), "{}", report.stderr);
    assert!(test.read("report.html").contains("part"));
}

/// Two workflows that write the same file at once: the second is told which one is in its way.
#[test]
fn a_workflow_that_writes_what_a_running_one_writes_is_refused() {
    let spec = |name: &str, command: &str| {
        format!(
            "name: {name}\njobs: [{{name: {name}, output_files: [out/x.txt], command: '{command}'}}]\n"
        )
    };
    let test = Test::new()
        .file(
            "first.yaml",
            &spec("first", "mkdir -p out; echo on > began; read line < gate; echo > out/x.txt"),
        )
        .file("second.yaml", &spec("second", "echo second > out/x.txt"))
        .file("other.yaml", &spec("other", "echo other > out/y.txt").replace("x.txt", "y.txt"));
    let gate = test.gate("gate");
    let began = test.gate("began");
    let first = test.torc(["run", "first.yaml"]).spawn();
    began.read();
    let done = test.torc(["run", "second.yaml"]).done();
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(
        words::has(&done.stderr, "workflow 1 `first` is running and writes")
            && words::has(&done.stderr, "out/x.txt` too")
            && done.stderr.contains("torc watch 1"),
        "{}",
        done.stderr
    );
    assert_eq!(test.torc(["-f", "json", "workflows", "list"]).success().json()["total_count"], 1);
    // Other files are of no concern, and a person may insist.
    assert_eq!(test.torc(["run", "other.yaml"]).done().code, Some(0));
    assert_eq!(test.torc(["run", "second.yaml", "--force"]).done().code, Some(0));
    gate.open();
    assert_eq!(first.wait().code, Some(0));
    // Nothing runs any more.
    assert_eq!(test.torc(["run", "second.yaml", "--new"]).done().code, Some(0));
}

/// Where the workflow files and the client of Torc 1.0.0 are; `None` where it was not installed. In CI that is a
/// failure, unless it cannot be fetched at all (`TORC_ORCHESTRATOR_LAB=none`).
pub fn torc_1_0_lab() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = std::env::var_os("TORC_ORCHESTRATOR_LAB").map(PathBuf::from);
    if named.as_deref() == Some(Path::new("none")) {
        eprintln!("SKIPPED: the crate `torc` 1.0.0 cannot be fetched here");
        return None;
    }
    let lab = named.unwrap_or_else(|| root.join("target/orchestrator-lab"));
    if lab.join("installed").is_file() {
        return Some(lab);
    }
    let how = "the orchestrator example of Torc 1.0.0 is not installed; `scripts/orchestrator-lab` installs it";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{how}");
    eprintln!("SKIPPED: {how}");
    None
}

/// Its client sends no token by itself; everything else is the example as it is.
const TOKEN: &str = r#"
import os

if "TORC_TOKEN_FILE" in os.environ:
    from torc.openapi_client.api_client import ApiClient

    plain = ApiClient.__init__

    def with_token(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        with open(os.environ["TORC_TOKEN_FILE"], encoding="utf-8") as file:
            self.set_default_header("Authorization", "Bearer " + file.read().strip())

    ApiClient.__init__ = with_token
"#;

#[test]
fn the_orchestrator_example_of_torc_1_0_runs_until_it_converges() {
    let Some(lab) = torc_1_0_lab() else { return };
    let test = Test::new().file("sitecustomize.py", TOKEN);
    let copied = std::process::Command::new("cp")
        .args(["-r".as_ref(), lab.join("examples").as_os_str(), test.path("examples").as_os_str()])
        .status();
    assert!(copied.expect("cp").success());
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", lab.join("python/bin").display());
    let done = test
        .torc(["run", "examples/yaml/dynamic_orchestrator_local.yaml"])
        .env("PATH", &path)
        .env("PYTHONPATH", test.path(".").display().to_string())
        .env("TORC_DEMO_WORK_SECS", "0")
        .done();
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    // Two lineages of four rounds: three jobs each, and the seeds.
    let jobs = test.statuses();
    assert_eq!(jobs.len(), 26, "{jobs:?}");
    assert!(jobs.iter().all(|job| job.ends_with(" completed")), "{jobs:?}");
    let data = test.torc(["user-data", "get", "__torc_lineage__caseA__final"]).success().json();
    assert_eq!((&data["converged"], &data["generation"]), (&true.into(), &4.into()), "{data}");
}

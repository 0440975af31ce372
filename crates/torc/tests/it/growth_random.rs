//! Sequences of edits, runs, kills, additions by jobs and applications beside a running workflow,
//! drawn from a seed. Whatever they are, the workflow ends as a fresh run of its last spec does, and
//! no job that was up to date ran again.
//!
//! `TORC_GROWTH_SEEDS=100:200 cargo nextest run growth_random` plays other sequences.

use crate::support::{Running, Test, text};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use torc_model::chance::Rng;

/// What every job runs: `bash job.sh NAME VERSION INPUT...`. The file `trap` names a job and a point
/// in it at which the job kills the program that runs it, once.
const JOB: &str = r#"
name=$1 version=$2; shift 2
point() {
    [ "$(cat trap 2>/dev/null)" = "$name $1" ] && rm trap || return 0
    until [ -s pid ]; do sleep 0.01; done
    kill -KILL "$(cat pid)"
    exec sleep 60
}
point begun
case $version in bad*) exit 3;; esac
cat /dev/null "$@" > "$name.tmp" || exit 4
echo "$name $version" >> "$name.tmp"
if [ "$name" = adder ]; then
    for n in 1 2; do
        echo "{\"name\": \"kid_${version}_$n\", \"command\": \"bash job.sh kid_${version}_$n 0 adder.txt\"},"
    done | sed '$ s/,$//' | { echo '{"jobs": ['; cat; echo ']}'; } | torc jobs add - > /dev/null || exit 5
    point added
fi
mv "$name.tmp" "$name.txt"
point written
echo "$name $TORC_RUN_ID $TORC_ATTEMPT_ID $(cksum < "$name.txt")" >> ledger
point noted
"#;

/// What the next spec says. Versions only grow, so that two successes of a job in a row that wrote
/// the same bytes had no reason to be two.
struct Plan {
    rng: Rng,
    version: u32,
    /// The version of each job of the chain, and whether it reads a second file.
    jobs: Vec<(String, bool)>,
    adder: Option<String>,
    input: u32,
    remark: u32,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let jobs = vec![("1".to_owned(), false); 3];
        Self { rng: Rng::new(seed), version: 1, jobs, adder: None, input: 1, remark: 0 }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        // Some fail until they are mended by a later edit.
        let prefix = if self.rng.chance(150) { "bad" } else { "" };
        format!("{prefix}{}", self.version)
    }

    /// Changes one thing; true if that is nothing that lets a job run again.
    fn edit(&mut self, test: &Test) -> bool {
        let at = self.rng.below(self.jobs.len() as u64) as usize;
        let version = self.next_version();
        match self.rng.below(7) {
            0 => self.jobs.push((version, false)),
            1 if self.jobs.len() > 2 => drop(self.jobs.pop()),
            2 => self.jobs[at] = (version, !self.jobs[at].1),
            3 => self.adder = Some(version.trim_start_matches("bad").to_owned()),
            4 => {
                self.input = self.version;
                replace(test, "in.txt", &format!("input {}\n", self.input));
            }
            5 => {
                self.remark += 1;
                replace(test, "workflow.yaml", &self.spec());
                return true;
            }
            _ => self.jobs[at].0 = version,
        }
        replace(test, "workflow.yaml", &self.spec());
        false
    }

    fn spec(&self) -> String {
        let mut out = format!("# remark {}\nname: w\ndynamic_jobs: true\njobs:\n", self.remark);
        for (n, (version, reads_second)) in self.jobs.iter().enumerate() {
            let first = if n == 0 { "in.txt".to_owned() } else { format!("j{}.txt", n - 1) };
            let mut inputs = vec![first];
            if *reads_second && n > 1 {
                inputs.push(format!("j{}.txt", n / 2 - 1));
            }
            let words = inputs.join(" ");
            // A reader of `in.txt` is retried by hand only; a lost one comes back by itself.
            let _ = writeln!(
                out,
                "  - {{name: j{n}, command: bash job.sh j{n} {version} {words}, input_files: [{}], output_files: [j{n}.txt]}}",
                inputs.join(", ")
            );
        }
        if let Some(version) = &self.adder {
            let _ = writeln!(
                out,
                "  - {{name: adder, command: bash job.sh adder {version} j0.txt, input_files: [j0.txt], output_files: [adder.txt]}}"
            );
        }
        out
    }

    fn trap(&mut self, test: &Test) {
        let points = ["begun", "written", "noted", "added"];
        let point = self.rng.pick(&points);
        let job = match self.adder.is_some() && (point == "added" || self.rng.chance(200)) {
            true => "adder".to_owned(),
            false => format!("j{}", self.rng.below(self.jobs.len() as u64)),
        };
        replace(test, "trap", &format!("{job} {point}\n"));
    }
}

/// At once, as editors do: the program may be reading it.
fn replace(test: &Test, name: &str, text: &str) {
    let new = format!("{name}.new");
    test.write(&new, text);
    fs::rename(test.path(&new), test.path(name)).expect("a file in place of another");
}

fn start(test: &Test) -> Running {
    let _ = fs::remove_file(test.path("pid"));
    let run = test.torc(["run", "workflow.yaml", "--yes"]).spawn();
    replace(test, "pid", &run.pid().to_string());
    run
}

fn lines(test: &Test) -> Vec<String> {
    fs::read_to_string(test.path("ledger")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The jobs of the spec and what they added with their states and outputs.
fn end(test: &Test) -> BTreeMap<String, (String, Option<String>)> {
    let jobs = test.torc(["-f", "json", "jobs", "list"]).success().json();
    let jobs = jobs["jobs"].as_array().expect("jobs").clone();
    let output = |name: &str| fs::read_to_string(test.path(&format!("{name}.txt"))).ok();
    jobs.iter()
        .map(|job| {
            let name = text(&job["name"]);
            let status = text(&job["status"]);
            let written = output(name).filter(|_| status == "completed");
            (name.to_owned(), (status.to_owned(), written))
        })
        .collect()
}

/// No two successes in a row of a job of the spec wrote the same.
fn check_that_nothing_ran_in_vain(test: &Test, seed: u64, jobs: &[String]) {
    let mut written: HashMap<(String, String, String), String> = HashMap::new();
    for line in lines(test) {
        let words: Vec<&str> = line.split(' ').collect();
        let key = (words[0].to_owned(), words[1].to_owned(), words[2].to_owned());
        written.insert(key, words[3..].join(" "));
    }
    for job in jobs {
        let attempts = test.torc(["-f", "json", "jobs", "attempts", job]).done();
        if attempts.code != Some(0) {
            continue;
        }
        let attempts: Value = attempts.json();
        let mut last: Option<String> = None;
        for attempt in attempts["attempts"].as_array().expect("attempts") {
            if text(&attempt["state"]) != "completed" {
                continue;
            }
            let key =
                (job.clone(), attempt["run_id"].to_string(), attempt["attempt_id"].to_string());
            let sum = written
                .get(&key)
                .unwrap_or_else(|| panic!("seed {seed}: {key:?} has succeeded without its line"));
            assert_ne!(
                last.as_ref(),
                Some(sum),
                "seed {seed}: {job} ran again although it was up to date: {key:?}"
            );
            last = Some(sum.clone());
        }
    }
}

fn play(seed: u64) {
    eprintln!("seed {seed}");
    let mut plan = Plan::new(seed);
    let test = Test::new().file("job.sh", JOB).file("in.txt", "input 1\n").spec(&plan.spec());
    test.run().expect(0);
    for _ in 0..8 {
        let before = lines(&test).len();
        let statuses = end(&test);
        let is_idle =
            statuses.values().all(|(status, _)| status == "completed" || status == "disabled");
        let is_nothing = plan.edit(&test);
        match plan.rng.below(4) {
            0 => {
                let done = start(&test).wait();
                assert!(matches!(done.code, Some(0 | 1)), "seed {seed}: {}", done.stderr);
                if is_nothing && is_idle {
                    assert_eq!(lines(&test).len(), before, "seed {seed}: a remark let jobs run");
                }
            }
            1 => {
                // Another edit is applied while it runs, by a second caller who then watches.
                let first = start(&test);
                plan.edit(&test);
                let second = test.torc(["run", "workflow.yaml", "--yes"]).spawn();
                let (first, second) = (first.wait(), second.wait());
                for done in [first, second] {
                    // Of two that apply at the same time, one is told that it was late.
                    let was_late = done.stderr.contains("this call was made for revision");
                    let is_fine = was_late || matches!(done.code, Some(0 | 1));
                    assert!(is_fine, "seed {seed}: {}", done.stderr);
                }
            }
            _ => {
                plan.trap(&test);
                let done = start(&test).wait();
                let was_killed = done.code.is_none();
                assert!(
                    was_killed || matches!(done.code, Some(0 | 1)),
                    "seed {seed}: {}",
                    done.stderr
                );
                let _ = fs::remove_file(test.path("trap"));
            }
        }
    }
    let done = start(&test).wait();
    assert!(matches!(done.code, Some(0 | 1)), "seed {seed}: {}", done.stderr);
    let fresh = Test::new()
        .file("job.sh", JOB)
        .file("in.txt", &format!("input {}\n", plan.input))
        .spec(&plan.spec());
    let done = fresh.torc(["run", "workflow.yaml"]).done();
    assert!(matches!(done.code, Some(0 | 1)), "seed {seed}: {}", done.stderr);
    let (grown, expected) = (end(&test), end(&fresh));
    for (job, wanted) in &expected {
        assert_eq!(grown.get(job), Some(wanted), "seed {seed}: {job}\n{}", plan.spec());
    }
    let mut jobs: Vec<String> = (0..plan.jobs.len()).map(|n| format!("j{n}")).collect();
    jobs.extend(plan.adder.is_some().then(|| "adder".to_owned()));
    check_that_nothing_ran_in_vain(&test, seed, &jobs);
    let doctor = test.torc(["server", "doctor"]).done();
    assert_eq!(doctor.code, Some(0), "seed {seed}: {}{}", doctor.stdout, doctor.stderr);
}

#[test]
fn any_sequence_ends_as_a_fresh_run_of_the_last_spec() {
    let range = std::env::var("TORC_GROWTH_SEEDS").unwrap_or_else(|_| "14:18".into());
    let (first, end) = range.split_once(':').expect("FIRST:END");
    let seed = |text: &str| text.parse::<u64>().expect("a number");
    (seed(first)..seed(end)).for_each(play);
}

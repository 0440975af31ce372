//! The workflows of a world, and what must become of their jobs whatever is killed.

use crate::plan::PlanRng;
use serde_json::{Value, json};

/// More tries than a world has kills: no budget may run out.
const MANY: u64 = 100_000;
/// Keys of the items of the map that count: one fails until its script has run, one until it is retried.
pub const ITEMS: &[&str] = &["alpha", "beta", "gamma", "delta", "flaky", "bad"];
/// The item that a client retries.
pub const BAD_ITEM: &str = "each/bad";
/// The key of an item that always fails, which a client drops.
pub const DEAD_KEY: &str = "dead";
/// That item.
pub const DEAD_ITEM: &str = "each/dead";
/// The map.
pub const MAP: &str = "each";
/// Named limits and how many may be in use at once.
pub const LIMITS: &[(&str, u64)] = &[("one", 1), ("two", 2)];
/// Steps of a job with steps, from 1; the second one fails until its handler has run.
pub const STEPS: i64 = 3;
/// The number under which the handler of the second step writes its lines.
pub const HANDLER: i64 = 9;

/// Jobs that hide from being found, by name and command. `hidden` stands for the witness with its
/// first words; what follows is how long it works.
const HIDDEN: &[(&str, &str)] = &[
    ("bare", "env -i hidden"),
    ("title", "hidden"),
    ("nondumpable", "hidden"),
    ("daemon", "hidden"),
    ("session", "setsid -w hidden"),
    ("pipe", "hidden | cat > tmp/OUT; mv tmp/OUT published/OUT"),
    ("rename", "hidden > tmp/OUT\nmv tmp/OUT published/OUT"),
    ("apart", "setsid -w env -i hidden > tmp/OUT\nmv tmp/OUT published/OUT"),
];

/// How the processes of a job tell of themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobShape {
    /// One witness per attempt.
    Plain,
    /// One witness per attempt, whose shell then puts its output into place.
    Publishing,
    /// A witness per step.
    Steps {
        /// A later attempt begins at the step that failed.
        resumes: bool,
    },
    /// Finds items; they are jobs of their own.
    Map,
    /// Tells how many items the map had, and how many of them succeeded.
    Reduce,
}

impl JobShape {
    /// It ends with its items.
    pub fn is_map(self) -> bool {
        self == Self::Map
    }
}

/// What a job does and must come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its name.
    pub name: String,
    /// Those that must have succeeded before it starts.
    pub parents: Vec<String>,
    /// Its status in the end.
    pub status: &'static str,
    /// How it tells of itself.
    pub shape: JobShape,
}

/// A workflow to create.
#[derive(Clone, Debug)]
pub struct PlannedWorkflow {
    /// The spec.
    pub spec: Value,
    /// What must come of it.
    pub jobs: Vec<Expected>,
}

/// Collects the jobs of a workflow.
#[derive(Default)]
struct WorkloadDraft {
    expected: Vec<Expected>,
    jobs: Vec<Value>,
}

impl WorkloadDraft {
    /// Adds a job; `more` are the keys of the spec beyond what all have.
    fn add(
        &mut self,
        name: &str,
        shape: JobShape,
        status: &'static str,
        parents: &[String],
        more: Value,
    ) {
        let mut job = json!({
            "name": name, "depends_on": parents, "failure_handler": "h", "max_lost_retries": MANY,
        });
        if let (Some(job), Value::Object(more)) = (job.as_object_mut(), more) {
            job.extend(more);
        }
        self.jobs.push(job);
        self.expect(name, shape, status, parents);
    }

    fn expect(&mut self, name: &str, shape: JobShape, status: &'static str, parents: &[String]) {
        self.expected.push(Expected {
            name: name.into(),
            parents: parents.to_vec(),
            status,
            shape,
        });
    }

    /// A job of one command that succeeds in the end.
    fn plain(&mut self, name: &str, what: &str, parents: &[String], uses: &[&str]) {
        let more = json!({"command": format!("bash witness.sh {what}"), "uses": uses});
        self.add(name, JobShape::Plain, "completed", parents, more);
    }
}

/// Jobs that the spec gets only after the workflow was created, while it runs.
const LATE: [&str; 3] = ["limited3", "limited4", "last"];

impl PlannedWorkflow {
    /// The spec that the workflow is created from; the whole one is applied to it.
    pub fn first_spec(&self) -> Value {
        let mut spec = self.spec.clone();
        if let Some(jobs) = spec["jobs"].as_array_mut() {
            jobs.retain(|job| !LATE.iter().any(|late| job["name"] == **late));
        }
        spec
    }

    /// A small graph with a bit of everything.
    pub fn draw(rng: &mut PlanRng, number: usize) -> Self {
        let mut draft = WorkloadDraft::default();
        let seconds = |rng: &mut PlanRng| format!("0.{:03}", rng.below(350) + 10);
        for i in 0..4 {
            draft.plain(&format!("first{i}"), &format!("work {}", seconds(rng)), &[], &[]);
        }
        for i in 0..3 {
            let parents = [format!("first{}", rng.below(2)), format!("first{}", 2 + rng.below(2))];
            draft.plain(&format!("second{i}"), &format!("work {}", seconds(rng)), &parents, &[]);
        }
        for i in 0..2 {
            let times = 1 + rng.below(3);
            draft.plain(&format!("flaky{i}"), &format!("flaky {times}"), &["first0".into()], &[]);
        }
        for i in 0..5 {
            let (limit, max) = LIMITS[usize::from(i >= 2)];
            let what = format!("limited {} {limit} {max}", seconds(rng));
            draft.plain(&format!("limited{i}"), &what, &[], &[limit]);
        }
        hidden(&mut draft, rng);
        for resumes in [false, true] {
            stepwise(&mut draft, resumes);
        }
        map(&mut draft, rng);
        grow(&mut draft);
        files(&mut draft, number);
        let broken = json!({"command": "bash witness.sh broken"});
        draft.add("broken", JobShape::Plain, "failed", &[], broken);
        let never = json!({"command": "bash witness.sh work 0.01"});
        draft.add("never", JobShape::Plain, "canceled", &["broken".into()], never);
        let all: Vec<String> =
            ["second0", "second1", "second2", "flaky0", "flaky1"].map(String::from).into();
        draft.plain("last", "work 0.05", &all, &[]);
        let spec = json!({
            "name": format!("world-{number}"),
            "dynamic_jobs": true,
            // As soon as it may be, for runners that cannot be seen from the server's host.
            "disown_seconds": 60,
            "resource_requirements": [
                {"name": "limited", "num_cpus": 1, "memory": "200m", "runtime": "1h"},
            ],
            "failure_handlers": [{
                "name": "h",
                "rules": [
                    {"exit_codes": [10], "max_retries": MANY, "recovery_script": "bash witness.sh script"},
                    // Killed by the harness, the job itself or a part of it; 5 where that was the handler.
                    {"signals": [9], "exit_codes": [5, 137], "max_retries": MANY},
                ],
            }],
            "actions": [
                {"trigger_type": "on_workflow_start", "action_type": "run_commands",
                 "commands": ["bash witness.sh action begin"]},
                {"trigger_type": "on_jobs_complete", "action_type": "run_commands", "job_name_regexes": ["^first"],
                 "commands": ["bash witness.sh action firsts"]},
            ],
            "jobs": draft.jobs,
        });
        Self { spec, jobs: draft.expected }
    }
}

/// Three of the kinds that hide, every second of them with a memory limit, which means a control
/// group where one can be had.
fn hidden(draft: &mut WorkloadDraft, rng: &mut PlanRng) {
    let first = rng.below(HIDDEN.len() as u64) as usize;
    for i in 0..3 {
        let (kind, text) = HIDDEN[(first + 3 * i) % HIDDEN.len()];
        let name = format!("hidden_{kind}");
        let words = "$TORC_WORKFLOW_ID NAME $TORC_RUN_ID $TORC_ATTEMPT_ID";
        let seconds = format!("0.{:03}", 100 + rng.below(600));
        let command = text
            .replace("hidden", &format!("perl hidden.pl {kind} {words} {seconds}"))
            .replace("NAME", &name)
            .replace("OUT", &format!("$TORC_WORKFLOW_ID.{name}.$TORC_RUN_ID.$TORC_ATTEMPT_ID"));
        let is_publishing = text.contains("published");
        let shape = if is_publishing { JobShape::Publishing } else { JobShape::Plain };
        let mut more = json!({"command": command});
        if i % 2 == 0 {
            more["resource_requirements"] = "limited".into();
        }
        draft.add(&name, shape, "completed", &[], more);
    }
}

fn stepwise(draft: &mut WorkloadDraft, resumes: bool) {
    let mut more = json!({"steps": [
        {"name": "one", "shell": "bash witness.sh step 1"},
        {"name": "two", "shell": "bash witness.sh step 2",
         "on_failure": {"commands": ["bash witness.sh handler"], "max_attempts": 2}},
        {"name": "three", "shell": "bash witness.sh step 3"},
    ]});
    if resumes {
        more["resume"] = "step".into();
    }
    let name = if resumes { "resuming" } else { "stepwise" };
    draft.add(name, JobShape::Steps { resumes }, "completed", &[], more);
}

fn map(draft: &mut WorkloadDraft, rng: &mut PlanRng) {
    let (limit, max) = LIMITS[1];
    let what = format!("item 0.{:03} {limit} {max}", rng.below(150) + 10);
    let each = json!({
        "map": {
            "items": {"command": format!("bash witness.sh items {} {DEAD_KEY}", ITEMS.join(" "))},
            "tolerate": 0,
        },
        "steps": [{"shell": format!("bash witness.sh {what}")}],
        "uses": [limit],
    });
    draft.add(MAP, JobShape::Map, "completed", &[], each);
    let items: Vec<String> = ITEMS.iter().map(|key| format!("{MAP}/{key}")).collect();
    for item in &items {
        draft.expect(item, JobShape::Plain, "completed", &[MAP.into()]);
    }
    draft.expect(DEAD_ITEM, JobShape::Plain, "disabled", &[MAP.into()]);
    let sum = json!({
        "reduce": MAP,
        "steps": [{"shell": "bash witness.sh reduce \"${map.successful}\" \"${map.total}\""}],
    });
    draft.add("sum", JobShape::Reduce, "completed", &[], sum);
    if let Some(sum) = draft.expected.last_mut() {
        sum.parents = items;
    }
    // A reduce depends on its map without saying so.
    if let Some(sum) = draft.jobs.last_mut().and_then(Value::as_object_mut) {
        sum.remove("depends_on");
    }
}

/// A file that one job makes and another one reads, which says their order.
fn files(draft: &mut WorkloadDraft, number: usize) {
    let file = format!("made-{number}.txt");
    let make =
        json!({"command": format!("bash witness.sh produce {file}"), "output_files": [&file]});
    draft.add("maker", JobShape::Plain, "completed", &[], make);
    let read =
        json!({"command": format!("bash witness.sh consume {file}"), "input_files": [&file]});
    draft.add("reader", JobShape::Plain, "completed", &[], read);
    if let Some(reader) = draft.expected.last_mut() {
        reader.parents = vec!["maker".into()];
    }
}

/// The jobs that a job adds while it runs; each depends on the one before.
const GROWN: [&str; 2] = ["grown0", "grown1"];

/// A job that adds jobs, however often it is killed meanwhile: each of them must be there once.
fn grow(draft: &mut WorkloadDraft) {
    draft.plain("grow", "grow", &[], &[]);
    let mut parent = "grow";
    for name in GROWN {
        draft.expect(name, JobShape::Plain, "completed", &[parent.into()]);
        parent = name;
    }
}

/// What it adds.
pub fn grown() -> Value {
    let job = |name: &str, parents: &[&str]| {
        json!({
            "name": name, "depends_on": parents, "command": "bash witness.sh work 0.05",
            "failure_handler": "h", "max_lost_retries": MANY,
        })
    };
    json!({"jobs": [job(GROWN[0], &[]), job(GROWN[1], &[GROWN[0]])]})
}

/// The witness: records its own start and end, and notices another attempt of its job or more users
/// of a limit than there may be that still live. Its locks are held by everything it starts, so
/// that leftovers are noticed too.
pub const WITNESS: &str = r#"
what=$1
[ "$what" != action ] || { TORC_JOB_NAME="action_$2"; TORC_RUN_ID=1; TORC_ATTEMPT_ID=0; }
job="witness/$TORC_WORKFLOW_ID/${TORC_JOB_NAME//\//@}"
mkdir -p "witness/$TORC_WORKFLOW_ID" live
say() {
    printf '%s %s %s %s %s %s\n' "$1" "$TORC_RUN_ID" "$TORC_ATTEMPT_ID" "$$" "${EPOCHREALTIME/[.,]/}" "${2-0}" |
        dd of="$job.log" oflag=append conv=notrunc,fsync status=none
}
# Status 1 is a lock that somebody has; anything else is a `flock` that was killed, as its shell will be in a moment.
is_taken() { flock -n "$1"; [ $? = 1 ]; }
# One of $2 places below the limit $1.
take() {
    for place in $(seq "$2"); do
        exec 8>>"witness/limit.$1.$place.lock"
        is_taken 8 || return
    done
    say limit
}
exec 9>>"$job.lock"
if is_taken 9; then say overlap; fi
case "$what" in
    action) sleep 0.03; say action; exit 0 ;;
    script) say script_start; sleep 0.03; say script_end; exit 0 ;;
esac
read -r stat < "/proc/$$/stat"; stat=(${stat##*) })
live="live/$$.${stat[19]}.k"
code=0
case "$what" in
    limited) take "$3" "$4" ;;
    item) take "$3" "$4" ;;
esac
case "$what" in
    step) say step_start "$2"000 ;;
    handler) say step_start 9000 ;;
    *) say start ;;
esac
# From here on the harness may kill it: what was killed has said that it ran.
: > "$live"
case "$what" in
    work|limited) sleep "$2" ;;
    flaky) sleep 0.05; [ "$(grep -c '^end .* 10$' "$job.log")" -ge "$2" ] || code=10 ;;
    broken) code=3 ;;
    produce) sleep 0.05; echo "all of it" > "$2.$$"; mv "$2.$$" "$2" ;;
    consume) sleep 0.02; [ "$(cat "$2")" = "all of it" ] || code=7 ;;
    items) shift; printf '%s\n' "$@" ;;
    # The server may be down for a while; it is asked again.
    grow) code=10; for try in $(seq 60); do "$CHAOS_TORC" jobs add grown.json && code=0 && break; sleep 0.2; done ;;
    item)
        sleep "$2"
        case "$TORC_JOB_NAME" in
            */flaky) [ "$(grep -c '^end .* 10$' "$job.log")" -ge 1 ] || code=10 ;;
            */bad) [ -e "repaired/$TORC_WORKFLOW_ID" ] || code=4 ;;
            */dead) code=4 ;;
        esac ;;
    reduce) say reduced $(($2 * 1000 + $3)) ;;
    step)
        sleep 0.05
        [ "$2" != 2 ] || [ -e "$job.fixed.$TORC_RUN_ID.$TORC_ATTEMPT_ID" ] || code=5 ;;
    handler) sleep 0.03; : > "$job.fixed.$TORC_RUN_ID.$TORC_ATTEMPT_ID" ;;
esac
case "$what" in
    step) say step_end $(($2 * 1000 + code)) ;;
    handler) say step_end 9000 ;;
    *) say end "$code" ;;
esac
rm -f "$live"
exit "$code"
"#;

/// The witness of jobs that hide. It gets all it must know by its arguments, because it may have no
/// environment. The one called `daemon` works in a process that has left its parents, its session
/// and its environment.
pub const HIDDEN_WITNESS: &str = r#"
use strict; use Fcntl qw(:DEFAULT :flock); use POSIX (); use IO::Handle; use Time::HiRes ();
my ($kind, $workflow, $job, $run, $attempt, $seconds, $done) = @ARGV;
if ($kind eq 'daemon' && !defined $done) {
    pipe my $read, my $write or die;
    my $child = fork;
    if (!$child) {
        POSIX::setsid();
        exit 0 if fork;
        open STDIN, '<', '/dev/null'; open STDOUT, '>', '/dev/null'; open STDERR, '>', '/dev/null';
        fcntl $write, F_SETFD, 0;
        %ENV = ();
        exec '/usr/bin/perl', 'hidden.pl', $kind, $workflow, $job, $run, $attempt, $seconds, fileno $write;
    }
    close $write;
    waitpid $child, 0;
    exit(sysread($read, my $word, 1) ? 0 : 137);
}
$0 = 'x' x 5000 if $kind eq 'title';
if ($kind eq 'nondumpable') { # prctl(PR_SET_DUMPABLE, 0)
    syscall((POSIX::uname())[4] eq 'aarch64' ? 167 : 157, 4, 0, 0, 0, 0);
}
mkdir $_ for 'witness', "witness/$workflow", 'live';
sub tell_it {
    my ($word, $code) = @_;
    sysopen my $log, "witness/$workflow/$job.log", O_WRONLY | O_APPEND | O_CREAT or die;
    syswrite $log, sprintf "%s %d %d %d %.0f %d\n", $word, $run, $attempt, $$, Time::HiRes::time() * 1e6, $code;
    $log->sync; close $log;
}
open my $lock, '>>', "witness/$workflow/$job.lock" or die;
flock $lock, LOCK_EX | LOCK_NB or tell_it('overlap', 0);
open my $stat, '<', '/proc/self/stat'; my $line = <$stat>; $line =~ s/.*\) //s;
# Killed alone, it would leave a shell that goes on by itself, or a code that says nothing.
my $may_be_killed = $kind =~ /^(bare|title|nondumpable|daemon)$/ ? 'k' : 'n';
my $live = "live/$$." . (split ' ', $line)[19] . ".$may_be_killed";
tell_it('start', 0);
open my $file, '>', $live; close $file;
STDOUT->autoflush(1);
print "half of it\n";
Time::HiRes::sleep($seconds);
print "all of it\n";
tell_it('end', 0);
unlink $live;
if (defined $done) { open my $leader, '>&=', $done; syswrite $leader, '1' }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_workflow() {
        let draw = |seed| PlannedWorkflow::draw(&mut PlanRng::new(seed), 1).spec;
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn every_kind_that_hides_has_its_turn() {
        let mut rng = PlanRng::new(1);
        let names: std::collections::BTreeSet<String> = (0..30)
            .flat_map(|number| PlannedWorkflow::draw(&mut rng, number).jobs)
            .map(|job| job.name)
            .collect();
        for (kind, _) in HIDDEN {
            assert!(names.contains(&format!("hidden_{kind}")), "{kind}: {names:?}");
        }
    }
}

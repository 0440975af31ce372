//! The workflows of a world, and what must become of their jobs whatever is killed.

use crate::plan::Rng;
use serde_json::{Value, json};

/// More tries than a world has kills: no budget may run out.
const MANY: u64 = 100_000;

/// What a job does and must come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its name.
    pub name: String,
    /// Those that must have succeeded before it starts.
    pub parents: Vec<String>,
    /// Its status in the end.
    pub status: &'static str,
    /// It fails with code 10 this often before it succeeds.
    pub flaky: u64,
}

/// A workflow to create.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The spec.
    pub spec: Value,
    /// What must come of it.
    pub jobs: Vec<Expected>,
}

impl Planned {
    /// A small graph with a bit of everything.
    pub fn draw(rng: &mut Rng, number: usize) -> Self {
        let mut jobs: Vec<(Expected, String, bool)> = Vec::new();
        let mut add = |name: String, what: &str, parents: Vec<String>, status, flaky, limited| {
            jobs.push((
                Expected { name, parents, status, flaky },
                format!("bash witness.sh {what}"),
                limited,
            ));
        };
        let seconds = |rng: &mut Rng| format!("0.{:03}", rng.below(350) + 10);
        for i in 0..6 {
            add(
                format!("first{i}"),
                &format!("work {}", seconds(rng)),
                vec![],
                "completed",
                0,
                false,
            );
        }
        for i in 0..5 {
            let parents =
                vec![format!("first{}", rng.below(3)), format!("first{}", 3 + rng.below(3))];
            add(
                format!("second{i}"),
                &format!("work {}", seconds(rng)),
                parents,
                "completed",
                0,
                false,
            );
        }
        for i in 0..2 {
            let times = 1 + rng.below(3);
            add(
                format!("flaky{i}"),
                &format!("flaky {times}"),
                vec!["first0".into()],
                "completed",
                times,
                false,
            );
        }
        for i in 0..3 {
            add(
                format!("limited{i}"),
                &format!("limited {}", seconds(rng)),
                vec![],
                "completed",
                0,
                true,
            );
        }
        add("broken".into(), "broken", vec![], "failed", 0, false);
        add("never".into(), "work 0.01", vec!["broken".into()], "canceled", 0, false);
        let all = (0..5)
            .map(|i| format!("second{i}"))
            .chain(["flaky0".into(), "flaky1".into()])
            .collect();
        add("last".into(), "work 0.05", all, "completed", 0, false);
        let spec = json!({
            "name": format!("world-{number}"),
            "failure_handlers": [{
                "name": "h",
                "rules": [
                    {"exit_codes": [10], "max_retries": MANY, "recovery_script": "bash witness.sh script"},
                    // Killed by the harness, the job itself or a part of it.
                    {"signals": [9], "exit_codes": [137], "max_retries": MANY},
                ],
            }],
            "actions": [
                {"trigger_type": "on_workflow_start", "action_type": "run_commands",
                 "commands": ["bash witness.sh action begin"]},
                {"trigger_type": "on_jobs_complete", "action_type": "run_commands", "job_name_regexes": ["^first"],
                 "commands": ["bash witness.sh action firsts"]},
            ],
            "jobs": jobs.iter().map(|(job, command, limited)| json!({
                "name": job.name,
                "command": command,
                "depends_on": job.parents,
                "failure_handler": "h",
                "max_lost_retries": MANY,
                "uses": if *limited { vec!["one"] } else { vec![] },
            })).collect::<Vec<_>>(),
        });
        Self { spec, jobs: jobs.into_iter().map(|(job, ..)| job).collect() }
    }
}

/// The witness: records its own start and end, and notices another attempt of its job or another
/// user of the limit that still lives. Its locks are held by everything it starts, so that
/// leftovers are noticed too.
pub const WITNESS: &str = r#"
what=$1
[ "$what" != action ] || { TORC_JOB_NAME="action_$2"; TORC_RUN_ID=1; TORC_ATTEMPT_ID=0; }
job="witness/$TORC_WORKFLOW_ID/$TORC_JOB_NAME"
mkdir -p "witness/$TORC_WORKFLOW_ID" live
say() {
    printf '%s %s %s %s %s %s\n' "$1" "$TORC_RUN_ID" "$TORC_ATTEMPT_ID" "$$" "${EPOCHREALTIME/[.,]/}" "${2-0}" |
        dd of="$job.log" oflag=append conv=notrunc,fsync status=none
}
# Status 1 is a lock that somebody has; anything else is a `flock` that was killed, as its shell will be in a moment.
is_taken() { flock -n "$1"; [ $? = 1 ]; }
exec 9>>"$job.lock"
if is_taken 9; then say overlap; fi
if [ "$what" = action ]; then
    sleep 0.03
    say action
    exit 0
fi
if [ "$what" = script ]; then
    say script_start
    sleep 0.03
    say script_end
    exit 0
fi
: > "live/$$"
if [ "$what" = limited ]; then
    exec 8>>witness/limit.lock
    if is_taken 8; then say limit; fi
fi
say start
code=0
case "$what" in
    work|limited) sleep "$2" ;;
    flaky) sleep 0.05; [ "$(grep -c '^end .* 10$' "$job.log")" -ge "$2" ] || code=10 ;;
    broken) code=3 ;;
esac
say end "$code"
rm -f "live/$$"
exit "$code"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_workflow() {
        let draw = |seed| Planned::draw(&mut Rng::new(seed), 1).spec;
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}

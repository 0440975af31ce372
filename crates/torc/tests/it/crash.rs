//! The process dies at every failpoint; afterwards the same command goes on, and nothing ran twice or was lost.

use crate::support::Test;
use std::collections::BTreeSet;

/// Jobs that record their own starts and ends, and notice an earlier attempt that is still alive.
const SPEC: &str = r#"
name: crash
failure_handlers:
  - name: h
    rules: [{exit_codes: [10], max_retries: 5, recovery_script: "echo \"$TORC_ATTEMPT_ID\" >> scripts"}]
jobs:
  - {name: flaky, command: "source witness.sh; [ -e failed_once ] || { touch failed_once; exit 10; }; done_now", failure_handler: h, max_lost_retries: 9}
  - {name: beside, command: "source witness.sh; done_now", max_lost_retries: 9}
  - {name: after, command: "source witness.sh; [ -e done_flaky ] && [ -e done_beside ] || echo early >> violations; done_now", depends_on: [flaky, beside], max_lost_retries: 9}
"#;

const WITNESS: &str = r#"
touch pids_$TORC_JOB_NAME
while read -r pid; do
    # A zombie has ended; whoever inherited it has not looked yet.
    state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
    case "$state" in ''|Z|X) ;; *) echo "$TORC_JOB_NAME overlaps, $pid is $state" >> violations ;; esac
done < pids_$TORC_JOB_NAME
echo $$ >> pids_$TORC_JOB_NAME
echo "start $TORC_JOB_NAME $TORC_RUN_ID $TORC_ATTEMPT_ID" >> witness
[ -e done_$TORC_JOB_NAME ] && echo "$TORC_JOB_NAME ran again after its success" >> again
done_now() { sleep 0.05; touch done_$TORC_JOB_NAME; }
"#;

#[test]
fn a_crash_at_any_point_loses_nothing_and_repeats_nothing() {
    // Those of the courier and of steps have tests of their own.
    let points = torc_failpoint::ALL.iter().filter(|name| !name.starts_with("courier") && !name.starts_with("steps"));
    let mut kills = 0;
    for point in points {
        for nth in [1, 4] {
            let test = Test::new().spec(SPEC).file("witness.sh", WITNESS);
            let place = format!("{point}:{nth}");
            let first = test.torc(["run", "workflow.yaml"]).env("TORC_FAILPOINT", &place).done();
            if first.code.is_none() {
                kills += 1;
                // Killed when all was done: the same call would begin a new workflow.
                if test.exists("done_after") && test.statuses().iter().all(|job| job.ends_with("completed")) {
                    continue;
                }
                let second = test.run();
                assert_eq!(second.code, Some(0), "{place}: {}{}", second.stdout, second.stderr);
            } else {
                assert_eq!(first.code, Some(0), "{place} was not reached: {}{}", first.stdout, first.stderr);
            }
            assert_eq!(test.statuses(), ["flaky completed", "beside completed", "after completed"], "{place}");
            assert!(!test.exists("violations"), "{place}: {}", test.read("violations"));
            let witness = test.read("witness");
            let starts: Vec<&str> = witness.lines().collect();
            let distinct: BTreeSet<&str> = starts.iter().copied().collect();
            assert_eq!(starts.len(), distinct.len(), "{place}: an attempt ran twice:\n{witness}");
        }
    }
    println!("{kills} kills, 0 violations");
    assert!(kills >= 20, "only {kills} of the failpoints were reached");
}

//! What runners of this database left on this host although they have ended: processes and control
//! groups. Processes are found by the mark that they cannot shed.

use super::Problem;
use crate::boot::identity;
use crate::store::runner_tag;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use torc_fence::procfs::{Process, ProcessTable};
use torc_fence::{groups, mark, procfs};
use torc_model::ids::RunnerId;

/// A process that hangs in the kernel is not waited for any longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// A runner that has just reported an end may not have reaped the process yet: what is gone after
/// this time is no problem.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The promise about processes.
const PROCESSES: &str = "nothing of an ended attempt runs";
/// The promise about control groups.
const GROUPS: &str = "control groups end with their runners";
/// How many promises are looked at.
pub const CHECKS: usize = 2;

/// What a database says about the processes of its runners on this host.
struct Known {
    /// By the tag of their processes.
    runners: HashMap<String, Runner>,
    /// The tag, by the number in the mark of their processes.
    tags: HashMap<u64, String>,
    /// Rows of the attempts that live on these runners, with the runner of each.
    attempts: HashMap<u64, RunnerId>,
}

#[derive(Clone, Copy)]
struct Runner {
    id: RunnerId,
    has_ended: bool,
    /// The database says that something of it runs, or cannot tell: actions for every worker are
    /// not written down one by one.
    has_work: bool,
}

/// To whom a process belongs that should not run any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum LeftProcess {
    /// Its runner has ended.
    Runner(RunnerId),
    /// Its runner lives and has nothing to do.
    IdleRunner(RunnerId),
    /// Its attempt has ended; its runner lives.
    Attempt(RunnerId, u64),
}

impl LeftProcess {
    /// Its end takes nothing away that the database still counts on.
    fn can_be_ended(self) -> bool {
        !matches!(self, Self::IdleRunner(_))
    }

    fn sentence(self, db: &Connection, pids: &str) -> rusqlite::Result<String> {
        Ok(match self {
            Self::Runner(id) => {
                format!("of runner {id}, which has ended, these processes live: {pids}")
            }
            Self::IdleRunner(id) => {
                format!("of runner {id}, which has nothing to do, these processes live: {pids}")
            }
            Self::Attempt(id, row) => {
                let attempt = db.query_row(
                    "SELECT a.attempt_id, j.id, j.name FROM attempt a JOIN job j ON j.id = a.job_id WHERE a.id = ?1",
                    [row.cast_signed()],
                    |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?)),
                );
                let who = match attempt.optional()? {
                    Some((number, job, name)) => format!("attempt {number} of job {job} ({name})"),
                    None => "an attempt that was deleted".to_owned(),
                };
                format!("of {who}, which has ended on runner {id}, these processes live: {pids}")
            }
        })
    }
}

impl Known {
    fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut known =
            Self { runners: HashMap::new(), tags: HashMap::new(), attempts: HashMap::new() };
        // A database that no server has opened has no runners.
        let database_id: Option<String> = db
            .query_row("SELECT value FROM meta WHERE key = 'database_id'", [], |row| row.get(0))
            .optional()?;
        let Some(database_id) = database_id else { return Ok(known) };
        let mut statement = db.prepare(
            "SELECT c.id, c.ended_ms IS NOT NULL, EXISTS (SELECT 1 FROM attempt a WHERE a.compute_node_id = c.id
                AND a.ended_ms IS NULL) OR EXISTS (SELECT 1 FROM workflow_action w WHERE w.executed_by = c.id
                AND w.state = 'claimed' OR w.workflow_id = c.workflow_id AND w.persistent)
             FROM compute_node c WHERE c.hostname = ?1 AND c.kind <> 'recovery'",
        )?;
        let rows = statement.query_map([identity::hostname()], |row| {
            let id = RunnerId(row.get(0)?);
            Ok(Runner { id, has_ended: row.get(1)?, has_work: row.get(2)? })
        })?;
        for runner in rows {
            let runner = runner?;
            let tag = runner_tag(&database_id, runner.id);
            known.tags.insert(mark::runner_number(&tag), tag.clone());
            known.runners.insert(tag, runner);
        }
        let mut statement = db.prepare(
            "SELECT id, compute_node_id FROM attempt WHERE ended_ms IS NULL AND compute_node_id IS NOT NULL",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, RunnerId(row.get(1)?))))?;
        for attempt in rows {
            let (id, runner): (i64, _) = attempt?;
            // As the mark of a process holds it.
            let id = u64::try_from(id).ok();
            known.attempts.extend(
                id.and_then(|id| mark::attempt_of(mark::process_number(Some(id), 0)))
                    .map(|id| (id, runner)),
            );
        }
        Ok(known)
    }

    /// The runner of a process, and its number there.
    fn of_process(&self, pid: i32) -> Option<(Runner, Option<u64>)> {
        let tagged = || {
            let tag = procfs::read_tag(pid)?;
            let (key, number) = tag.split_once('/')?;
            Some((*self.runners.get(key)?, number.parse().ok()))
        };
        match mark::read(pid) {
            Some(found) => {
                let runner = *self.runners.get(self.tags.get(&found.runner)?)?;
                // Where the second limit could not be set, the environment has the number.
                let number = found.process.or_else(|| tagged().and_then(|(_, number)| number));
                Some((runner, number))
            }
            None => tagged(),
        }
    }

    /// Whose the process is, if the database knows nothing of it any more.
    fn judge(&self, pid: i32) -> Option<LeftProcess> {
        let (runner, number) = self.of_process(pid)?;
        if runner.has_ended {
            return Some(LeftProcess::Runner(runner.id));
        }
        match number.and_then(mark::attempt_of) {
            Some(attempt) => (self.attempts.get(&attempt) != Some(&runner.id))
                .then_some(LeftProcess::Attempt(runner.id, attempt)),
            None => (!runner.has_work).then_some(LeftProcess::IdleRunner(runner.id)),
        }
    }
}

/// What is left here of runners and attempts that have ended.
pub fn look(db: &Connection) -> rusqlite::Result<Vec<Problem>> {
    // First the processes, then the database: an attempt is written down before its first process
    // starts, so what was seen and is not known has ended.
    let processes = living();
    let known = Known::load(db)?;
    if known.runners.is_empty() {
        return Ok(Vec::new());
    }
    let mut left: BTreeMap<LeftProcess, Vec<Process>> = BTreeMap::new();
    for process in processes {
        if let Some(leftover) = known.judge(process.pid) {
            left.entry(leftover).or_default().push(process);
        }
    }
    if !left.is_empty() {
        std::thread::sleep(LOOK_AGAIN);
        let still = |process: &Process| {
            procfs::find_process(process.pid)
                .is_some_and(|now| now.start == process.start && !now.is_zombie)
        };
        left.values_mut().for_each(|processes| processes.retain(still));
        left.retain(|_, processes| !processes.is_empty());
    }
    let mut problems = Vec::new();
    for (leftover, mut processes) in left {
        processes.sort_by_key(|process| process.pid);
        let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
        problems.push(Problem {
            promise: PROCESSES.into(),
            what: leftover.sentence(db, &pids.join(", "))?,
            can_repair: leftover.can_be_ended(),
        });
    }
    for found in groups::all() {
        let runner = known.runners.get(&found.key);
        if let Some(runner) = runner.filter(|runner| runner.has_ended) {
            let dir = found.dir.display();
            problems.push(Problem {
                promise: GROUPS.into(),
                what: format!("runner {} has ended, its control group is there: {dir}", runner.id),
                can_repair: true,
            });
        }
    }
    Ok(problems)
}

fn living() -> Vec<Process> {
    match ProcessTable::read() {
        Ok(table) => table.all().filter(|process| !process.is_zombie).copied().collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot read the process table");
            Vec::new()
        }
    }
}

/// Ends what is left of runners and attempts that have ended, and removes the groups of the
/// runners. The caller has the database for itself: nothing can be claimed meanwhile.
pub fn repair(db: &Connection, repaired: &mut Vec<String>) -> rusqlite::Result<()> {
    let problems = look(db)?;
    if problems.iter().all(|problem| !problem.can_repair) {
        return Ok(());
    }
    let known = Known::load(db)?;
    let ended = known.runners.iter().filter(|(_, runner)| runner.has_ended);
    let keys: Vec<&str> = ended.map(|(tag, _)| tag.as_str()).collect();
    torc_fence::end_runners(&keys, PATIENCE);
    let doomed = |process: &&Process| {
        known.judge(process.pid).is_some_and(|leftover| leftover.can_be_ended())
    };
    torc_fence::end(
        |table| table.all().filter(doomed).copied().collect(),
        Instant::now() + PATIENCE,
    );
    let left = look(db)?;
    let is_gone = |problem: &&Problem| !left.contains(problem);
    repaired.extend(
        problems.iter().filter(is_gone).map(|problem| format!("put right: {}", problem.what)),
    );
    Ok(())
}

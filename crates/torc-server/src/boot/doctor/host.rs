//! What runners of this database left on this host although they have ended: processes and control
//! groups. Processes are found by the mark that they cannot shed.

use super::Problem;
use crate::boot::identity;
use crate::store::runner_tag;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use torc_fence::procfs::Table;
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

/// The runners of a database that may have left something here.
struct Runners {
    /// By the tag of their processes.
    by_tag: HashMap<String, Runner>,
    /// By the number in the mark of their processes.
    by_mark: HashMap<u64, RunnerId>,
}

#[derive(Clone, Copy)]
struct Runner {
    id: RunnerId,
    has_ended: bool,
    /// The database says that something of it runs, or cannot tell: actions for every worker are
    /// not written down one by one.
    has_work: bool,
}

impl Runners {
    fn load(db: &Connection) -> rusqlite::Result<Self> {
        let (mut by_tag, mut by_mark) = (HashMap::new(), HashMap::new());
        // A database that no server has opened has no runners.
        let database_id: Option<String> = db
            .query_row("SELECT value FROM meta WHERE key = 'database_id'", [], |row| row.get(0))
            .optional()?;
        let Some(database_id) = database_id else { return Ok(Self { by_tag, by_mark }) };
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
            by_mark.insert(mark::runner_number(&tag), runner.id);
            by_tag.insert(tag, runner);
        }
        Ok(Self { by_tag, by_mark })
    }

    fn of_process(&self, pid: i32) -> Option<Runner> {
        let id = match mark::read(pid) {
            Some(found) => *self.by_mark.get(&found.runner)?,
            None => self.by_tag.get(procfs::read_tag(pid)?.split_once('/')?.0)?.id,
        };
        self.by_tag.values().find(|runner| runner.id == id).copied()
    }

    /// Processes that the database knows nothing of any more, with the start of each, by runner.
    fn leftovers(&self) -> BTreeMap<RunnerId, Vec<(i32, u64, Runner)>> {
        let mut found: BTreeMap<RunnerId, Vec<_>> = BTreeMap::new();
        let Ok(table) = Table::read() else { return found };
        for process in table.all().filter(|process| !process.is_zombie) {
            let of = self.of_process(process.pid);
            if let Some(runner) = of.filter(|runner| runner.has_ended || !runner.has_work) {
                found.entry(runner.id).or_default().push((process.pid, process.start, runner));
            }
        }
        found
    }
}

/// What is left here of runners and attempts that have ended.
pub fn look(db: &Connection) -> rusqlite::Result<Vec<Problem>> {
    let runners = Runners::load(db)?;
    if runners.by_tag.is_empty() {
        return Ok(Vec::new());
    }
    let mut problems = Vec::new();
    let mut left = runners.leftovers();
    if !left.is_empty() {
        std::thread::sleep(LOOK_AGAIN);
        let still = |(pid, start, _): &(i32, u64, Runner)| {
            procfs::find_process(*pid).is_some_and(|p| p.start == *start && !p.is_zombie)
        };
        left.values_mut().for_each(|processes| processes.retain(still));
        left.retain(|_, processes| !processes.is_empty());
    }
    for (id, mut processes) in left {
        processes.sort_by_key(|(pid, ..)| *pid);
        let pids: Vec<String> = processes.iter().map(|(pid, ..)| pid.to_string()).collect();
        let has_ended = processes.iter().any(|(.., runner)| runner.has_ended);
        let who = if has_ended { "which has ended" } else { "which has nothing to do" };
        problems.push(Problem {
            promise: PROCESSES.into(),
            what: format!("of runner {id}, {who}, these processes live: {}", pids.join(", ")),
            can_repair: has_ended,
        });
    }
    for found in groups::all() {
        let runner = runners.by_tag.get(&found.key);
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

/// Ends the processes and removes the groups of runners that have ended.
pub fn repair(db: &Connection, repaired: &mut Vec<String>) -> rusqlite::Result<()> {
    let problems = look(db)?;
    if problems.iter().all(|problem| !problem.can_repair) {
        return Ok(());
    }
    let runners = Runners::load(db)?;
    let ended = runners.by_tag.iter().filter(|(_, runner)| runner.has_ended);
    let keys: Vec<&str> = ended.map(|(tag, _)| tag.as_str()).collect();
    torc_fence::end_runners(&keys, PATIENCE);
    let left = look(db)?;
    let is_gone = |problem: &&Problem| !left.contains(problem);
    repaired.extend(
        problems.iter().filter(is_gone).map(|problem| format!("put right: {}", problem.what)),
    );
    Ok(())
}

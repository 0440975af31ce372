//! How long the jobs of an earlier workflow of the same name took: a new one begins with that
//! knowledge.

use super::journal;
use rusqlite::Connection;
use std::collections::HashMap;
use torc_engine::FamilyTime;
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;

/// Earlier workflows that are looked at for one that has run.
const LOOKED_AT: u32 = 3;

/// What is known of a plan's jobs before they have run.
#[derive(Default)]
pub struct History {
    jobs: HashMap<String, u32>,
    families: HashMap<String, Vec<u32>>,
}

impl History {
    /// From the newest earlier workflow of the same user with the same name and directory that has run. One read of
    /// its jobs' rows; nothing where there is none.
    pub fn read(
        db: &Connection,
        id: WorkflowId,
        name: &str,
        directory: Option<&str>,
    ) -> rusqlite::Result<Self> {
        let earlier = journal::workflows::earlier_with_times(db, id, name, directory, LOOKED_AT)?;
        let mut history = Self::default();
        let Some(earlier) = earlier else { return Ok(history) };
        for (name, ms, family) in journal::workflows::times(db, earlier)? {
            history.jobs.insert(name, ms);
            if let Some(family) = family {
                history.families.entry(family).or_default().push(ms);
            }
        }
        history.families.values_mut().for_each(|times| times.sort_unstable());
        Ok(history)
    }

    /// What the job of this name took.
    pub fn of_job(&self, name: &str) -> Option<u32> {
        self.jobs.get(name).copied()
    }

    /// What the families of a plan took: the median of their jobs.
    pub fn of_families(&self, plan: &Plan) -> Vec<FamilyTime> {
        let median = |name: &String| {
            let times = self.families.get(name)?;
            Some(FamilyTime { ms: *times.get(times.len() / 2)?, run: -1 })
        };
        plan.families.iter().map(|name| median(name).unwrap_or_default()).collect()
    }
}

/// Writes what families took.
pub fn write_families(
    db: &Connection,
    id: WorkflowId,
    families: &[FamilyTime],
) -> rusqlite::Result<()> {
    let known = families.iter().enumerate().filter(|(_, time)| time.ms > 0);
    journal::family_times(db, id, known.map(|(number, time)| (number as u32, *time)))?;
    Ok(())
}

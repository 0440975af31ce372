//! User data that jobs read, beside what it was when they were last opened.

use super::super::job_rows::{data_hash, produced_user_data};
use super::super::named::Said;
use super::super::writer::Failed;
use super::JobDefinitions;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet};
use torc_model::api::PlannedChange;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, Plan};

impl JobDefinitions {
    /// User data that people have changed since the jobs that read it were opened.
    pub(super) fn note_stored_data(
        &mut self,
        db: &Connection,
        id: WorkflowId,
    ) -> Result<(), Failed> {
        for (job, now, then) in stored_hashes(db, id)? {
            if then.as_deref() != Some(&now)
                && let Some(number) = self.by_id.get(&job)
            {
                self.note_data(*number);
            }
        }
        Ok(())
    }

    fn note_data(&mut self, number: u32) {
        let job = &mut self.list[number as usize];
        if !job.waits() {
            job.note(PlannedChange::UserData, None);
        }
    }

    /// The same for the values that the plan gives.
    pub(super) fn note_planned_data(
        &mut self,
        db: &Connection,
        plan: &Plan,
        said: &Said,
    ) -> Result<(), Failed> {
        let produced = produced_user_data(plan);
        let reads = |job: &Job| job.input_user_data.iter().any(|data| !produced[*data]);
        if !plan.jobs.iter().any(reads) {
            return Ok(());
        }
        let Some(workflow) = self.list.iter().find_map(|job| job.id) else { return Ok(()) };
        let mut statement = db.prepare_cached(
            "SELECT id, name, data FROM user_data WHERE workflow_id = (SELECT workflow_id FROM job WHERE id = ?1)",
        )?;
        let rows = statement.query_map([workflow.0], |row| {
            Ok((
                row.get::<_, String>(1)?,
                (row.get::<_, i64>(0)?, row.get::<_, Option<String>>(2)?),
            ))
        })?;
        let known: HashMap<String, (i64, Option<String>)> = rows.collect::<Result<_, _>>()?;
        let values: Vec<(i64, Option<String>)> = plan
            .user_data
            .iter()
            .enumerate()
            .map(|(at, data)| {
                let text = data.data.as_ref().map(ToString::to_string);
                match known.get(&data.name) {
                    Some((row, kept)) if said.keeps(&data.name, data.data.as_ref()) => {
                        (*row, kept.clone())
                    }
                    Some((row, _)) => (*row, text),
                    // Rows to come are the last.
                    None => (i64::MAX - plan.user_data.len() as i64 + at as i64, text),
                }
            })
            .collect();
        let mut hash = db.prepare_cached("SELECT input_hash FROM job WHERE id = ?1")?;
        for number in 0..self.list.len() {
            let (Some(at), Some(id)) = (self.list[number].plan, self.list[number].id) else {
                continue;
            };
            let job = &plan.jobs[at];
            if !reads(job) {
                continue;
            }
            let mut read: Vec<&(i64, Option<String>)> = job
                .input_user_data
                .iter()
                .filter(|data| !produced[**data])
                .map(|data| &values[*data])
                .collect();
            read.sort_by_key(|(row, _)| *row);
            let now = data_hash(read.into_iter().map(|(_, text)| text.clone()));
            let then: Option<String> = hash.query_row([id.0], |row| row.get(0))?;
            if now != then {
                self.note_data(number as u32);
            }
        }
        Ok(())
    }
}

/// Current and recorded hash of the user data that jobs read and no job writes.
pub fn stored_hashes(
    db: &Connection,
    id: WorkflowId,
) -> rusqlite::Result<Vec<(JobId, String, Option<String>)>> {
    let mut statement =
        db.prepare_cached("SELECT 1 FROM user_data WHERE workflow_id = ?1 LIMIT 1")?;
    if !statement.exists([id.0])? {
        return Ok(Vec::new());
    }
    let mut statement = db.prepare_cached(
        "SELECT i.item_id FROM job j JOIN job_item i ON i.job_id = j.id
         WHERE j.workflow_id = ?1 AND i.kind = 'output_user_data'",
    )?;
    let produced = statement.query_map([id.0], |row| row.get(0))?;
    let produced: HashSet<i64> = produced.collect::<Result<_, _>>()?;
    let mut statement = db.prepare_cached(
        "SELECT j.id, j.input_hash, u.id, u.data FROM job j JOIN job_item i ON i.job_id = j.id
         JOIN user_data u ON u.id = i.item_id
         WHERE j.workflow_id = ?1 AND i.kind = 'input_user_data' ORDER BY j.id, u.id",
    )?;
    let mut rows = statement.query([id.0])?;
    let mut all: Vec<(JobId, Vec<Option<String>>, Option<String>)> = Vec::new();
    while let Some(row) = rows.next()? {
        if produced.contains(&row.get(2)?) {
            continue;
        }
        let job = JobId(row.get(0)?);
        match all.last_mut().filter(|(last, ..)| *last == job) {
            Some((_, values, _)) => values.push(row.get(3)?),
            None => all.push((job, vec![row.get(3)?], row.get(1)?)),
        }
    }
    let hashed = |(job, values, then): (JobId, Vec<Option<String>>, Option<String>)| {
        Some((job, data_hash(values.into_iter())?, then))
    };
    Ok(all.into_iter().filter_map(hashed).collect())
}

//! User data that jobs read, beside what it was when they were last opened.

use super::super::facts::ItemKind;
use super::super::job_rows::{data_hash, produced_user_data};
use super::super::journal::files;
use super::super::lookups;
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
        id: WorkflowId,
        plan: &Plan,
        said: &Said,
    ) -> Result<(), Failed> {
        let produced = produced_user_data(plan);
        let reads = |job: &Job| job.input_user_data.iter().any(|data| !produced[*data]);
        if !plan.jobs.iter().any(reads) {
            return Ok(());
        }
        let known: HashMap<String, (i64, Option<String>)> = files::user_data(db, id)?
            .into_iter()
            .map(|(row, name, data)| (name, (row, data)))
            .collect();
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
            if now != lookups::input_hash(db, id)? {
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
    let data = files::user_data(db, id)?;
    if data.is_empty() {
        return Ok(Vec::new());
    }
    let mut produced: HashSet<i64> = HashSet::new();
    let mut read: Vec<(JobId, i64)> = Vec::new();
    files::each_item(db, id, |job, kind, item| match kind {
        ItemKind::InputData => read.push((job, item)),
        ItemKind::OutputData => _ = produced.insert(item),
        ItemKind::InputFile | ItemKind::OutputFile => {}
    })?;
    read.retain(|(_, item)| !produced.contains(item));
    read.sort_unstable();
    let values: HashMap<i64, &Option<String>> =
        data.iter().map(|(row, _, value)| (*row, value)).collect();
    let mut all = Vec::new();
    for of_job in read.chunk_by(|one, next| one.0 == next.0) {
        let job = of_job[0].0;
        let texts = of_job.iter().filter_map(|(_, item)| values.get(item).copied().cloned());
        if let Some(now) = data_hash(texts) {
            all.push((job, now, lookups::input_hash(db, job)?));
        }
    }
    Ok(all)
}

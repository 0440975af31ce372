//! What jobs depend on, read and write, as the plan says and as the rows say.

use super::super::facts::ItemKind;
use super::super::journal::{definitions, files};
use super::super::writer::Failed;
use super::JobDefinitions;
use super::stored::Stored;
use rusqlite::Connection;
use std::collections::HashMap;
use torc_model::api::PlannedChange;
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;

impl JobDefinitions {
    /// What the jobs read and write, beside what the rows say.
    pub(super) fn compare_items(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        plan: &Plan,
        stored: &Stored,
    ) -> Result<(), Failed> {
        let mut known: Vec<(u32, ItemKind, i64)> = Vec::new();
        files::each_item(db, id, |job, kind, item| {
            known.extend(self.by_id.get(&job).map(|number| (*number, kind, item)));
        })?;
        known.sort_unstable();
        // Few jobs have files and are not in the plan: those that jobs have added.
        let mut by_row: Option<HashMap<i64, u32>> = None;
        let (mut wanted, mut rest) = (Vec::new(), known.as_slice());
        for number in 0..self.list.len() {
            let count = rest.iter().take_while(|(of, ..)| *of as usize == number).count();
            let (known, others) = rest.split_at(count);
            rest = others;
            let Some(at) = self.list[number].plan else {
                let files = by_row.get_or_insert_with(|| stored.files_by_row());
                for (_, kind, row) in known {
                    let pair = files.get(row).map(|file| (number as u32, *file));
                    match kind {
                        ItemKind::InputFile => self.inputs.extend(pair),
                        ItemKind::OutputFile => self.outputs.extend(pair),
                        ItemKind::InputData | ItemKind::OutputData => {}
                    }
                }
                continue;
            };
            let job = &plan.jobs[at];
            let number = number as u32;
            self.inputs.extend(job.input_files.iter().map(|file| (number, *file as u32)));
            self.outputs.extend(job.output_files.iter().map(|file| (number, *file as u32)));
            stored.items(job, &mut wanted);
            let one = &mut self.list[number as usize];
            let before = || known.iter().map(|(_, kind, row)| (*kind, *row));
            if !before().eq(wanted.iter().copied()) {
                one.is_retied = true;
                let differs = |kind: ItemKind| {
                    let is_of = |(of, _): &(ItemKind, i64)| *of == kind;
                    !before().filter(is_of).eq(wanted.iter().copied().filter(is_of))
                };
                let change = if differs(ItemKind::InputFile) {
                    PlannedChange::InputFiles
                } else if differs(ItemKind::OutputFile) {
                    PlannedChange::OutputFiles
                } else {
                    PlannedChange::UserData
                };
                one.note(change, None);
            } else if stored.has_moved_files {
                let moved = |list: &[usize]| list.iter().any(|file| stored.files[*file].1);
                if moved(&job.input_files) {
                    one.note(PlannedChange::InputFiles, None);
                } else if moved(&job.output_files) {
                    one.note(PlannedChange::OutputFiles, None);
                }
            }
        }
        Ok(())
    }

    /// What the jobs depend on, beside what the rows say. A dependency that is new is a reason to run
    /// again; one that is gone is none.
    pub(super) fn compare_parents(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        plan: &Plan,
    ) -> Result<(), Failed> {
        for (number, mut before) in self.stored_parents(db, id)?.into_iter().enumerate() {
            let Some(at) = self.list[number].plan else {
                self.list[number].parents = before;
                continue;
            };
            let mut wanted: Vec<u32> =
                plan.jobs[at].depends_on.iter().map(|parent| *parent as u32).collect();
            // A map waits for what it found, and a job for what it added.
            let stays = |parent: &&u32| {
                let parent = &self.list[**parent as usize];
                parent.plan.is_none() && !parent.is(PlannedChange::Removed)
            };
            wanted.extend(before.iter().filter(stays));
            wanted.sort_unstable();
            wanted.dedup();
            before.sort_unstable();
            if wanted != before {
                let is_new = |parent: &&u32| {
                    let is_present = self.list[**parent as usize].id.is_some();
                    is_present && before.binary_search(parent).is_err()
                };
                let gained = wanted.iter().find(is_new).copied();
                let what = gained.map(|parent| plan.jobs[parent as usize].name.clone());
                let job = &mut self.list[number];
                job.is_retied = true;
                if what.is_some() {
                    job.note(PlannedChange::Dependencies, what);
                }
            }
            self.list[number].parents = wanted;
        }
        Ok(())
    }

    /// The parents of each job as the rows say, by number. Jobs that were taken out are left out.
    pub(super) fn stored_parents(
        &self,
        db: &Connection,
        id: WorkflowId,
    ) -> rusqlite::Result<Vec<Vec<u32>>> {
        let mut parents: Vec<Vec<u32>> = vec![Vec::new(); self.list.len()];
        definitions::each_parent(db, id, |job, parent| {
            if let (Some(job), Some(parent)) = (self.by_id.get(&job), self.by_id.get(&parent)) {
                parents[*job as usize].push(*parent);
            }
        })?;
        Ok(parents)
    }
}

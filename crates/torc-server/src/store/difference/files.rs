//! What the disk says about the files of a workflow, told of the jobs that read and write them.

use super::super::facts::{FileChange, FileFact, Uses};
use super::super::journal::{attempts, definitions};
use super::super::writer::Failed;
use super::JobDefinitions;
use rusqlite::Connection;
use torc_model::api::PlannedChange;
use torc_model::ids::{JobId, WorkflowId};
use torc_model::status::JobStatus;

impl JobDefinitions {
    /// Takes over which jobs use which files. The files are in the order of their rows.
    pub(super) fn use_files(&mut self, uses: &Uses, files: &[FileFact]) {
        let number = |(job, file): &(JobId, i64)| {
            let file = files.binary_search_by_key(file, |file| file.id).ok()?;
            Some((*self.by_id.get(job)?, file as u32))
        };
        self.inputs = uses.inputs.iter().filter_map(number).collect();
        self.outputs = uses.outputs.iter().filter_map(number).collect();
    }

    /// What has become of the files. Jobs that have not begun read them as they are.
    pub(super) fn note_files(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        files: &mut [FileFact],
    ) -> Result<(), Failed> {
        let mut written: Vec<Option<i64>> = vec![None; files.len()];
        if self.outputs.iter().any(|(_, file)| files[*file as usize].found.is_some()) {
            let mut ends: Vec<Option<i64>> = vec![None; self.list.len()];
            attempts::last_ends(db, id, |job, end| {
                if let Some(number) = self.by_id.get(&job) {
                    ends[*number as usize] = Some(end);
                }
            })?;
            for (job, file) in &self.outputs {
                let known = &mut written[*file as usize];
                *known = ends[*job as usize].max(*known);
            }
        }
        let changes: Vec<Option<FileChange>> =
            files.iter().zip(written).map(|(file, written)| file.change(written)).collect();
        for (file, change) in files.iter_mut().zip(&changes) {
            file.is_overwritten =
                *change == Some(FileChange::Readers(PlannedChange::InputOverwritten));
        }
        let inputs = std::mem::take(&mut self.inputs);
        for (job, file) in &inputs {
            let job = &mut self.list[*job as usize];
            if let Some(FileChange::Readers(change)) = changes[*file as usize]
                && (job.status == JobStatus::Completed || job.status.is_held())
            {
                job.note(change, Some(files[*file as usize].path.clone()));
            }
        }
        self.inputs = inputs;
        for (job, file) in &self.outputs {
            let job = &mut self.list[*job as usize];
            if changes[*file as usize] == Some(FileChange::Writers)
                && job.status == JobStatus::Completed
            {
                job.note(PlannedChange::OutputMissing, Some(files[*file as usize].path.clone()));
            }
        }
        let is_script = |file: &&FileFact| file.is_source && !file.is_input;
        let scripts: Vec<&str> = files
            .iter()
            .zip(&changes)
            .filter(|(file, change)| is_script(file) && change.is_some())
            .map(|(file, _)| file.path.as_str())
            .collect();
        self.note_scripts(db, id, &scripts)
    }

    /// Declared files that no job reads or writes by name, but which a command may name.
    fn note_scripts(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        changed: &[&str],
    ) -> Result<(), Failed> {
        if changed.is_empty() {
            return Ok(());
        }
        definitions::each_definition(db, id, |row| {
            let Some(number) = self.by_id.get(&row.id) else { return Ok(()) };
            let job = &mut self.list[*number as usize];
            if !(job.status == JobStatus::Completed || job.status.is_held()) {
                return Ok(());
            }
            for command in [row.command, row.invocation_script, row.steps].into_iter().flatten() {
                if let Some(path) = changed.iter().find(|path| names_file(command, path)) {
                    job.note(PlannedChange::Script, Some((*path).to_owned()));
                }
            }
            Ok(())
        })
    }

    /// Accepts what is there in place of running the jobs that the spec or their inputs changed.
    pub(super) fn accept(&mut self, files: &[FileFact]) {
        let mut is_missing = vec![false; self.list.len()];
        let mut has_outputs = vec![false; self.list.len()];
        for (job, file) in &self.outputs {
            has_outputs[*job as usize] = true;
            is_missing[*job as usize] |= files[*file as usize].found.is_none();
        }
        for (number, job) in self.list.iter_mut().enumerate() {
            use torc_model::api::ChangeGroup as G;
            let may = match job.change.as_ref().map(|(change, _)| change.group()) {
                // It was never opened: the workflow was made for this.
                None => job.status == JobStatus::Uninitialized && has_outputs[number],
                Some(G::New) => has_outputs[number],
                Some(G::Changed | G::Inputs) => job.status == JobStatus::Completed,
                Some(G::Outputs | G::Ended | G::Asked | G::Upstream | G::Accepted | G::Removed) => {
                    false
                }
            };
            if may && !is_missing[number] {
                job.change = Some((PlannedChange::Accepted, None));
            }
        }
    }
}

/// A command names a file: as a word of its own, or after `./` or quotes.
fn names_file(command: &str, path: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    command.match_indices(path).any(|(at, _)| {
        let before = command[..at].strip_suffix("./").unwrap_or(&command[..at]);
        let after = &command[at + path.len()..];
        !before.chars().next_back().is_some_and(is_part)
            && !after.chars().next().is_some_and(is_part)
    })
}

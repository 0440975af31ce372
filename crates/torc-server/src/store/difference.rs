//! What applying a spec would do to each job of a workflow, and why. This only reads: a dry run and
//! the real thing get the same answer, because they ask here.
//!
//! Jobs and everything they refer to are told by their names. A job is up to date when it has
//! succeeded as the spec says now, from files that are as they were, and what it wrote is there.

use super::facts::{self, FileChange, FileFact, Uses};
use super::job_rows::{data_hash, produced_user_data};
use super::load::parse;
use super::map;
use super::named::Said;
use super::persist::json;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use torc_model::api::{ApplyOptions, PlanCounts, PlannedChange, PlannedJob};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, JobExtra, Plan, Requirements, Settings};
use torc_model::status::{Afterwards, JobStatus, StatusReason};
use torc_model::steps::{Role, Source};
use torc_model::units::Runtime;

/// A job of the workflow, of the spec, or of both.
pub struct OneJob {
    /// Its row; none: it is new.
    pub id: Option<JobId>,
    /// Its index in the plan.
    pub plan: Option<usize>,
    /// Where it stands.
    pub status: JobStatus,
    /// An earlier revision took it out.
    was_removed: bool,
    /// What is new about it, and what that is about.
    pub change: Option<(PlannedChange, Option<String>)>,
    /// Its row must be written again.
    pub is_rewritten: bool,
    /// What it depends on, reads or writes is not what the rows say.
    pub is_retied: bool,
    /// What it depends on, by number.
    pub parents: Vec<u32>,
    /// The map that it is an item of, by number.
    map: Option<u32>,
}

impl OneJob {
    /// It has not begun: it runs by itself, as the newest revision says.
    pub fn waits(&self) -> bool {
        matches!(self.status, JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready)
    }

    /// It is to run because of its change.
    pub fn runs(&self) -> bool {
        self.change.as_ref().is_some_and(|(change, _)| change.runs())
    }

    /// The workflow has no such job, or no longer.
    pub fn is_new(&self) -> bool {
        self.id.is_none() || self.was_removed
    }

    fn is(&self, change: PlannedChange) -> bool {
        self.change.as_ref().is_some_and(|(known, _)| *known == change)
    }

    /// The first reason stays.
    fn note(&mut self, change: PlannedChange, what: Option<String>) {
        self.change.get_or_insert((change, what));
    }
}

/// What applying a spec does.
pub struct Difference {
    /// The jobs: those of the plan in its order, then those that the plan does not have.
    pub jobs: Vec<OneJob>,
    /// How many are what.
    pub counts: PlanCounts,
    /// Every job is final now.
    pub is_complete: bool,
    /// The files, with their rows and what was found.
    pub files: Vec<FileFact>,
}

/// Where a workflow stands before a spec is applied.
pub struct Head {
    /// The spec it has.
    pub spec: String,
    /// Its settings.
    pub settings: Settings,
    /// Its revision.
    pub revision: i64,
    /// Its run.
    pub run: i64,
}

impl Head {
    /// Reads it.
    pub fn read(db: &Connection, id: WorkflowId) -> Result<Self, Failed> {
        db.prepare_cached("SELECT spec, settings, revision, run_id FROM workflow WHERE id = ?1")?
            .query_row([id.0], |row| {
                let settings: String = row.get(1)?;
                Ok(Self {
                    spec: row.get(0)?,
                    settings: parse(&settings)?,
                    revision: row.get(2)?,
                    run: row.get(3)?,
                })
            })
            .optional()?
            .ok_or_else(|| Refusal::not_found("workflow", id.0).into())
    }
}

/// A spec that is to be applied.
pub enum Wanted<'a> {
    /// The one that the workflow has, with the uses of its files.
    Same(&'a Uses),
    /// Another one.
    Other(&'a mut Plan),
}

impl Difference {
    /// Compares the workflow with what is wanted.
    pub fn find(
        tx: &mut Tx<'_>,
        id: WorkflowId,
        head: &Head,
        wanted: Wanted<'_>,
        mut files: Vec<FileFact>,
        how: &ApplyOptions,
    ) -> Result<Self, Failed> {
        let next_job = tx.state.next_job;
        let mut jobs = match wanted {
            Wanted::Same(uses) => {
                let mut jobs = Jobs::stored(tx.db, id)?;
                let rows: HashMap<i64, u32> =
                    files.iter().enumerate().map(|(at, file)| (file.id, at as u32)).collect();
                jobs.use_files(uses, &rows);
                jobs.note_files(tx.db, id, &mut files)?;
                jobs.note_stored_data(tx.db, id)?;
                jobs
            }
            Wanted::Other(plan) => {
                facts::find_rows(tx.db, id, &mut files)?;
                let mut jobs = Jobs::planned(tx, id, head, plan, &files, next_job)?;
                jobs.note_files(tx.db, id, &mut files)?;
                jobs.note_planned_data(tx.db, plan, &Said::new(&head.spec))?;
                jobs
            }
        };
        jobs.note_asked(tx.db, &how.rerun)?;
        let is_complete = jobs.list.iter().all(|job| job.id.is_none() || job.status.is_final());
        if how.failed && is_complete && head.run > 0 {
            for job in jobs.list.iter_mut().filter(|job| job.status.is_bad_end()) {
                job.note(PlannedChange::Ended, Some(job.status.to_string()));
            }
        }
        if how.touch {
            jobs.accept(&files);
        }
        jobs.follow(tx.db, id)?;
        let counts = jobs.count();
        Ok(Self { jobs: jobs.list, counts, is_complete, files })
    }

    /// The jobs that something is new about, for people.
    pub fn view(&self, tx: &Tx<'_>, plan: Option<&Plan>) -> rusqlite::Result<Vec<PlannedJob>> {
        let mut names = Names { db: tx.db, plan };
        let mut view = Vec::new();
        for job in &self.jobs {
            let Some((change, what)) = &job.change else { continue };
            view.push(PlannedJob {
                job_id: job.id,
                name: names.of(job)?,
                status: job.status,
                change: *change,
                what: what.clone(),
                reason: change.sentence(what.as_deref()),
            });
        }
        Ok(view)
    }
}

/// Names of jobs: the plan's, or those of the rows.
struct Names<'a> {
    db: &'a Connection,
    plan: Option<&'a Plan>,
}

impl Names<'_> {
    fn of(&mut self, job: &OneJob) -> rusqlite::Result<String> {
        if let (Some(plan), Some(at)) = (self.plan, job.plan) {
            return Ok(plan.jobs[at].name.clone());
        }
        let id = job.id.map_or(0, |id| id.0);
        self.db
            .prepare_cached("SELECT name FROM job WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
    }
}

/// The comparison under way.
#[derive(Default)]
struct Jobs {
    list: Vec<OneJob>,
    /// Numbers by row.
    by_id: HashMap<JobId, u32>,
    /// A job and a file that it reads, both by number.
    inputs: Vec<(u32, u32)>,
    /// A job and a file that it writes.
    outputs: Vec<(u32, u32)>,
    /// Names of the plan's jobs, for reasons; the rows tell the others.
    names: HashMap<u32, String>,
}

fn status(code: i64) -> JobStatus {
    JobStatus::from_code(code).unwrap_or(JobStatus::Uninitialized)
}

fn text<'a>(row: &'a Row<'_>, at: usize) -> rusqlite::Result<Option<&'a str>> {
    match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        value => Ok(Some(value.as_str()?)),
    }
}

fn was_removed(row: &Row<'_>, reason: usize, afterwards: usize) -> rusqlite::Result<bool> {
    Ok(text(row, reason)? == Some(StatusReason::Removed.as_str())
        || text(row, afterwards)? == Some(Afterwards::Remove.as_str()))
}

impl Jobs {
    /// The jobs as they are: the spec is the one that the workflow has.
    fn stored(db: &Connection, id: WorkflowId) -> rusqlite::Result<Self> {
        let mut jobs = Self::default();
        let mut statement = db.prepare_cached(
            "SELECT id, status, status_reason, afterwards FROM job WHERE workflow_id = ?1 ORDER BY id",
        )?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            if was_removed(row, 2, 3)? {
                continue;
            }
            jobs.push_stored(JobId(row.get(0)?), status(row.get(1)?));
        }
        Ok(jobs)
    }

    fn push_stored(&mut self, id: JobId, status: JobStatus) -> &mut OneJob {
        self.by_id.insert(id, self.list.len() as u32);
        self.list.push(OneJob {
            id: Some(id),
            plan: None,
            status,
            was_removed: false,
            change: None,
            is_rewritten: false,
            is_retied: false,
            parents: Vec::new(),
            map: None,
        });
        self.list.last_mut().expect("it was pushed")
    }

    fn use_files(&mut self, uses: &Uses, rows: &HashMap<i64, u32>) {
        let number = |(job, file): &(JobId, i64)| Some((*self.by_id.get(job)?, *rows.get(file)?));
        self.inputs = uses.inputs.iter().filter_map(number).collect();
        self.outputs = uses.outputs.iter().filter_map(number).collect();
    }

    /// The jobs of a plan beside those of the workflow.
    fn planned(
        tx: &Tx<'_>,
        id: WorkflowId,
        head: &Head,
        plan: &mut Plan,
        files: &[FileFact],
        next_job: i64,
    ) -> Result<Self, Failed> {
        let db = tx.db;
        let mut jobs = Self::default();
        for (at, _) in plan.jobs.iter().enumerate() {
            jobs.list.push(OneJob {
                id: None,
                plan: Some(at),
                status: JobStatus::Uninitialized,
                was_removed: false,
                change: None,
                is_rewritten: false,
                is_retied: false,
                parents: Vec::new(),
                map: None,
            });
        }
        jobs.find_rows(db, id, plan)?;
        // The limit that a map sets on its items is named after the map's row.
        let mut next = next_job - 1;
        let numbers: Vec<JobId> = jobs
            .list
            .iter()
            .map(|job| {
                next += i64::from(job.id.is_none());
                job.id.unwrap_or(JobId(next))
            })
            .collect();
        map::set_limits(&mut plan.jobs, |at| numbers[at]);
        let stored = Stored::read(db, id, head, plan, files)?;
        jobs.compare_rows(tx, id, plan, &stored)?;
        jobs.note_map_changes(plan);
        jobs.compare_items(db, id, plan, &stored)?;
        jobs.compare_parents(db, id, plan)?;
        for job in &mut jobs.list {
            if let (None, Some(at)) = (job.id, job.plan) {
                jobs.names.insert(at as u32, plan.jobs[at].name.clone());
            }
            if job.is_new() {
                job.change = Some((PlannedChange::New, None));
                (job.is_rewritten, job.is_retied) = (true, true);
            }
        }
        Ok(jobs)
    }

    /// Finds the rows of the plan's jobs by their names, and what else the workflow has.
    fn find_rows(&mut self, db: &Connection, id: WorkflowId, plan: &Plan) -> Result<(), Failed> {
        let names: HashMap<&str, usize> =
            plan.jobs.iter().enumerate().map(|(at, job)| (job.name.as_str(), at)).collect();
        let is_map = |name: &str| {
            let map = names.get(name).and_then(|at| map::role_of(&plan.jobs[*at].extra));
            matches!(map, Some(Role::Map(settings)) if !matches!(settings.items, Source::List(_)))
        };
        let mut statement = db.prepare_cached(
            "SELECT id, name, status, status_reason, afterwards, added_by,
                    iif(extra ->> 'map' IS NULL, NULL, extra) FROM job WHERE workflow_id = ?1 ORDER BY id",
        )?;
        let mut rows = statement.query([id.0])?;
        let mut gone: HashSet<JobId> = HashSet::new();
        while let Some(row) = rows.next()? {
            let job = JobId(row.get(0)?);
            let was_removed = was_removed(row, 3, 4)?;
            if let Some(at) = names.get(row.get_ref(1)?.as_str()?) {
                let known = &mut self.list[*at];
                known.id = Some(job);
                known.status = status(row.get(2)?);
                known.was_removed = was_removed;
                self.by_id.insert(job, *at as u32);
                continue;
            }
            if was_removed {
                continue;
            }
            // What a job added stays as long as that job does; what a map found belongs to the map.
            let added_by: Option<i64> = row.get(5)?;
            let role = text(row, 6)?.map(parse::<JobExtra>).transpose()?;
            let of = match role.as_ref().and_then(map::role_of) {
                Some(Role::Item { of, .. }) if is_map(&of) => names.get(of.as_str()).copied(),
                _ => None,
            };
            let status = status(row.get(2)?);
            let stays = of.is_some() || added_by.is_some_and(|by| !gone.contains(&JobId(by)));
            let pushed = self.push_stored(job, status);
            pushed.map = of.map(|of| of as u32);
            if !stays {
                pushed.change = Some((PlannedChange::Removed, None));
                gone.insert(job);
            }
        }
        Ok(())
    }

    fn compare_rows(
        &mut self,
        tx: &Tx<'_>,
        id: WorkflowId,
        plan: &Plan,
        stored: &Stored,
    ) -> Result<(), Failed> {
        let mut statement = tx.db.prepare_cached(
            "SELECT id, command, invocation_script, steps, extra, resource_requirements_id, failure_handler_id,
                    scheduler_id, cancel_on_blocking_job_failure, priority, family
             FROM job WHERE workflow_id = ?1 ORDER BY id",
        )?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            let Some(number) = self.by_id.get(&JobId(row.get(0)?)) else { continue };
            let Some(at) = self.list[*number as usize].plan else { continue };
            let (change, is_rewritten) = stored.compare(tx, row, plan, &plan.jobs[at])?;
            let job = &mut self.list[*number as usize];
            job.is_rewritten = is_rewritten;
            if let Some(change) = change {
                job.note(change, None);
            }
        }
        Ok(())
    }

    /// What an item does is written in its map.
    fn note_map_changes(&mut self, plan: &Plan) {
        let mut changed: HashMap<&str, PlannedChange> = HashMap::new();
        for job in &self.list {
            let (Some(at), Some((change, _))) = (job.plan, &job.change) else { continue };
            if matches!(map::role_of(&plan.jobs[at].extra), Some(Role::Map(_))) {
                changed.insert(&plan.jobs[at].name, *change);
            }
        }
        if changed.is_empty() {
            return;
        }
        for index in 0..self.list.len() {
            let job = &self.list[index];
            let change = match (job.plan, job.map) {
                (Some(at), _) => match map::role_of(&plan.jobs[at].extra) {
                    Some(Role::Item { of, .. }) => changed.get(of.as_str()).copied(),
                    Some(Role::Map(_) | Role::Reduce(_)) | None => None,
                },
                (None, Some(map)) => self.list[map as usize].change.as_ref().map(|(c, _)| *c),
                (None, None) => None,
            };
            if let Some(change) = change {
                self.list[index].note(change, None);
            }
        }
    }

    /// What the jobs read and write, beside what the rows say.
    fn compare_items(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        plan: &Plan,
        stored: &Stored,
    ) -> Result<(), Failed> {
        let files: HashMap<i64, u32> = stored
            .files
            .iter()
            .enumerate()
            .filter(|(_, (row, _))| *row != 0)
            .map(|(at, (row, _))| (*row, at as u32))
            .collect();
        let mut known: Vec<Vec<(Kind, i64)>> = Vec::new();
        known.resize_with(self.list.len(), Vec::new);
        let mut statement = db.prepare_cached(
            "SELECT i.job_id, i.kind, i.item_id FROM job j JOIN job_item i ON i.job_id = j.id
             WHERE j.workflow_id = ?1",
        )?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            let Some(number) = self.by_id.get(&JobId(row.get(0)?)) else { continue };
            let kind = Kind::of(row.get_ref(1)?.as_str()?);
            known[*number as usize].push((kind, row.get(2)?));
        }
        for (number, mut known) in known.into_iter().enumerate() {
            let Some(at) = self.list[number].plan else {
                for (kind, row) in known {
                    let pair = files.get(&row).map(|file| (number as u32, *file));
                    match kind {
                        Kind::InputFile => self.inputs.extend(pair),
                        Kind::OutputFile => self.outputs.extend(pair),
                        Kind::InputData | Kind::OutputData => {}
                    }
                }
                continue;
            };
            let job = &plan.jobs[at];
            let number = number as u32;
            self.inputs.extend(job.input_files.iter().map(|file| (number, *file as u32)));
            self.outputs.extend(job.output_files.iter().map(|file| (number, *file as u32)));
            let mut wanted = stored.items(job);
            wanted.sort_unstable();
            wanted.dedup();
            known.sort_unstable();
            let one = &mut self.list[number as usize];
            if wanted != known {
                one.is_retied = true;
                let differs = |kind: Kind| {
                    let of = |list: &[(Kind, i64)]| -> Vec<i64> {
                        list.iter().filter(|(k, _)| *k == kind).map(|(_, row)| *row).collect()
                    };
                    of(&wanted) != of(&known)
                };
                let change = if differs(Kind::InputFile) {
                    PlannedChange::InputFiles
                } else if differs(Kind::OutputFile) {
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
    fn compare_parents(
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
    fn stored_parents(&self, db: &Connection, id: WorkflowId) -> rusqlite::Result<Vec<Vec<u32>>> {
        let mut parents: Vec<Vec<u32>> = vec![Vec::new(); self.list.len()];
        let mut statement = db.prepare_cached(
            "SELECT job_id, depends_on_job_id FROM job_depends_on WHERE workflow_id = ?1",
        )?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            let (job, parent) = (JobId(row.get(0)?), JobId(row.get(1)?));
            if let (Some(job), Some(parent)) = (self.by_id.get(&job), self.by_id.get(&parent)) {
                parents[*job as usize].push(*parent);
            }
        }
        Ok(parents)
    }

    /// What has become of the files. Jobs that have not begun read them as they are.
    fn note_files(
        &mut self,
        db: &Connection,
        id: WorkflowId,
        files: &mut [FileFact],
    ) -> Result<(), Failed> {
        let mut written: Vec<Option<i64>> = vec![None; files.len()];
        if self.outputs.iter().any(|(_, file)| files[*file as usize].found.is_some()) {
            let ends = facts::last_successes(db, id)?;
            for (job, file) in &self.outputs {
                let end = self.list[*job as usize].id.and_then(|id| ends.get(&id).copied());
                let known = &mut written[*file as usize];
                *known = end.max(*known);
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
        let mut statement = db.prepare_cached(
            "SELECT id, command, invocation_script, steps FROM job WHERE workflow_id = ?1",
        )?;
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            let Some(number) = self.by_id.get(&JobId(row.get(0)?)) else { continue };
            let job = &mut self.list[*number as usize];
            if !(job.status == JobStatus::Completed || job.status.is_held()) {
                continue;
            }
            for at in 1..4 {
                let Some(command) = text(row, at)? else { continue };
                if let Some(path) = changed.iter().find(|path| names_file(command, path)) {
                    job.note(PlannedChange::Script, Some((*path).to_owned()));
                }
            }
        }
        Ok(())
    }

    /// User data that people have changed since the jobs that read it were opened.
    fn note_stored_data(&mut self, db: &Connection, id: WorkflowId) -> Result<(), Failed> {
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
    fn note_planned_data(
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

    /// The jobs that the user names, by name or by regular expression.
    fn note_asked(&mut self, db: &Connection, asked: &[String]) -> Result<(), Failed> {
        if asked.is_empty() {
            return Ok(());
        }
        let mut names = Vec::with_capacity(self.list.len());
        let mut find = db.prepare_cached("SELECT name FROM job WHERE id = ?1")?;
        for job in &self.list {
            let name: Option<String> = match job.id {
                Some(id) => Some(find.query_row([id.0], |row| row.get(0))?),
                None => None,
            };
            names.push(name);
        }
        for pattern in asked {
            let is_exact = names.iter().flatten().any(|name| name == pattern);
            let regex = match is_exact || pattern == "all" {
                true => None,
                false => Some(
                    regex::Regex::new(&format!("^(?:{pattern})$"))
                        .map_err(|error| Refusal::invalid("rerun", error.to_string()))?,
                ),
            };
            let is_asked = |name: &str| match &regex {
                Some(regex) => regex.is_match(name),
                None => pattern == "all" && !is_exact || name == pattern,
            };
            let mut found = false;
            for (job, name) in self.list.iter_mut().zip(&names) {
                let Some(name) = name.as_deref().filter(|name| is_asked(name)) else { continue };
                found = true;
                let is_off = job.status == JobStatus::Disabled && name != pattern;
                if !job.waits() && !is_off {
                    job.note(PlannedChange::Asked, None);
                }
            }
            if !found {
                let message = format!("no job is called `{pattern}`, and none matches it");
                return Err(Refusal::invalid("rerun", message)
                    .hint("give the name of a job, a regular expression, or `all`")
                    .into());
            }
        }
        Ok(())
    }

    /// Accepts what is there in place of running the jobs that the spec or their inputs changed.
    fn accept(&mut self, files: &[FileFact]) {
        let mut is_missing = vec![false; self.list.len()];
        let mut has_outputs = vec![false; self.list.len()];
        for (job, file) in &self.outputs {
            has_outputs[*job as usize] = true;
            is_missing[*job as usize] |= files[*file as usize].found.is_none();
        }
        for (number, job) in self.list.iter_mut().enumerate() {
            let Some((change, _)) = job.change else { continue };
            use torc_model::api::ChangeGroup as G;
            let may = match change.group() {
                G::New => has_outputs[number],
                G::Changed | G::Inputs => job.status == JobStatus::Completed,
                G::Outputs | G::Ended | G::Asked | G::Upstream | G::Accepted | G::Removed => false,
            };
            if may && !is_missing[number] {
                job.change = Some((PlannedChange::Accepted, None));
            }
        }
    }

    /// What depends on a job that runs again runs again.
    fn follow(&mut self, db: &Connection, id: WorkflowId) -> Result<(), Failed> {
        if !self.list.iter().any(OneJob::runs) {
            return Ok(());
        }
        if self.list.iter().all(|job| job.plan.is_none()) {
            let parents = self.stored_parents(db, id)?;
            self.list.iter_mut().zip(parents).for_each(|(job, parents)| job.parents = parents);
        }
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.list.len()];
        for (number, job) in self.list.iter().enumerate() {
            job.parents.iter().for_each(|parent| children[*parent as usize].push(number as u32));
        }
        let mut items: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, job) in self.list.iter().enumerate() {
            if let Some(map) = job.map {
                items.entry(map).or_default().push(number as u32);
            }
        }
        let mut seen: Vec<bool> = self.list.iter().map(OneJob::runs).collect();
        let mut open: VecDeque<u32> =
            (0..self.list.len() as u32).filter(|number| seen[*number as usize]).collect();
        while let Some(parent) = open.pop_front() {
            // A map is what its items are: it cannot end otherwise as long as they do not.
            for item in items.get(&parent).into_iter().flatten() {
                let item = &mut self.list[*item as usize];
                if item.status.is_bad_end() {
                    item.note(PlannedChange::Ended, Some(item.status.to_string()));
                }
            }
            // Each job is opened once, so that its list is not needed again.
            for child in std::mem::take(&mut children[parent as usize]) {
                let job = &self.list[child as usize];
                let is_off = job.status == JobStatus::Disabled && !job.was_removed;
                if seen[child as usize] || is_off || job.is(PlannedChange::Removed) {
                    continue;
                }
                seen[child as usize] = true;
                open.push_back(child);
                if !job.waits() || job.id.is_none() {
                    let name = self.name(db, parent)?;
                    self.list[child as usize].change = Some((PlannedChange::Upstream, Some(name)));
                }
            }
        }
        Ok(())
    }

    fn name(&mut self, db: &Connection, number: u32) -> rusqlite::Result<String> {
        if let Some(name) = self.names.get(&number) {
            return Ok(name.clone());
        }
        let name: String = match self.list[number as usize].id {
            Some(id) => db
                .prepare_cached("SELECT name FROM job WHERE id = ?1")?
                .query_row([id.0], |row| row.get(0))?,
            // Every new job's name is known from the plan.
            None => String::new(),
        };
        self.names.insert(number, name.clone());
        Ok(name)
    }

    fn count(&self) -> PlanCounts {
        let mut counts = PlanCounts::default();
        for job in &self.list {
            match &job.change {
                Some((change, _)) => {
                    counts.total += i64::from(*change != PlannedChange::Removed);
                    counts.add(*change);
                    continue;
                }
                None => counts.total += 1,
            }
            let place = match job.status {
                JobStatus::Completed => &mut counts.up_to_date,
                JobStatus::Disabled => &mut counts.disabled,
                JobStatus::Failed | JobStatus::Canceled | JobStatus::Terminated => &mut counts.left,
                JobStatus::Uninitialized
                | JobStatus::Blocked
                | JobStatus::Ready
                | JobStatus::Pending
                | JobStatus::Running
                | JobStatus::PendingFailed => &mut counts.unfinished,
            };
            *place += 1;
        }
        counts
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

/// What a job uses an item for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    InputFile,
    OutputFile,
    InputData,
    OutputData,
}

impl Kind {
    fn of(word: &str) -> Self {
        match word {
            "input_file" => Self::InputFile,
            "output_file" => Self::OutputFile,
            "input_user_data" => Self::InputData,
            _ => Self::OutputData,
        }
    }
}

/// What the rows of a workflow say beside those of its jobs, by name and by row.
struct Stored {
    requirements: HashMap<i64, Requirements>,
    handlers: HashMap<i64, String>,
    schedulers: HashMap<i64, String>,
    families: HashMap<u32, String>,
    /// The row of each file of the plan, 0 if it has none, and whether it is at another place now.
    files: Vec<(i64, bool)>,
    has_moved_files: bool,
    /// The row of each piece of user data of the plan.
    user_data: Vec<i64>,
    common_env: BTreeMap<String, String>,
    other_env: bool,
    other_shell: bool,
    /// Settings that the engine keeps with each job are others.
    other_settings: bool,
}

impl Stored {
    fn read(
        db: &Connection,
        id: WorkflowId,
        head: &Head,
        plan: &Plan,
        files: &[FileFact],
    ) -> Result<Self, Failed> {
        let mut statement = db.prepare_cached(
            "SELECT id, name, num_cpus, num_gpus, num_nodes, memory_bytes, runtime_seconds
             FROM resource_requirements WHERE workflow_id = ?1",
        )?;
        let rows = statement.query_map([id.0], |row| {
            let size = |at| -> rusqlite::Result<Option<u64>> {
                Ok(row.get::<_, Option<i64>>(at)?.map(|v| v as u64))
            };
            let requirements = Requirements {
                name: row.get(1)?,
                num_cpus: row.get(2)?,
                num_gpus: row.get(3)?,
                num_nodes: row.get(4)?,
                memory: size(5)?.map(torc_model::units::Memory),
                runtime: size(6)?.map(Runtime),
            };
            Ok((row.get(0)?, requirements))
        })?;
        let requirements = rows.collect::<Result<_, _>>()?;
        let names = |table: &str| -> rusqlite::Result<HashMap<i64, String>> {
            let sql = format!("SELECT id, name FROM {table} WHERE workflow_id = ?1");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        let handlers = names("failure_handler")?;
        let mut statement =
            db.prepare_cached("SELECT number, name FROM family WHERE workflow_id = ?1")?;
        let rows = statement.query_map([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let families = rows.collect::<Result<_, _>>()?;
        let mut paths: HashMap<i64, bool> = HashMap::new();
        let mut statement =
            db.prepare_cached("SELECT id, path FROM file WHERE workflow_id = ?1")?;
        let at: HashMap<i64, &str> = files.iter().map(|f| (f.id, f.path.as_str())).collect();
        let mut rows = statement.query([id.0])?;
        while let Some(row) = rows.next()? {
            let file: i64 = row.get(0)?;
            if let Some(path) = at.get(&file) {
                paths.insert(file, row.get_ref(1)?.as_str()? != *path);
            }
        }
        let files: Vec<(i64, bool)> =
            files.iter().map(|f| (f.id, paths.get(&f.id).copied().unwrap_or(false))).collect();
        let data: HashMap<String, i64> =
            names("user_data")?.into_iter().map(|(row, name)| (name, row)).collect();
        let user_data =
            plan.user_data.iter().map(|d| data.get(&d.name).copied().unwrap_or(0)).collect();
        // The engine counts handlers in the order of their rows.
        let mut in_order: Vec<i64> = handlers.keys().copied().collect();
        in_order.sort_unstable();
        let default_before = head.settings.default_failure_handler;
        let default_before = default_before.and_then(|at| handlers.get(in_order.get(at)?));
        let default_now = plan.settings.default_failure_handler;
        let default_now = default_now.map(|at| &plan.failure_handlers[at].name);
        let (before, now) = (&head.settings.execution, &plan.settings.execution);
        Ok(Self {
            other_settings: default_before != default_now
                || before.enforce_runtime != now.enforce_runtime,
            other_env: head.settings.env != plan.settings.env,
            other_shell: before.shell != now.shell,
            common_env: head.settings.env.clone(),
            has_moved_files: files.iter().any(|(_, moved)| *moved),
            schedulers: names("slurm_scheduler")?,
            requirements,
            handlers,
            families,
            files,
            user_data,
        })
    }

    fn items(&self, job: &Job) -> Vec<(Kind, i64)> {
        let files = |kind: Kind, list: &[usize]| -> Vec<(Kind, i64)> {
            list.iter().map(|at| (kind, self.files[*at].0)).collect()
        };
        let data = |kind: Kind, list: &[usize]| -> Vec<(Kind, i64)> {
            list.iter().map(|at| (kind, self.user_data[*at])).collect()
        };
        let mut all = files(Kind::InputFile, &job.input_files);
        all.extend(files(Kind::OutputFile, &job.output_files));
        all.extend(data(Kind::InputData, &job.input_user_data));
        all.extend(data(Kind::OutputData, &job.output_user_data));
        all
    }

    /// What is new about a job, and whether its row must be written again.
    fn compare(
        &self,
        tx: &Tx<'_>,
        row: &Row<'_>,
        plan: &Plan,
        job: &Job,
    ) -> Result<(Option<PlannedChange>, bool), Failed> {
        let mut change = None;
        let mut note = |is_new: bool, what: PlannedChange| {
            if is_new {
                change.get_or_insert(what);
            }
            is_new
        };
        let mut differs = self.other_settings;
        let other_command = text(row, 1)? != Some(&job.command)
            || text(row, 2)? != job.invocation_script.as_deref();
        differs |= note(other_command, PlannedChange::Command);
        let steps = job.steps.as_ref().map(ToString::to_string);
        let before = text(row, 3)?;
        if steps.as_deref() != before {
            let before: Option<Value> = before.map(parse).transpose()?;
            note(before != job.steps, PlannedChange::Steps);
            differs = true;
        }
        let extra = if job.extra.is_default() { None } else { json(Some(&*job.extra))? };
        let before = text(row, 4)?;
        let is_same_extra = extra.as_deref() == before;
        if !is_same_extra || self.other_env || self.other_shell {
            let before: JobExtra = before.map(parse).transpose()?.unwrap_or_default();
            let (common, own) = (&plan.settings.env, &job.extra.env);
            let other_env = (self.other_env || before.env != *own)
                && together(&self.common_env, &before.env) != together(common, own);
            note(other_env, PlannedChange::Env);
            note(before.lists != job.extra.lists, PlannedChange::InputFiles);
            let other_shell = self.other_shell && job.extra.strictness.shell.is_none();
            note(other_shell || before.strictness != job.extra.strictness, PlannedChange::Success);
            note(map_role(&before) != map_role(&job.extra), PlannedChange::Map);
            if !is_same_extra {
                let id = JobId(row.get(0)?);
                let timeout = timeout(tx.db, id, before.timeout, job.extra.timeout)?;
                differs |= JobExtra { timeout, ..(*job.extra).clone() } != before;
            }
        }
        let standard = Requirements::default();
        let row_of: Option<i64> = row.get(5)?;
        let before = row_of.and_then(|r| self.requirements.get(&r)).unwrap_or(&standard);
        let now = job.resource_requirements.map_or(&standard, |r| &plan.resource_requirements[r]);
        if before != now || row_of.is_some() != job.resource_requirements.is_some() {
            let matters = |r: &Requirements| (r.num_gpus, r.num_nodes);
            note(matters(before) != matters(now), PlannedChange::Requirements);
            differs = true;
        }
        let handler: Option<i64> = row.get(6)?;
        let handler = handler.and_then(|row| self.handlers.get(&row));
        differs |= handler != job.failure_handler.map(|at| &plan.failure_handlers[at].name);
        // A scheduler that the server chose stays where the spec names none.
        let scheduler: Option<i64> = row.get(7)?;
        let scheduler = scheduler.and_then(|row| self.schedulers.get(&row));
        let wanted = job.scheduler.map(|at| &plan.slurm_schedulers[at].name);
        differs |= wanted.is_some() && scheduler != wanted;
        differs |= row.get::<_, bool>(8)? != job.cancel_on_blocking_job_failure;
        differs |= row.get::<_, i64>(9)? != job.priority;
        differs |= self.families.get(&row.get(10)?) != plan.families.get(job.family as usize);
        Ok((change, differs))
    }
}

/// A job's own variables win, so that a change of the workflow's may not reach it.
fn together(
    common: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = common.clone();
    all.extend(own.clone());
    all
}

/// What a map, an item or a reduce is about. How many items run at once and how many may fail
/// changes none of them.
fn map_role(extra: &JobExtra) -> Option<Value> {
    match map::role_of(extra)? {
        Role::Map(settings) => serde_json::to_value(settings.items).ok(),
        Role::Item { .. } | Role::Reduce(_) => extra.map.clone(),
    }
}

/// The longer of what a recovery allowed and what the spec allows.
pub fn timeout(
    db: &Connection,
    job: JobId,
    before: Option<Runtime>,
    asked: Option<Runtime>,
) -> Result<Option<Runtime>, Failed> {
    let (Some(now), Some(asked)) = (before, asked) else { return Ok(asked) };
    if asked >= now {
        return Ok(Some(asked));
    }
    let raised: Option<i64> = db
        .prepare_cached(
            "SELECT to_value FROM adjustment WHERE job_id = ?1 AND field = 'timeout' ORDER BY id DESC LIMIT 1",
        )?
        .query_row(params![job.0], |row| row.get(0))
        .optional()?;
    Ok(Some(if raised == i64::try_from(now.0).ok() { now } else { asked }))
}

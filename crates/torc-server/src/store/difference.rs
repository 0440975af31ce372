//! What applying a spec would do to each job of a workflow, and why. This only reads: a dry run and
//! the real thing get the same answer, because they ask here.
//!
//! Jobs and everything they refer to are told by their names. A job is up to date when it has
//! succeeded as the spec says now, from files that are as they were, and what it wrote is there.

mod data;
mod files;
mod stored;
mod ties;

pub use data::stored_hashes;
pub use stored::timeout;

use super::facts::{self, FileFact, Uses};
use super::journal::definitions;
use super::load::parse;
use super::lookups;
use super::map;
use super::named::Said;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use foldhash::fast::RandomState;
use rusqlite::Connection;
use std::collections::{HashMap, HashSet, VecDeque};
use stored::Stored;
use torc_model::api::{ApplyOptions, PlanCounts, PlannedChange, PlannedJob};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{JobExtra, Plan, Settings};
use torc_model::status::JobStatus;
use torc_model::steps::{ItemSource, MapRole};

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
    fn new(id: Option<JobId>, plan: Option<usize>, status: JobStatus) -> Self {
        Self {
            id,
            plan,
            status,
            was_removed: false,
            change: None,
            is_rewritten: false,
            is_retied: false,
            parents: Vec::new(),
            map: None,
        }
    }

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
    pub settings: Settings,
    /// Its revision.
    pub revision: i64,
    pub run: i64,
}

impl Head {
    /// Reads it.
    pub fn read(db: &Connection, id: WorkflowId) -> Result<Self, Failed> {
        let head = definitions::head(db, id)?;
        head.ok_or_else(|| Refusal::not_found("workflow", id.0).into())
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
        let next_job = tx.state.engine.next_job();
        let mut jobs = match wanted {
            Wanted::Same(uses) => {
                let mut jobs = JobDefinitions::stored(tx.db, id)?;
                jobs.use_files(uses, &files);
                jobs.note_files(tx.db, id, &mut files)?;
                jobs.note_stored_data(tx.db, id)?;
                jobs
            }
            Wanted::Other(plan) => {
                facts::find_rows(tx.db, id, plan, &mut files)?;
                let mut jobs = JobDefinitions::planned(tx, id, head, plan, &files, next_job)?;
                jobs.note_files(tx.db, id, &mut files)?;
                jobs.note_planned_data(tx.db, id, plan, &Said::new(&head.spec))?;
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
        lookups::name_of(self.db, job.id.unwrap_or(JobId(0)))
    }
}

/// The comparison under way.
#[derive(Default)]
struct JobDefinitions {
    list: Vec<OneJob>,
    /// Numbers by row.
    by_id: HashMap<JobId, u32, RandomState>,
    /// A job and a file that it reads, both by number.
    inputs: Vec<(u32, u32)>,
    /// A job and a file that it writes.
    outputs: Vec<(u32, u32)>,
    /// Names of the plan's jobs, for reasons; the rows tell the others.
    names: HashMap<u32, String>,
}

impl JobDefinitions {
    /// The jobs as they are: the spec is the one that the workflow has.
    fn stored(db: &Connection, id: WorkflowId) -> rusqlite::Result<Self> {
        let mut jobs = Self::default();
        definitions::each_status(db, id, |job, status| _ = jobs.push_stored(job, status))?;
        Ok(jobs)
    }

    fn push_stored(&mut self, id: JobId, status: JobStatus) -> &mut OneJob {
        self.by_id.insert(id, self.list.len() as u32);
        self.list.push(OneJob::new(Some(id), None, status));
        self.list.last_mut().expect("it was pushed")
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
        let new = |at| OneJob::new(None, Some(at), JobStatus::Uninitialized);
        jobs.list.extend((0..plan.jobs.len()).map(new));
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
        let names: HashMap<&str, usize, RandomState> =
            plan.jobs.iter().enumerate().map(|(at, job)| (job.name.as_str(), at)).collect();
        let is_map = |name: &str| {
            let map = names.get(name).and_then(|at| map::role_of(&plan.jobs[*at].extra));
            matches!(map, Some(MapRole::Map(settings)) if !matches!(settings.items, ItemSource::List(_)))
        };
        let mut gone: HashSet<JobId> = HashSet::new();
        definitions::each_job(db, id, |row| {
            let job = row.id;
            if let Some(at) = names.get(row.name) {
                let known = &mut self.list[*at];
                known.id = Some(job);
                known.status = row.status;
                known.was_removed = row.was_removed;
                self.by_id.insert(job, *at as u32);
                return Ok(());
            }
            if row.was_removed {
                return Ok(());
            }
            // What a job added stays as long as that job does; what a map found belongs to the map.
            let role = row.map_extra.map(parse::<JobExtra>).transpose()?;
            let of = match role.as_ref().and_then(map::role_of) {
                Some(MapRole::Item { of, .. }) if is_map(&of) => names.get(of.as_str()).copied(),
                _ => None,
            };
            let stays = of.is_some() || row.added_by.is_some_and(|by| !gone.contains(&by));
            let pushed = self.push_stored(job, row.status);
            pushed.map = of.map(|of| of as u32);
            if !stays {
                pushed.change = Some((PlannedChange::Removed, None));
                gone.insert(job);
            }
            Ok(())
        })
    }

    fn compare_rows(
        &mut self,
        tx: &Tx<'_>,
        id: WorkflowId,
        plan: &Plan,
        stored: &Stored,
    ) -> Result<(), Failed> {
        definitions::each_definition(tx.db, id, |row| {
            let Some(number) = self.by_id.get(&row.id) else { return Ok(()) };
            let Some(at) = self.list[*number as usize].plan else { return Ok(()) };
            let (change, is_rewritten) = stored.compare(tx, row, plan, &plan.jobs[at])?;
            let job = &mut self.list[*number as usize];
            job.is_rewritten = is_rewritten;
            if let Some(change) = change {
                job.note(change, None);
            }
            Ok(())
        })
    }

    /// What an item does is written in its map.
    fn note_map_changes(&mut self, plan: &Plan) {
        let mut changed: HashMap<&str, PlannedChange> = HashMap::new();
        for job in &self.list {
            let (Some(at), Some((change, _))) = (job.plan, &job.change) else { continue };
            if matches!(map::role_of(&plan.jobs[at].extra), Some(MapRole::Map(_))) {
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
                    Some(MapRole::Item { of, .. }) => changed.get(of.as_str()).copied(),
                    Some(MapRole::Map(_) | MapRole::Reduce(_)) | None => None,
                },
                (None, Some(map)) => self.list[map as usize].change.as_ref().map(|(c, _)| *c),
                (None, None) => None,
            };
            if let Some(change) = change {
                self.list[index].note(change, None);
            }
        }
    }

    /// The jobs that the user names, by name or by regular expression.
    fn note_asked(&mut self, db: &Connection, asked: &[String]) -> Result<(), Failed> {
        if asked.is_empty() {
            return Ok(());
        }
        let mut names = Vec::with_capacity(self.list.len());
        for job in &self.list {
            let name: Option<String> = match job.id {
                Some(id) => Some(lookups::name_of(db, id)?),
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
            Some(id) => lookups::name_of(db, id)?,
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

//! The jobs of a workflow: each with its status and the attempt it has, and how many there are of each
//! status.

use super::index::{ClassIx, HandlerIx, JobIx};
use std::ops::{Index, IndexMut};
use torc_model::api::RecoveryScript;
use torc_model::class::Class;
use torc_model::ids::{AttemptId, JobId, RunnerId};
use torc_model::sparse::Sparse;
use torc_model::status::{Afterwards, AttemptState, JobStatus, StatusReason};

/// An attempt that a runner has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its row.
    pub attempt: AttemptId,
    /// Who.
    pub runner: RunnerId,
    /// Fencing token.
    pub token: String,
    /// The claim that took it.
    pub key: String,
    /// Claimed or running.
    pub state: AttemptState,
    /// Its runner must stop it.
    pub cancel_requested: bool,
    /// When it was claimed.
    pub claimed_at: i64,
    /// When it started, as far as its runner said.
    pub started_at: Option<i64>,
}

/// The attempt of a job that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Live {
    /// There is none.
    None,
    /// It waits for a runner.
    Queued(AttemptId),
    /// A runner has it.
    Held(Box<Held>),
}

/// The attempts of a job in the run that it was last part of. A job that has succeeded is left alone by
/// later runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tries {
    /// Number of the current or last attempt; the next one is this plus one.
    pub number: u32,
    /// The run.
    pub run: i64,
    /// Retries paid from the budget for losses.
    pub lost: u32,
    /// Attempts that do not count against the user's rules (losses among them).
    pub refunds: u32,
    /// The first so many were before the job started over in this run: nothing of them counts.
    pub before: u32,
}

impl Tries {
    /// None so far.
    pub const fn none(run: i64) -> Self {
        Self { number: 0, run, lost: 0, refunds: 0, before: 0 }
    }

    /// The job starts over: no attempt so far counts.
    pub fn renew(&mut self) {
        self.refunds = self.number;
        self.before = self.number;
        self.lost = 0;
    }

    /// The attempt of this run and number is one of those that count.
    pub fn counts(&self, run: i64, number: u32) -> bool {
        run == self.run && number > self.before
    }

    /// Attempts that count against the user's rules.
    pub fn counted(&self) -> u32 {
        self.number - self.refunds.min(self.number.saturating_sub(1))
    }
}

/// A job as the engine sees it. Texts (name, command) stay in the database.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Its id.
    pub(crate) id: JobId,
    status: JobStatus,
    reason: Option<StatusReason>,
    /// No runner may claim it until a user releases it.
    pub(crate) held_back: bool,
    /// Canceled when a dependency ends badly.
    pub(crate) cancel_on_failure: bool,
    /// Higher first.
    pub(crate) priority: i64,
    /// Its place in the queue, for ever.
    pub(crate) position: i64,
    /// What the present attempt needs, and the next one unless it needs something else.
    pub(crate) class: ClassIx,
    pub(crate) handler: Option<HandlerIx>,
    /// Budget for losses.
    pub(crate) max_lost: u32,
    pub(crate) tries: Tries,
    /// Dependencies that are not met; counted while it is blocked.
    pub(crate) unmet: u32,
    pub(crate) live: Live,
    /// Row of the newest attempt that a runner had and that has ended, in this run.
    pub(crate) last: Option<AttemptId>,
    /// What few jobs have; it can be read like the job's own fields.
    pub(crate) rare: Sparse<Rare>,
}

impl Job {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Where it stands.
    pub fn status(&self) -> JobStatus {
        self.status
    }

    /// Why it stands there, where that does not follow from the status.
    pub fn reason(&self) -> Option<StatusReason> {
        self.reason
    }

    /// Number of the current or last attempt in the run that it was last part of.
    pub fn attempt(&self) -> u32 {
        self.tries.number
    }

    /// Row of the attempt that has not ended.
    pub fn live(&self) -> Option<AttemptId> {
        match &self.live {
            Live::None => None,
            Live::Queued(id) => Some(*id),
            Live::Held(held) => Some(held.attempt),
        }
    }

    /// The attempt that a runner has.
    pub fn held(&self) -> Option<&Held> {
        match &self.live {
            Live::Held(held) => Some(held),
            Live::None | Live::Queued(_) => None,
        }
    }

    pub(crate) fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.live {
            Live::Held(held) => Some(held),
            Live::None | Live::Queued(_) => None,
        }
    }

    /// Row of the newest attempt that a runner had and that has ended, in this run.
    pub fn last(&self) -> Option<AttemptId> {
        self.last
    }

    /// No runner may claim it until a user releases it.
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Dependencies that are not met, while it is blocked.
    pub fn unmet(&self) -> u32 {
        self.unmet
    }

    /// What is done about its failures.
    pub fn handler(&self) -> Option<HandlerIx> {
        self.handler
    }

    /// What becomes of it when its running attempt has ended, where that is not the usual.
    pub fn afterwards(&self) -> Option<Afterwards> {
        self.rare.afterwards
    }

    /// A script runs before its next attempt.
    pub fn has_script(&self) -> bool {
        self.script.is_some()
    }

    /// A revision took it out; only its history is left.
    pub fn is_removed(&self) -> bool {
        self.reason == Some(StatusReason::Removed)
    }

    /// What its next attempt needs.
    pub(crate) fn next_class(&self) -> ClassIx {
        self.rare.next_class.unwrap_or(self.class)
    }

    /// Gives its next attempt other needs. One that a runner has keeps the class it was claimed with:
    /// its share must be given back as it was taken.
    pub(crate) fn set_class(&mut self, class: ClassIx) {
        match self.live {
            Live::Held(_) => self.rare.edit(|rare| rare.next_class = Some(class)),
            Live::None | Live::Queued(_) => self.class = class,
        }
    }
}

/// What few jobs have, and most of those not for long.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rare {
    /// The class of its next attempt, when that was changed while a runner has the current one.
    pub(crate) next_class: Option<ClassIx>,
    /// The live attempt may not be claimed before this time.
    pub(crate) not_before: Option<i64>,
    /// The script that runs before the live attempt. Until a report says that it ran and did not
    /// keep the command from running, the next attempt needs it too.
    pub(crate) script: Option<RecoveryScript>,
    /// A new revision changed or removed the job while a runner has the live attempt.
    pub(crate) afterwards: Option<Afterwards>,
}

torc_model::plain!(Rare);

impl std::ops::Deref for Job {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        &self.rare
    }
}

/// What a job is made from.
#[derive(Clone, PartialEq, Debug)]
pub struct NewJob {
    /// Its id; ids grow with the index.
    pub id: JobId,
    /// Higher first.
    pub priority: i64,
    /// Its place in the queue.
    pub position: i64,
    /// Number of its family.
    pub family: u32,
    /// What is known of its own time, in ms.
    pub own_ms: Option<u32>,
    /// What it needs.
    pub class: Class,
    /// What is done about its failures.
    pub handler: Option<HandlerIx>,
    /// Canceled when a dependency ends badly.
    pub cancel_on_failure: bool,
    /// Budget for losses.
    pub max_lost: u32,
    /// The jobs it depends on.
    pub parents: Vec<JobIx>,
}

impl NewJob {
    /// The job before anything has happened to it.
    pub(crate) fn into_job(self, class: ClassIx) -> Job {
        Job {
            id: self.id,
            status: JobStatus::Uninitialized,
            reason: None,
            held_back: false,
            cancel_on_failure: self.cancel_on_failure,
            priority: self.priority,
            position: self.position,
            class,
            handler: self.handler,
            max_lost: self.max_lost,
            tries: Tries::none(1),
            unmet: 0,
            live: Live::None,
            last: None,
            rare: Sparse::default(),
        }
    }
}

/// The jobs of a workflow, ordered by id, and how many there are of each status.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Jobs {
    list: Vec<Job>,
    counts: [u32; 11],
    /// Jobs that a revision took out; they are disabled.
    removed: u32,
}

impl Jobs {
    pub fn reserve(&mut self, jobs: usize) {
        self.list.reserve_exact(jobs);
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Job> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Job> {
        self.list.iter_mut()
    }

    /// All of them, in order.
    pub fn indexes(
        &self,
    ) -> impl DoubleEndedIterator<Item = JobIx> + ExactSizeIterator + Clone + use<> {
        JobIx::range(0..self.list.len())
    }

    /// Adds a job behind the others; ids must grow.
    pub fn push(&mut self, job: Job) -> JobIx {
        debug_assert!(self.list.last().is_none_or(|last| last.id < job.id), "job ids must grow");
        let index = JobIx::new(self.list.len());
        self.counts[job.status as usize] += 1;
        self.list.push(job);
        index
    }

    pub fn find(&self, id: JobId) -> Option<JobIx> {
        self.list.binary_search_by_key(&id, |job| job.id).ok().map(JobIx::new)
    }

    /// The only way by which a status changes. What counts dependencies counts while a job is blocked.
    pub fn set_status(&mut self, index: JobIx, status: JobStatus, reason: Option<StatusReason>) {
        let job = &mut self.list[index.at()];
        self.counts[job.status as usize] -= 1;
        self.counts[status as usize] += 1;
        self.removed -= u32::from(job.is_removed());
        job.status = status;
        job.reason = reason;
        self.removed += u32::from(job.is_removed());
        if status != JobStatus::Blocked {
            job.unmet = 0;
        }
    }

    /// How many are in a status; those that a revision took out are disabled.
    pub fn count(&self, status: JobStatus) -> u32 {
        self.counts[status as usize]
    }

    /// Jobs per status, by the status' integer; without those that a revision took out.
    pub fn counts(&self) -> [u32; 11] {
        let mut counts = self.counts;
        counts[JobStatus::Disabled as usize] -= self.removed;
        counts
    }

    /// How many a revision took out; all of them are disabled.
    pub fn removed(&self) -> u32 {
        self.removed
    }

    /// How many are final.
    pub fn done(&self) -> u32 {
        JobStatus::ALL.iter().filter(|s| s.is_final()).map(|s| self.counts[*s as usize]).sum()
    }
}

impl Index<JobIx> for Jobs {
    type Output = Job;

    fn index(&self, index: JobIx) -> &Job {
        &self.list[index.at()]
    }
}

impl IndexMut<JobIx> for Jobs {
    fn index_mut(&mut self, index: JobIx) -> &mut Job {
        &mut self.list[index.at()]
    }
}

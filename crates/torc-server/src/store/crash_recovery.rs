//! Recovery: one procedure, three triggers.
//!
//! Ends what dead runners held, repairs rows that do not fit together, and expires reservations.
//! Each runner and each workflow is one transaction; running it again finds nothing to do and
//! writes nothing.

use super::journal::runners::UnendedRunner;
use super::journal::{self, RunnerRow, attempts};
use super::leftovers;
use super::reservations;
use super::runners;
use super::writer::{Failed, Tx};
use super::{Refusal, Store};
use super::{load, lookups};
use crate::blocking::blocking;
use crate::boot::identity;
use crate::slow_files;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use torc_engine::commands::{EndRunner, NoteHoldup, RepairWorkflow};
use torc_engine::{
    Holdup, JobIx, LEASE_MS, LastEnd, Life, Lost, On, Process, Repair, RunnerLife, Workflow,
};
use torc_model::api::{CompletionReport, RecoveryView};
use torc_model::files;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::plan::StdioMode;
use torc_model::status::{AttemptState, Cause, EvidenceSource};
use torc_model::words::count;

/// Why to recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The server begins; rows may be from anywhere.
    Boot,
    /// Every few seconds. Does not look at the rows of jobs: while a server has the database,
    /// no other process writes to it, and to look would cost as much as there are jobs.
    Sweep,
    /// A user asks, for one workflow.
    Request {
        /// The one to look at.
        workflow: WorkflowId,
        /// Only tell what would be done.
        dry_run: bool,
    },
}

/// A runner whose end is not recorded, as its row says.
#[derive(Clone, Debug)]
pub struct Suspect {
    row: UnendedRunner,
    /// The first part of the tag that all its processes carry.
    key: String,
    /// Last word from it, or this server's begin; by the monotonic clock.
    heard: i64,
    process: Process,
    /// Why nothing follows, if nothing does.
    holdup: Option<Holdup>,
    /// Results that it wrote down and could not deliver.
    spooled: Vec<CompletionReport>,
    /// Attempts that it held and had certainly not begun.
    unbegun: Vec<AttemptId>,
}

impl Suspect {
    /// Its process was here, and is gone.
    pub fn is_gone(&self) -> bool {
        self.process == Process::Gone
    }
}

/// The batch system has this long to say why a runner in an allocation is gone, before "gone" is
/// all there is.
const SCHEDULER_FIRST_MS: i64 = LEASE_MS;
/// A process that hangs in the kernel is waited for in the next sweep.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two sweeps lie seconds. After more than this the server, or its machine, stood still.
const GAP_MS: i64 = 30_000;

/// While the server stood still no runner could be heard: all of them get a full lease again.
fn note_absence(tx: &mut Tx<'_>) {
    let gap = tx.uptime - tx.state.last_look;
    if gap > GAP_MS {
        tracing::warn!(seconds = gap / 1000, "this server stood still; every lease begins again");
        tx.state.boot = tx.uptime;
    }
    tx.state.last_look = tx.uptime;
}

impl Store {
    /// Recovery: ends what dead runners held, repairs rows, expires reservations. At boot before
    /// claims are served.
    pub async fn recover(&self, trigger: Trigger) -> Result<RecoveryView, Refusal> {
        let (scope, dry_run) = match trigger {
            Trigger::Request { workflow, dry_run } => (Some(workflow), dry_run),
            Trigger::Boot | Trigger::Sweep => (None, false),
        };
        let mut suspects = self.writer.call(move |tx| suspects(tx, scope)).await?;
        let suspects = blocking(move || {
            torc_failpoint::hit("recovery.looking");
            look(&mut suspects, dry_run);
            suspects
        })
        .await
        .map_err(|_| Refusal::internal("the runners could not be looked for"))?;
        let mut view = RecoveryView { dry_run, ..RecoveryView::default() };
        for mut suspect in suspects {
            if suspect.is_gone() {
                suspect = self.look_for_begun(suspect).await?;
            }
            view = self
                .writer
                .call(move |tx| {
                    judge(tx, &suspect, dry_run, &mut view)?;
                    Ok(view)
                })
                .await?;
        }
        let broken = match trigger {
            Trigger::Sweep => Vec::new(),
            _ => self.writer.call(move |tx| Ok(attempts::broken(tx.db, scope)?)).await?,
        };
        for id in broken {
            view = self
                .writer
                .call(move |tx| {
                    repair(tx, id, dry_run, &mut view)?;
                    Ok(view)
                })
                .await?;
        }
        self.writer
            .call(move |tx| {
                expire_reservations(tx, trigger == Trigger::Boot, dry_run, &mut view)?;
                Ok(view)
            })
            .await
    }

    async fn look_for_begun(&self, suspect: Suspect) -> Result<Suspect, Refusal> {
        let (mut suspect, claims) = self
            .writer
            .call(move |tx| {
                let claims = claims(tx, &suspect)?;
                Ok((suspect, claims))
            })
            .await?;
        let (place, names) = (suspect.output_dir(), claims.clone());
        let begun = slow_files::look(place.clone(), move || begun(&place, &names)).await;
        suspect.note_begun(begun, claims);
        Ok(suspect)
    }
}

/// Runners that may be dead.
fn suspects(tx: &mut Tx<'_>, scope: Option<WorkflowId>) -> Result<Vec<Suspect>, Failed> {
    note_absence(tx);
    if scope.is_none() {
        super::pool_runners::end_silent(tx)?;
    }
    let unended = journal::runners::unended(tx.db, scope)?;
    let suspect = |row: UnendedRunner| Suspect {
        key: load::runner_tag(&tx.state.database_id, row.id),
        heard: tx
            .state
            .engine
            .runners()
            .get(&row.id)
            .and_then(|known| known.heard)
            .unwrap_or(tx.state.boot),
        process: Process::Unknown,
        holdup: None,
        spooled: Vec::new(),
        unbegun: Vec::new(),
        row,
    };
    Ok(unended.into_iter().map(suspect).collect())
}

/// Looks for the suspects' processes. Only those on this host can be seen. What a dead runner left
/// running is ended first: until then the runner is not gone, so that no retry can run beside an
/// old process.
fn look(suspects: &mut [Suspect], dry_run: bool) {
    let (host, boot, now) =
        (identity::hostname(), identity::process_space(), crate::clock::boottime_ms());
    for suspect in &mut *suspects {
        suspect.process = match boot.as_deref() {
            Some(boot) if suspect.row.host == host => see(boot, suspect),
            _ => Process::Unknown,
        };
        suspect.holdup = match suspect.process {
            Process::Alive if is_stopped(suspect.row.pid) => Some(Holdup::Stopped),
            Process::Unknown => Some(
                suspect
                    .row
                    .disown
                    .map_or(Holdup::NoDeadline, |d| Holdup::Deadline(suspect.heard + d)),
            ),
            _ => None,
        };
        let is_over = matches!(suspect.process, Process::Gone | Process::Rebooted);
        if suspect.row.in_allocation && is_over && now - suspect.heard < SCHEDULER_FIRST_MS {
            suspect.process = Process::Unknown;
            suspect.holdup = Some(Holdup::Scheduler);
        }
    }
    let round = slow_files::Round::begin();
    for suspect in
        suspects.iter_mut().filter(|s| matches!(s.process, Process::Gone | Process::Rebooted))
    {
        read_spool(suspect, &round);
    }
    let gone = || suspects.iter().filter(|s| s.process == Process::Gone);
    let keys: Vec<&str> = gone().map(|s| s.key.as_str()).collect();
    if dry_run || keys.is_empty() {
        return;
    }
    let mut ended = torc_fence::end_runners(&keys, PATIENCE);
    for suspect in suspects.iter_mut().filter(|s| s.process == Process::Gone) {
        let ended = ended.remove(&suspect.key).unwrap_or_default();
        if !ended.killed.is_empty() {
            let (runner, pids) = (suspect.row.id, &ended.killed);
            tracing::info!(%runner, ?pids, "ended processes that a dead runner left");
        }
        suspect.holdup = match ended.survivors {
            _ if !ended.was_seen => Some(Holdup::Unproved),
            pids if !pids.is_empty() => Some(Holdup::Processes(pids)),
            _ => {
                remove_files(suspect, &round);
                continue;
            }
        };
        suspect.process = Process::Lingering;
        tracing::warn!(runner = %suspect.row.id, holdup = ?suspect.holdup, "a dead runner's processes do not end");
    }
}

/// Removes what a dead runner left in files. A file system that does not answer keeps them: tokens
/// end with their attempts.
fn remove_files(suspect: &Suspect, round: &slow_files::Round) {
    let (dir, key) = (suspect.output_dir(), suspect.key.clone());
    if let Err(hangs) =
        round.look(&suspect.output_dir(), move || leftovers::remove_files(&dir, &key))
    {
        tracing::warn!(runner = %suspect.row.id, dir = suspect.row.output_dir, "{hangs}: a dead runner's files stay");
    }
}

/// The process stands still by a signal.
fn is_stopped(pid: i64) -> bool {
    let process = i32::try_from(pid).ok().and_then(torc_fence::procfs::find_process);
    process.is_some_and(|process| process.is_stopped)
}

/// What a runner was given and has not said to have started, where a log file would tell that it
/// did: each attempt with how the names of its files begin.
fn claims(tx: &mut Tx<'_>, suspect: &Suspect) -> Result<Vec<(AttemptId, String)>, Failed> {
    let workflow = tx.workflow(suspect.row.workflow)?;
    let (run, usual) = (workflow.run, workflow.settings.execution.stdio);
    let held = workflow.held_by(suspect.row.id).map(|index| workflow.job(index));
    let claimed: Vec<_> = held
        .filter_map(|job| Some((job, job.held()?)))
        .filter(|(_, held)| held.state == AttemptState::Claimed)
        .map(|(job, held)| (held.attempt, job.id(), job.attempt()))
        .collect();
    let mut found = Vec::new();
    for (attempt, job, number) in claimed {
        let stdio = lookups::job_extra(tx.db, job)?.settings.stdio.unwrap_or(usual);
        if stdio.mode != StdioMode::None && !stdio.delete_on_success {
            let stem = files::attempt_stem(suspect.row.workflow, job, run, i64::from(number));
            found.push((attempt, stem));
        }
    }
    Ok(found)
}

/// Reads the results that a dead runner could not deliver. While its file system does not answer,
/// the runner is not given up: its results may be there. Other runners do not wait for it.
fn read_spool(suspect: &mut Suspect, round: &slow_files::Round) {
    let (dir, key) = (suspect.output_dir(), suspect.key.clone());
    match round.look(&suspect.output_dir(), move || leftovers::spooled(&dir, &key)) {
        Ok(reports) => suspect.spooled = reports,
        Err(hangs) => {
            tracing::warn!(runner = %suspect.row.id, dir = suspect.row.output_dir, "{hangs}: a dead runner's results wait there");
            suspect.process = Process::Unknown;
        }
    }
}

/// Finds out which of these a dead runner had begun: whatever begins has a file before it has a
/// process.
fn begun(output_dir: &Path, claims: &[(AttemptId, String)]) -> io::Result<HashSet<String>> {
    leftovers::begun(output_dir, claims.iter().map(|(_, name)| name.as_str()))
}

impl Suspect {
    /// Where its files are.
    pub fn output_dir(&self) -> PathBuf {
        PathBuf::from(&self.row.output_dir)
    }

    /// Notes which of the claims had not begun. A file system that does not answer keeps the runner
    /// from being given up.
    pub fn note_begun(
        &mut self,
        begun: Result<io::Result<HashSet<String>>, torc_fs::Hangs>,
        claims: Vec<(AttemptId, String)>,
    ) {
        match begun {
            Ok(Ok(begun)) => {
                let unbegun = claims.into_iter().filter(|(_, name)| !begun.contains(name));
                self.unbegun = unbegun.map(|(attempt, _)| attempt).collect();
            }
            Ok(Err(error)) => {
                tracing::warn!(dir = self.row.output_dir, %error, "what a dead runner had begun cannot be told");
            }
            Err(hangs) => {
                tracing::warn!(runner = %self.row.id, dir = self.row.output_dir, "{hangs}: what a dead runner had begun is there");
                self.process = Process::Unknown;
            }
        }
    }
}

/// What can be seen from here of a runner's process, and the tag of its processes.
pub fn sight(
    tx: &mut Tx<'_>,
    id: RunnerId,
    workflow: WorkflowId,
) -> Result<(Process, String), Failed> {
    let found = suspects(tx, Some(workflow))?.into_iter().find(|s| s.row.id == id);
    let (host, boot) = (identity::hostname(), identity::process_space());
    let key = load::runner_tag(&tx.state.database_id, id);
    let process = match (found, boot) {
        (Some(suspect), Some(boot)) if suspect.row.host == host => see(&boot, &suspect),
        _ => Process::Unknown,
    };
    Ok((process, key))
}

/// Ends what runners left whose processes are gone from this host. Answers with those of which it
/// is proved that nothing lives.
pub fn end_gone(gone: &[(RunnerId, String)]) -> HashSet<RunnerId> {
    let keys: Vec<&str> = gone.iter().map(|(_, key)| key.as_str()).collect();
    let ended = torc_fence::end_runners(&keys, PATIENCE);
    let is_proved = |key: &str| {
        ended.get(key).is_some_and(|ended| ended.survivors.is_empty() && ended.was_seen)
    };
    gone.iter().filter(|(_, key)| is_proved(key)).map(|(id, _)| *id).collect()
}

fn see(boot: &str, suspect: &Suspect) -> Process {
    // Written as `BOOT` or `BOOT/NAMESPACE`: a process of another pid namespace cannot be seen
    // from here.
    let split = |text: &str| match text.split_once('/') {
        Some((boot, space)) => (boot.to_owned(), Some(space.to_owned())),
        None => (text.to_owned(), None),
    };
    let ((here, my_space), (there, its_space)) = (split(boot), split(&suspect.row.boot_id));
    if there.is_empty() {
        return Process::Unknown;
    }
    if here != there {
        return Process::Rebooted;
    }
    if my_space.is_some() && its_space.is_some() && my_space != its_space {
        return Process::Unknown;
    }
    let found = u32::try_from(suspect.row.pid).ok().and_then(identity::pid_start);
    match found {
        Some(start) if i64::try_from(start) == Ok(suspect.row.pid_start) => Process::Alive,
        Some(_) | None => Process::Gone,
    }
}

/// Ends one suspect if it is dead.
fn judge(
    tx: &mut Tx<'_>,
    suspect: &Suspect,
    dry_run: bool,
    view: &mut RecoveryView,
) -> Result<(), Failed> {
    note_absence(tx);
    // It may have said something or left since it was listed.
    let Some(known) = tx.state.engine.runners().get(&suspect.row.id) else { return Ok(()) };
    let heard = known.heard.unwrap_or(suspect.heard);
    tx.handle(NoteHoldup { runner: suspect.row.id, holdup: suspect.holdup.clone() })?;
    let life = RunnerLife {
        host: &suspect.row.host,
        pid: suspect.row.pid,
        last_seen: heard,
        server_boot: tx.state.boot,
        lease: LEASE_MS,
        disown: suspect.row.disown,
        process: suspect.process,
        in_allocation: suspect.row.in_allocation,
    };
    match life.judge(tx.uptime) {
        Life::Alive => {}
        Life::Silent { silent_for } => {
            view.runners_silent += 1;
            let why = suspect
                .holdup
                .as_ref()
                .map(|holdup| format!(" ({})", holdup.text(suspect.row.pid)));
            let line = format!(
                "runner {} on {} has been silent for {} s; nothing was done{}",
                suspect.row.id,
                suspect.row.host,
                silent_for / 1000,
                why.unwrap_or_default()
            );
            view.details.push(line);
        }
        Life::Dead(lost) => {
            view.runners_ended += 1;
            view.details.push(format!(
                "runner {} on {} is dead: {}",
                suspect.row.id, suspect.row.host, lost.evidence.text
            ));
            end_dead(tx, suspect, &lost, dry_run, view)?;
        }
    }
    Ok(())
}

fn end_dead(
    tx: &mut Tx<'_>,
    suspect: &Suspect,
    lost: &Lost,
    dry_run: bool,
    view: &mut RecoveryView,
) -> Result<(), Failed> {
    let before = live_attempts(tx.workflow(suspect.row.workflow)?);
    let held: Vec<JobId> = {
        let workflow = tx.workflow(suspect.row.workflow)?;
        workflow.held_by(suspect.row.id).map(|i| workflow.job(i).id()).collect()
    };
    view.running_jobs_recovered += held.len() as i64;
    view.details.extend(
        held.iter()
            .map(|job| format!("job {job}: its attempt was lost with runner {}", suspect.row.id)),
    );
    if dry_run {
        return Ok(());
    }
    let mut delivered = 0;
    for report in &suspect.spooled {
        // What it finished while no server could hear it is no loss.
        if tx
            .workflow(suspect.row.workflow)?
            .may_report(report.attempt.id, suspect.row.id, &report.attempt.token)
            .is_some()
        {
            runners::end_one(tx, suspect.row.workflow, suspect.row.id, report, None)?;
            delivered += 1;
        }
    }
    if delivered > 0 {
        let (left, counts) =
            (count(delivered, "result"), if delivered == 1 { "it counts" } else { "they count" });
        view.details.push(format!(
            "runner {} left {left} that it could not deliver; {counts}",
            suspect.row.id
        ));
    }
    let gone = EndRunner {
        runner: suspect.row.id,
        workflow: suspect.row.workflow,
        lost,
        reason: &lost.evidence.text,
        unbegun: &suspect.unbegun,
    };
    runners::end_runner(tx, gone)?;
    view.retries_created +=
        new_attempts(&before, &live_attempts(tx.workflow(suspect.row.workflow)?));
    Ok(())
}

fn live_attempts(workflow: &Workflow) -> HashMap<JobId, AttemptId> {
    workflow.jobs().filter_map(|j| Some((j.id(), j.live()?))).collect()
}

fn new_attempts(before: &HashMap<JobId, AttemptId>, after: &HashMap<JobId, AttemptId>) -> i64 {
    after.iter().filter(|(job, attempt)| before.get(job).is_some_and(|old| old != *attempt)).count()
        as i64
}

/// Makes one workflow's rows fit together.
fn repair(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    dry_run: bool,
    view: &mut RecoveryView,
) -> Result<(), Failed> {
    end_ownerless(tx, id, dry_run, view)?;
    let ends = attempts::newest_ends(tx.db, id)?;
    let workflow = tx.workflow(id)?;
    let place = |(job, end)| Some((workflow.find(job)?, end));
    let ends: HashMap<JobIx, LastEnd> = ends.into_iter().filter_map(place).collect();
    let stand_in = if dry_run { RunnerId(0) } else { stand_in(tx, id)? };
    let repair = On(id, RepairWorkflow { ends: &ends, stand_in });
    let before = live_attempts(tx.workflow(id)?);
    let done: Vec<(JobId, Repair)>;
    if dry_run {
        done = tx.state.engine.rehearsal(id).handle(repair, tx.clocks()).reply?;
    } else {
        done = tx.handle(repair)?;
        let after = live_attempts(tx.workflow(id)?);
        let fresh = after.iter().filter(|(job, attempt)| before.get(job) != Some(attempt)).count();
        view.retries_created += fresh as i64;
    }
    let lost = done
        .iter()
        .filter(|(_, what)| matches!(what, Repair::AttemptWritten | Repair::Synchronized))
        .count();
    view.running_jobs_recovered += lost as i64;
    view.jobs_repaired += done.len() as i64;
    view.details
        .extend(done.into_iter().map(|(job, what)| format!("job {job}: {}", describe(what))));
    Ok(())
}

fn describe(what: Repair) -> &'static str {
    match what {
        Repair::AttemptWritten => "it was running without an attempt; one was written down as lost",
        Repair::Synchronized => "its attempt had ended, the job had not heard of it",
        Repair::Decided => "its attempt had failed before it was decided what follows",
        Repair::Queued => "it was ready but nothing was queued for it",
        Repair::AttemptDropped => "it had an attempt that it could not have",
        Repair::Released => "it waited for what had already happened",
    }
}

/// Attempts whose runner has ended: they have no holder.
fn end_ownerless(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    dry_run: bool,
    view: &mut RecoveryView,
) -> Result<(), Failed> {
    let mut ghosts = tx.workflow(id)?.runners_with_work();
    ghosts.retain(|runner| !tx.state.engine.runners().contains_key(runner));
    for ghost in ghosts {
        let held = tx.workflow(id)?.held_by(ghost).count();
        view.running_jobs_recovered += held as i64;
        view.details.push(format!(
            "{} belonged to runner {ghost}, which has ended",
            count(held, "attempt")
        ));
        if dry_run {
            continue;
        }
        let text = format!("runner {ghost} had ended without giving it back");
        let evidence = torc_model::api::Evidence { source: EvidenceSource::Journal, text };
        let lost = Lost { cause: Cause::Lost, evidence };
        let before = live_attempts(tx.workflow(id)?);
        let reason = &lost.evidence.text;
        tx.handle(EndRunner { runner: ghost, workflow: id, lost: &lost, reason, unbegun: &[] })?;
        view.retries_created += new_attempts(&before, &live_attempts(tx.workflow(id)?));
    }
    Ok(())
}

/// A row that stands for an unknown runner, so that a lost attempt has an owner.
fn stand_in(tx: &mut Tx<'_>, id: WorkflowId) -> Result<RunnerId, Failed> {
    let key = format!("crash-recovery-{id}");
    if let Some((known, _)) = journal::runners::registered(tx.db, &key)? {
        return Ok(known);
    }
    let unknown = RunnerRow {
        key: &key,
        host: "unknown",
        started: tx.now,
        last_seen: tx.now,
        end: Some((tx.now, "stands for an unknown runner")),
        ..RunnerRow::default()
    };
    Ok(journal::insert_runner(tx.db, id, &unknown)?)
}

/// Ends reservations whose time has come, or all of them at boot: their holders were cut off.
pub fn expire_reservations(
    tx: &mut Tx<'_>,
    boot: bool,
    dry_run: bool,
    view: &mut RecoveryView,
) -> Result<(), Failed> {
    let due = reservations::due(tx, boot)?;
    view.reservations_expired += due.len() as i64;
    view.details
        .extend(due.iter().map(|r| {
            format!("reservation {} of `{}` by {} expired", r.id, r.scope, r.reserved_by)
        }));
    if !dry_run && !due.is_empty() {
        reservations::expire(tx, boot)?;
    }
    Ok(())
}

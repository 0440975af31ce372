//! Sends what waits to be sent, exactly once, and tells the server what became of it.

use crate::{BatchSystem, Known, Look, ScriptInput, Submitted};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use torc_client::{Client, Error, Query};
use torc_model::ids::WorkflowId;
use torc_model::slurm::script::{memory_bytes, walltime_seconds};
use torc_model::slurm::wire::{
    AllocationView, BeginSubmission, Observation, Observations, ObservedView, SubmissionOrder,
    SubmissionOutcome, SubmissionReport,
};
use torc_model::slurm::{AllocationPhase, Verdict};
use torc_model::status::AllocationStatus;

/// A request that was taken may need a moment until the batch system shows it, and there is no way
/// to wait for that.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Between two looks for an allocation that is missing.
const MISSING_PAUSE: Duration = Duration::from_millis(5_500);
/// Sent at most this often in one go.
const MAX_TRIES: usize = 3;
/// Speaks to a batch system for the server.
#[derive(Clone, Debug)]
pub struct Allocator<B> {
    /// Talks to the server.
    pub client: Client,
    /// Gives out nodes.
    pub system: B,
    /// The program that runs inside an allocation.
    pub program: PathBuf,
    /// Where output goes; `output` beside the workflow unless given.
    pub output_dir: Option<PathBuf>,
    /// Names us to the server.
    pub submitter: String,
}

/// What was sent, or not.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct SentAllocation {
    /// The workflow.
    pub workflow_id: WorkflowId,
    /// Name in Slurm.
    pub name: String,
    /// So many allocations.
    pub count: i64,
    /// What came of it.
    pub outcome: SubmissionOutcome,
    /// The batch system it was sent to.
    #[serde(skip)]
    pub system: &'static str,
}

/// What a look at Slurm brought.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Synced {
    /// Allocations that were looked for.
    pub looked_at: usize,
    /// Slurm could not be asked, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<String>,
    /// What followed.
    #[serde(flatten)]
    pub seen: ObservedView,
}

impl<B: BatchSystem> Allocator<B> {
    /// For this process.
    pub fn new(client: Client, system: B, output_dir: Option<PathBuf>) -> std::io::Result<Self> {
        let program = own_program()?;
        let submitter = format!("{}:{}:{}", hostname(), std::process::id(), now_ms());
        Ok(Self { client, system, program, output_dir, submitter })
    }

    /// Sends what waits, of one workflow or of all.
    pub async fn submit_waiting(
        &self,
        workflow: Option<WorkflowId>,
    ) -> Result<Vec<SentAllocation>, Error> {
        let body = BeginSubmission {
            workflow_id: workflow.map(|id| id.0),
            submitter: self.submitter.clone(),
        };
        let orders = self.client.begin_submission(&body).await?.items;
        let mut sent = Vec::new();
        for order in orders {
            let outcome = self.send(&order).await;
            let report = SubmissionReport {
                workflow_id: order.workflow_id,
                name: order.name.clone(),
                submitter: self.submitter.clone(),
                outcome: outcome.clone(),
            };
            self.client.report_submission(&report).await?;
            sent.push(SentAllocation {
                workflow_id: order.workflow_id,
                name: order.name,
                count: order.count,
                outcome,
                system: self.system.name(),
            });
        }
        Ok(sent)
    }

    async fn send(&self, order: &SubmissionOrder) -> SubmissionOutcome {
        let script = match self.write_script(order) {
            Ok(script) => script,
            Err(message) => return SubmissionOutcome::Refused(message),
        };
        let mut look_first = order.look_first;
        for _ in 0..MAX_TRIES {
            if look_first {
                match self.find(&order.name).await {
                    Ok(Some(id)) => return SubmissionOutcome::Submitted(id),
                    Ok(None) => {}
                    Err(why) => return SubmissionOutcome::Unknown(why),
                }
            }
            match self.system.submit(&script).await {
                Submitted::Id(id) => return SubmissionOutcome::Submitted(id),
                Submitted::Later(message) => return SubmissionOutcome::Unknown(message),
                Submitted::Refused(message) => return SubmissionOutcome::Refused(message),
                Submitted::Ambiguous(message) => {
                    let system = self.system.name();
                    tracing::warn!(name = order.name, message, "looking whether {system} took it");
                    look_first = true;
                }
            }
        }
        SubmissionOutcome::Unknown(format!("{} neither took nor refused it", self.system.name()))
    }

    /// The id of the job with this name. Not found counts only when two looks agree.
    async fn find(&self, name: &str) -> Result<Option<String>, String> {
        if let Some(id) = self.system.find(name).await? {
            return Ok(Some(id));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        self.system.find(name).await
    }

    fn write_script(&self, order: &SubmissionOrder) -> Result<PathBuf, String> {
        let here = || {
            std::env::current_dir().map_err(|e| format!("cannot find the current directory: {e}"))
        };
        let work_dir = order.directory.as_ref().map(PathBuf::from).map_or_else(here, Ok)?;
        // Before the output directory is made, which would make this one as well.
        if !work_dir.is_dir() {
            return Err(format!(
                "the workflow's directory `{}` is not on this machine",
                work_dir.display()
            ));
        }
        let output =
            work_dir.join(self.output_dir.as_deref().unwrap_or_else(|| Path::new("output")));
        let private = output.join("slurm");
        let io = |e: std::io::Error| format!("cannot write to `{}`: {e}", private.display());
        std::fs::create_dir_all(&output).map_err(io)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&private).map_err(io)?;
        let token = private.join(format!("{}.token", order.name));
        write_private(&token, &order.token).map_err(io)?;
        let walltime = walltime_seconds(&order.scheduler.walltime).map_err(|e| e.to_string())?;
        let mut command: Vec<String> =
            vec![self.program.display().to_string(), "slurm".into(), "run-allocation".into()];
        let mut add = |name: &str, value: String| command.push(format!("--{name}={value}"));
        add("url", self.client.url().to_owned());
        if let Some(ca) = self.client.ca() {
            add("tls-ca", ca.display().to_string());
        }
        add("token-file", token.display().to_string());
        add("workflow", order.workflow_id.to_string());
        add("allocation", order.name.clone());
        add("scheduler-id", order.scheduler_id.to_string());
        add("walltime-seconds", walltime.to_string());
        add("work-dir", work_dir.display().to_string());
        add("output-dir", output.display().to_string());
        add("wait-for-server-minutes", order.wait_for_server_minutes.to_string());
        if let Some(bytes) = order.scheduler.mem.as_deref().and_then(memory_bytes) {
            add("memory-bytes", bytes.to_string());
        }
        if let Some(jobs) = order.max_parallel_jobs {
            add("max-parallel-jobs", jobs.to_string());
        }
        let submission = ScriptInput {
            scheduler: &order.scheduler,
            defaults: &order.defaults,
            name: &order.name,
            count: u32::try_from(order.count).unwrap_or(1),
            at_once: None,
            output_dir: &output.display().to_string(),
            work_dir: &work_dir.display().to_string(),
            command: &command,
            one_worker_per_node: order.start_one_worker_per_node,
            end_seconds: u64::try_from(order.end_seconds).unwrap_or(0),
        };
        let text = self
            .system
            .script(&submission)
            .map_err(|e| format!("scheduler `{}`: {e}", order.scheduler.name))?;
        let script = private.join(format!("{}.sh", order.name));
        write_private(&script, &text).map_err(io)?;
        Ok(script)
    }

    /// Looks at every allocation that is not over with one query, and tells the server. With
    /// `patience`, allocations that are missing are looked for a second time, so that one call can
    /// settle them.
    pub async fn sync(
        &self,
        workflow: Option<WorkflowId>,
        dry_run: bool,
        patience: bool,
    ) -> Result<Synced, Error> {
        let mut first = self.look(workflow, dry_run).await?;
        if patience && !dry_run && first.1 {
            tokio::time::sleep(MISSING_PAUSE).await;
            let second = self.look(workflow, dry_run).await?.0;
            let mut details = std::mem::take(&mut first.0.seen.details);
            details.extend(second.seen.details.iter().cloned());
            let (a, b) = (&first.0.seen, &second.seen);
            first.0 = Synced {
                looked_at: first.0.looked_at,
                unreachable: second.unreachable,
                seen: ObservedView {
                    dry_run,
                    allocations_ended: a.allocations_ended + b.allocations_ended,
                    pending_allocations_cleaned: a.pending_allocations_cleaned
                        + b.pending_allocations_cleaned,
                    runners_ended: a.runners_ended + b.runners_ended,
                    slurm_jobs_failed: a.slurm_jobs_failed + b.slurm_jobs_failed,
                    attempts_explained: a.attempts_explained + b.attempts_explained,
                    unknown: b.unknown,
                    details,
                    first_misses: second.seen.first_misses.clone(),
                },
            };
        }
        Ok(first.0)
    }

    /// One look; also says whether something was missing.
    async fn look(
        &self,
        workflow: Option<WorkflowId>,
        dry_run: bool,
    ) -> Result<(Synced, bool), Error> {
        let mut open = self.open_allocations(workflow).await?;
        open.extend(self.unexplained_allocations(workflow).await?);
        if open.is_empty() {
            return Ok((Synced::default(), false));
        }
        let known: Vec<Known> = open.iter().map(known).collect();
        let (looks, unreachable) = match self.system.look(&known, now_ms()).await {
            Ok(looks) => (looks, None),
            Err(why) => (known.iter().map(|_| Look::unknown(&why)).collect(), Some(why)),
        };
        let mut items = Vec::new();
        let mut unsettled = false;
        for (row, look) in open.iter().zip(looks) {
            // Being sent right now, or interrupted while being sent: its submitter looks for it.
            if look.is_missing && row.status == AllocationStatus::Submitting {
                continue;
            }
            let is_over = row.status == AllocationStatus::Complete;
            unsettled |=
                look.is_missing && !is_over && matches!(look.verdict, Verdict::Unknown { .. });
            let observation = Observation {
                id: row.id,
                verdict: look.verdict,
                slurm_job_id: look.slurm_job_id,
                is_missing: look.is_missing,
                before: look.before,
                expected_start_ms: look.start.as_deref().and_then(local_ms),
                moves: Some(row.moves),
            };
            items.push(observation);
        }
        let seen = self.client.observe_allocations(&Observations { items, dry_run }).await?;
        Ok((Synced { looked_at: open.len(), unreachable, seen }, unsettled))
    }

    /// Allocations that Slurm may know something of.
    pub async fn open_allocations(
        &self,
        workflow: Option<WorkflowId>,
    ) -> Result<Vec<AllocationView>, Error> {
        let mut open = Vec::new();
        for status in
            [AllocationStatus::Submitting, AllocationStatus::Pending, AllocationStatus::Active]
        {
            let mut query = Query::new().add("status", status);
            if let Some(id) = workflow {
                query = query.add("workflow_id", id);
            }
            open.extend(self.client.list_allocations(&query).await?);
        }
        Ok(open)
    }

    /// Allocations whose runners had to leave, and of which Slurm may say why.
    async fn unexplained_allocations(
        &self,
        workflow: Option<WorkflowId>,
    ) -> Result<Vec<AllocationView>, Error> {
        let query = Query::new().add("unexplained", true);
        let query = match workflow {
            Some(id) => query.add("workflow_id", id),
            None => query,
        };
        self.client.list_allocations(&query).await
    }

    /// Takes back what waits in Slurm although nothing needs it any more. Only our own, by id and
    /// name, and only while it waits. Answers with the ids of those that Slurm was asked to end.
    pub async fn take_back(&self, workflow: Option<WorkflowId>) -> Result<Vec<String>, Error> {
        let query = Query::new().add("status", AllocationStatus::Pending);
        let query = match workflow {
            Some(id) => query.add("workflow_id", id),
            None => query,
        };
        let mut unneeded = self.client.list_allocations(&query).await?;
        unneeded.retain(|a| a.unneeded_since_ms.is_some());
        if unneeded.is_empty() {
            return Ok(Vec::new());
        }
        let known: Vec<Known> = unneeded.iter().map(known).collect();
        // When it does not answer they stay marked, and the next look tries again.
        let Ok(looks) = self.system.look(&known, now_ms()).await else { return Ok(Vec::new()) };
        let waits = |look: &Look| {
            matches!(look.verdict, Verdict::Alive { phase: AllocationPhase::Waiting, .. })
        };
        let ids: Vec<String> = looks
            .into_iter()
            .zip(&known)
            .filter(|(look, known)| waits(look) && look.slurm_job_id == known.slurm_job_id)
            .filter_map(|(look, _)| look.slurm_job_id)
            .collect();
        if !ids.is_empty() {
            self.system.cancel(&ids).await;
        }
        // Slurm's word is no proof, and some may have ended otherwise: a look tells.
        self.sync(workflow, false, false).await?;
        Ok(ids)
    }
}

fn known(row: &AllocationView) -> Known {
    Known {
        slurm_job_id: row.slurm_job_id.clone(),
        name: row.name.clone(),
        array_task: row.array_task,
        missing_since_ms: row.missing_since_ms,
        has_started: row.started_ms.is_some(),
    }
}

/// The file of this program. Linux marks one that was replaced while it ran; the file that stands
/// in its place is what new allocations start.
pub fn own_program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(undeleted(program))
}

fn undeleted(program: PathBuf) -> PathBuf {
    let text = program.as_os_str().as_encoded_bytes();
    match text.strip_suffix(b" (deleted)") {
        // A file may have such a name of its own.
        Some(path) if !program.exists() => PathBuf::from(std::ffi::OsStr::from_bytes(path)),
        _ => program,
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Whole or not at all, readable by its owner only from the first byte on.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&temporary, path)
}

/// A time of this machine's zone, as Slurm prints it, in ms since 1970.
pub fn local_ms(text: &str) -> Option<i64> {
    let civil: jiff::civil::DateTime = text.parse().ok()?;
    let zoned = civil.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(zoned.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_is_found_where_it_was() {
        let replaced = PathBuf::from("/nowhere/bin/torc (deleted)");
        assert_eq!(undeleted(replaced), PathBuf::from("/nowhere/bin/torc"));
        assert_eq!(undeleted("/nowhere/torc".into()), PathBuf::from("/nowhere/torc"));
        let dir = tempfile::tempdir().expect("a directory");
        let odd = dir.path().join("torc (deleted)");
        std::fs::write(&odd, "").expect("written");
        assert_eq!(undeleted(odd.clone()), odd, "its own name");
    }

    #[test]
    fn times_that_slurm_prints_are_of_this_machines_zone() {
        let now = jiff::Zoned::now().round(jiff::Unit::Second).expect("a second is a unit");
        let printed = now.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        assert_eq!(local_ms(&printed), Some(now.timestamp().as_millisecond()));
        assert_eq!(local_ms("N/A"), None);
    }
}

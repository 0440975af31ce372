//! The store: all state, behind one writer and a few readers. No SQL outside this folder; here it stands in
//! `journal`, which the writer uses, and in `read`, which the readers use.

mod access_groups;
mod act;
mod allocations;
mod auto;
mod bad_nodes;
mod cards;
mod claims;
mod classify;
mod crash_recovery;
mod create;
mod difference;
mod facts;
mod families;
mod forecast;
mod history;
mod id_marks;
mod import;
mod job_rows;
mod journal;
mod knowledge;
mod last_words;
mod leftovers;
mod map;
mod named;
mod names;
mod notifications;
mod outcomes;
mod page_sessions;
mod parked_claims;
mod people;
mod pool_runners;
mod pools;
pub mod read;
mod refusal;
mod regenerate;
mod remedies;
mod reservations;
mod revise;
mod rows;
mod runners;
mod shared_outputs;
mod spawn;
mod submissions;
mod tidy;
mod tokens;
mod unneeded;
mod waiting;
mod wakes;
mod webhooks;
mod why;
mod writer;

pub use knowledge::unknown as unknown_failure;

#[cfg(test)]
mod tests;

pub use crash_recovery::Trigger;
pub use create::{Creation, Maker};
pub use families::FamilyCounts;
pub use forecast::of_plan as forecast_plan;
pub(crate) use id_marks::KEY as ID_MARKS;
pub(crate) use journal::access::{AuditRow, forget_audit, insert_audit};
pub(crate) use load::runner_tag;
pub use refusal::Refusal;
pub use runners::LEASE_SECONDS;
pub(crate) use tidy::look as look_at_job_files;
pub use webhooks::Due as DueDelivery;
pub use why::{Waiting, WaitingJobs};
pub use writer::Progress;

use crate::blocking::blocking;
use journal::{load, lookups};
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{broadcast, watch};
use torc_engine::Explanation;
use torc_model::api::{
    ActionReport, CancelJobs, CreateFailureHandler, CreateReservation, CreateWebhook, DeliveryView,
    EventView, Goodbye, GoodbyeAnswer, Heartbeat, HeartbeatAnswer, ItemView, ItemsRequest,
    LimitView, RegisterPoolRunner, RegisterRunner, ReleaseReservation, ReservationToken,
    ReservationView, ResetRequest, ResetView, RetryJobs, RunnerRegistered, ShareView, SpawnJobs,
    SpawnedJobs, UpdateFailureHandler, UpdateJob, UpdateWorkflow, WebhookView,
};
use torc_model::ids::{ActionId, JobId, PoolRunnerId, RunnerId, WorkflowId};
use torc_model::recovery::{
    ClassifyRequest, ClassifyView, Knowledge, KnowledgeForgotten, KnowledgeTaken, RecoverJob,
    RecoverRequest, RecoverView,
};
use torc_model::slurm::wire::{
    AllocationView, Allocations, BeginSubmission, Observations, ObservedView, RegenerateRequest,
    RegeneratedView, ScheduleNodes, SubmissionOrders, SubmissionReport,
};
use torc_model::status::{DeliveryState, RunnerOrder};
use writer::Handle;

/// All changes of state go through here.
#[derive(Clone)]
pub struct Store {
    writer: Handle,
    database_id: Arc<str>,
}

impl Store {
    /// Takes over an open database.
    pub fn open(db: Connection) -> rusqlite::Result<Self> {
        let database_id = load::database_id(&db)?.into();
        Ok(Self { writer: Handle::start(db, None)?, database_id })
    }

    /// The same, and keeps a record in `marks` by which ids go on after a restore.
    pub fn open_with_marks(db: Connection, marks: std::path::PathBuf) -> rusqlite::Result<Self> {
        let database_id: Arc<str> = load::database_id(&db)?.into();
        let marks = id_marks::Marks::open(&db, marks, &database_id)?;
        Ok(Self { writer: Handle::start(db, Some(marks))?, database_id })
    }

    /// Random, made with the database: tokens of another database do not count in this one.
    pub fn database_id(&self) -> &str {
        &self.database_id
    }

    /// Waits until everything that was asked before is on disk.
    pub async fn flush(&self) -> Result<(), Refusal> {
        self.writer.call(|_| Ok(())).await
    }

    /// Changes whenever an action was triggered.
    pub fn triggers(&self) -> watch::Receiver<u64> {
        self.writer.shared.signals.triggers.subscribe()
    }

    /// Changes whenever allocations were planned.
    pub fn allocations(&self) -> watch::Receiver<u64> {
        self.writer.shared.signals.allocations.subscribe()
    }

    /// Committed events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<EventView>> {
        self.writer.shared.events.subscribe()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<crate::metrics::Metrics> {
        &self.writer.shared.metrics
    }

    /// Requests to change something that have not been answered yet.
    pub fn open_requests(&self) -> usize {
        self.writer.shared.open.load(Ordering::Relaxed)
    }

    /// Changes are carried out; false after a defect that only a new start mends.
    pub fn is_alive(&self) -> bool {
        self.writer.is_alive()
    }

    /// Where every workflow stands that was touched since the start. The number grows when some of
    /// that was forgotten.
    pub fn all_progress(&self) -> (std::collections::HashMap<WorkflowId, Progress>, u64) {
        let published = self.writer.shared.published();
        (published.progress.clone(), published.generation)
    }

    /// Where a workflow stands, when it was touched lately; otherwise the database knows. The
    /// second number changes with everything else that is shown with it.
    pub fn progress(&self, id: WorkflowId) -> Option<(Progress, u64)> {
        let published = self.writer.shared.published();
        published.progress.get(&id).map(|progress| (*progress, published.epoch))
    }

    /// Sends jobs back to uninitialized.
    pub async fn reset_status(
        &self,
        id: WorkflowId,
        request: ResetRequest,
    ) -> Result<ResetView, Refusal> {
        self.writer.call(move |tx| people::reset_status(tx, id, &request)).await
    }

    /// Stops everything that is not final.
    pub async fn cancel_workflow(&self, id: WorkflowId) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::cancel(tx, id)).await
    }

    /// Stops some jobs.
    pub async fn cancel_jobs(&self, request: CancelJobs) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::cancel_jobs(tx, &request.job_ids)).await
    }

    /// Deletes a workflow.
    pub async fn delete_workflow(&self, id: WorkflowId, force: bool) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::delete(tx, id, force)).await
    }

    /// Changes what a workflow says about itself.
    pub async fn update_workflow(
        &self,
        id: WorkflowId,
        update: UpdateWorkflow,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::update_workflow(tx, id, &update)).await
    }

    /// One more attempt of a job, with the four checks.
    pub async fn retry_job(
        &self,
        job: JobId,
        run_id: i64,
        max_retries: i64,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::retry(tx, job, run_id, max_retries)).await
    }

    /// One more attempt of each of these jobs, or of none.
    pub async fn retry_jobs(&self, request: RetryJobs) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::retry_jobs(tx, &request.jobs)).await
    }

    /// A running job adds jobs. `by_job`: it asks itself.
    pub async fn spawn_jobs(
        &self,
        job: JobId,
        request: SpawnJobs,
        by_job: bool,
    ) -> Result<SpawnedJobs, Refusal> {
        let piece = serde_json::Value::Object(request.piece.clone());
        let read = blocking(move || torc_spec::Spec::piece_from_value(piece));
        let read = read.await.map_err(|_| Refusal::internal("the piece could not be read"))?;
        let piece = read.map_err(submissions::wrong_spec)?.spec;
        let added =
            self.writer.call(move |tx| spawn::spawn(tx, job, &request, &piece, by_job)).await?;
        torc_failpoint::hit("spawn.committed");
        Ok(added)
    }

    /// Changes a job.
    pub async fn update_job(&self, job: JobId, update: UpdateJob) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::update_job(tx, job, &update)).await
    }

    /// Sets a piece of user data.
    pub async fn update_user_data(&self, row: i64, data: serde_json::Value) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::update_user_data(tx, row, &data)).await
    }

    /// A new failure handler; answers with its id.
    pub async fn create_failure_handler(&self, new: CreateFailureHandler) -> Result<i64, Refusal> {
        self.writer.call(move |tx| people::create_handler(tx, &new)).await
    }

    /// Changes a failure handler.
    pub async fn update_failure_handler(
        &self,
        row: i64,
        update: UpdateFailureHandler,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::update_handler(tx, row, &update)).await
    }

    /// Deletes a failure handler.
    pub async fn delete_failure_handler(&self, row: i64) -> Result<(), Refusal> {
        self.writer.call(move |tx| people::delete_handler(tx, row)).await
    }

    /// The items of a map, or of all maps.
    pub async fn items(
        &self,
        id: WorkflowId,
        job: Option<String>,
    ) -> Result<Vec<ItemView>, Refusal> {
        self.writer
            .call(move |tx| match &job {
                Some(job) => map::items(tx, id, job),
                None => map::all_items(tx, id),
            })
            .await
    }

    /// Runs items of a map again; answers with those.
    pub async fn retry_items(
        &self,
        id: WorkflowId,
        request: ItemsRequest,
    ) -> Result<Vec<ItemView>, Refusal> {
        self.writer.call(move |tx| map::retry(tx, id, &request)).await
    }

    /// Takes dead items of a map out of the count; answers with those.
    pub async fn drop_items(
        &self,
        id: WorkflowId,
        request: ItemsRequest,
    ) -> Result<Vec<ItemView>, Refusal> {
        self.writer.call(move |tx| map::drop_items(tx, id, &request)).await
    }

    /// Why a job is where it is, by the code that schedules.
    pub async fn explain(&self, job: JobId) -> Result<Explanation, Refusal> {
        self.writer.call(move |tx| why::explain(tx, job)).await
    }

    /// Why the jobs of a workflow that have not ended are where they are, grouped by reason.
    pub async fn explain_workflow(&self, id: WorkflowId) -> Result<why::Waiting, Refusal> {
        self.writer.call(move |tx| why::explain_workflow(tx, id)).await
    }

    /// Runs statements of the doctor that write again what follows from other rows.
    pub async fn settle(&self, sql: String) -> Result<(), Refusal> {
        self.writer.call(move |tx| Ok(tx.db.execute_batch(&sql)?)).await
    }

    /// Recovers what failed, as each diagnosis asks for, or tells what would be done.
    pub async fn recover_failed(
        &self,
        id: WorkflowId,
        request: RecoverRequest,
    ) -> Result<RecoverView, Refusal> {
        self.writer.call(move |tx| remedies::recover(tx, id, &request)).await
    }

    /// What a recovery would do about one job.
    pub async fn remedy(&self, id: WorkflowId, job: JobId) -> Result<Option<RecoverJob>, Refusal> {
        self.writer.call(move |tx| remedies::remedy(tx, id, job)).await
    }

    /// Takes verdicts on jobs that wait for one, all or none.
    pub async fn classify(
        &self,
        id: WorkflowId,
        request: ClassifyRequest,
    ) -> Result<ClassifyView, Refusal> {
        self.writer.call(move |tx| classify::classify(tx, id, &request)).await
    }

    /// Lets the record of earlier verdicts decide where it is strong.
    pub async fn classify_from_memory(
        &self,
        id: WorkflowId,
        dry_run: bool,
    ) -> Result<ClassifyView, Refusal> {
        self.writer.call(move |tx| classify::from_memory(tx, id, dry_run)).await
    }

    /// Carries out a verdict that waits for a person.
    pub async fn accept_classification(&self, row: i64, by: Option<String>) -> Result<(), Refusal> {
        self.writer.call(move |tx| classify::accept(tx, row, by.as_deref())).await
    }

    /// Drops a verdict that waits for a person.
    pub async fn reject_classification(&self, row: i64, by: Option<String>) -> Result<(), Refusal> {
        self.writer.call(move |tx| classify::reject(tx, row, by.as_deref())).await
    }

    /// Pauses claims in a scope.
    pub async fn create_reservation(
        &self,
        request: CreateReservation,
    ) -> Result<ReservationView, Refusal> {
        let token = new_token()?;
        self.writer.call(move |tx| reservations::create(tx, &request, &token)).await
    }

    /// A reservation.
    pub async fn reservation(&self, id: i64) -> Result<ReservationView, Refusal> {
        self.writer.call(move |tx| reservations::get(tx, id)).await
    }

    /// The newest reservations.
    pub async fn reservations(&self) -> Result<Vec<ReservationView>, Refusal> {
        self.writer.call(|tx| Ok(journal::limits::reservations(tx.db)?)).await
    }

    /// Gives a reservation more time.
    pub async fn renew_reservation(
        &self,
        id: i64,
        token: ReservationToken,
    ) -> Result<ReservationView, Refusal> {
        self.writer.call(move |tx| reservations::renew(tx, id, &token)).await
    }

    /// Ends a reservation.
    pub async fn release_reservation(
        &self,
        id: i64,
        request: ReleaseReservation,
    ) -> Result<ReservationView, Refusal> {
        self.writer.call(move |tx| reservations::release(tx, id, &request)).await
    }

    /// All named limits and their use.
    pub async fn limits(&self) -> Result<Vec<LimitView>, Refusal> {
        self.writer.call(|tx| Ok(reservations::limits(tx))).await
    }

    /// Sets a named limit.
    pub async fn set_limit(&self, name: String, max: i64) -> Result<LimitView, Refusal> {
        self.writer.call(move |tx| reservations::set_limit(tx, &name, max)).await
    }

    /// Removes a named limit.
    pub async fn delete_limit(&self, name: String) -> Result<(), Refusal> {
        self.writer.call(move |tx| reservations::delete_limit(tx, &name)).await
    }

    /// Takes in what was learned elsewhere.
    pub async fn take_knowledge(&self, known: Knowledge) -> Result<KnowledgeTaken, Refusal> {
        self.writer.call(move |tx| knowledge::take(tx, &known)).await
    }

    /// Forgets what is known of one failure, or of all.
    pub async fn forget_knowledge(
        &self,
        only: Option<String>,
    ) -> Result<KnowledgeForgotten, Refusal> {
        self.writer.call(move |tx| knowledge::forget(tx, only.as_deref())).await
    }

    /// All webhook endpoints.
    pub async fn webhooks(&self) -> Result<Vec<WebhookView>, Refusal> {
        self.writer.call(|tx| webhooks::list(tx)).await
    }

    /// One webhook endpoint.
    pub async fn webhook(&self, id: i64) -> Result<WebhookView, Refusal> {
        self.writer.call(move |tx| webhooks::get(tx, id)).await
    }

    /// Adds a webhook endpoint.
    pub async fn create_webhook(&self, request: CreateWebhook) -> Result<WebhookView, Refusal> {
        use base64::Engine as _;
        let mut bytes = [0u8; 24];
        getrandom::fill(&mut bytes)
            .map_err(|_| Refusal::internal("the system has no randomness to give"))?;
        let secret = format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(bytes));
        self.writer.call(move |tx| webhooks::create(tx, &request, &secret)).await
    }

    /// Removes a webhook endpoint.
    pub async fn delete_webhook(&self, id: i64) -> Result<(), Refusal> {
        self.writer.call(move |tx| webhooks::delete(tx, id)).await
    }

    /// An endpoint's newest deliveries.
    pub async fn deliveries(
        &self,
        webhook: i64,
        state: Option<DeliveryState>,
    ) -> Result<Vec<DeliveryView>, Refusal> {
        self.writer.call(move |tx| webhooks::deliveries(tx, webhook, state)).await
    }

    /// Tries a delivery again.
    pub async fn redeliver(&self, id: i64) -> Result<DeliveryView, Refusal> {
        self.writer.call(move |tx| webhooks::redeliver(tx, id)).await
    }

    /// Told whenever a delivery was written.
    pub fn outbox(&self) -> Arc<tokio::sync::Notify> {
        self.writer.shared.outbox.clone()
    }

    /// Deliveries to try now, and when the next one is due.
    pub async fn due_deliveries(
        &self,
        limit: i64,
    ) -> Result<(Vec<DueDelivery>, Option<i64>), Refusal> {
        self.writer.call(move |tx| Ok(journal::outbox::due(tx.db, limit, tx.now)?)).await
    }

    /// Notes how a try went.
    pub async fn delivery_tried(
        &self,
        id: i64,
        outcome: Result<(), String>,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| webhooks::tried(tx, id, &outcome)).await
    }

    /// Writes down that allocations are wanted.
    pub async fn schedule_nodes(&self, request: ScheduleNodes) -> Result<Allocations, Refusal> {
        let nonce = random()?;
        self.writer.call(move |tx| allocations::schedule(tx, &request, None, nonce)).await
    }

    /// Executes the triggered actions of a workflow that ask for nodes. Answers how many there
    /// were.
    pub async fn execute_schedules(&self, id: WorkflowId) -> Result<usize, Refusal> {
        let nonce = random()?;
        self.writer.call(move |tx| allocations::execute_actions(tx, id, nonce)).await
    }

    /// Workflows with triggered actions that ask for nodes.
    pub async fn workflows_with_schedules(&self) -> Result<Vec<WorkflowId>, Refusal> {
        self.writer.call(|tx| Ok(journal::actions::workflows_with_schedules(tx.db)?)).await
    }

    /// Gives a submitter what waits to be sent to Slurm.
    pub async fn begin_submission(
        &self,
        request: BeginSubmission,
    ) -> Result<SubmissionOrders, Refusal> {
        self.writer.call(move |tx| allocations::begin(tx, &request)).await
    }

    /// A submitter tells how it went.
    pub async fn report_submission(
        &self,
        report: SubmissionReport,
    ) -> Result<Allocations, Refusal> {
        self.writer.call(move |tx| allocations::submitted(tx, &report)).await
    }

    /// Gives up an allocation that waits.
    pub async fn cancel_allocation(&self, id: i64) -> Result<AllocationView, Refusal> {
        self.writer.call(move |tx| unneeded::cancel(tx, id)).await
    }

    /// Takes in what was seen of allocations in Slurm.
    pub async fn observe_allocations(&self, seen: Observations) -> Result<ObservedView, Refusal> {
        let (seen, left) = self
            .writer
            .call(move |tx| {
                let left = allocations::leftovers_of(tx, &seen)?;
                Ok((seen, left))
            })
            .await?;
        let mut looked = allocations::LookedAt::default();
        if !left.is_empty() && !seen.dry_run {
            looked = blocking(move || allocations::LookedAt::look(&left))
                .await
                .map_err(|_| Refusal::internal("the runners could not be looked for"))?;
        }
        self.writer.call(move |tx| allocations::observe(tx, &seen, &looked)).await
    }

    /// Gives jobs that still have to run new schedulers.
    pub async fn regenerate(
        &self,
        id: WorkflowId,
        request: RegenerateRequest,
    ) -> Result<RegeneratedView, Refusal> {
        let nonce = random()?;
        self.writer.call(move |tx| regenerate::regenerate(tx, id, &request, nonce)).await
    }

    /// A runner introduces itself.
    pub async fn register_runner(
        &self,
        request: RegisterRunner,
    ) -> Result<RunnerRegistered, Refusal> {
        self.writer.call(move |tx| runners::register(tx, &request)).await
    }

    /// Takes down what a person asks of a runner; None: that it works again.
    pub async fn order_runner(
        &self,
        id: RunnerId,
        ordered: Option<RunnerOrder>,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| runners::order(tx, id, ordered)).await
    }

    /// A pool runner introduces itself.
    pub async fn register_pool_runner(
        &self,
        request: RegisterPoolRunner,
        user: Option<String>,
    ) -> Result<PoolRunnerId, Refusal> {
        self.writer.call(move |tx| pool_runners::register(tx, &request, user.as_deref())).await
    }

    /// A pool runner leaves.
    pub async fn pool_goodbye(&self, id: PoolRunnerId, reason: String) -> Result<(), Refusal> {
        self.writer.call(move |tx| pool_runners::goodbye(tx, id, &reason)).await
    }

    /// Takes down what a person asks of a pool runner; None: that it works again.
    pub async fn order_pool_runner(
        &self,
        id: PoolRunnerId,
        ordered: Option<RunnerOrder>,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| pool_runners::order(tx, id, ordered)).await
    }

    /// How much of the pools users get beside others.
    pub async fn shares(&self) -> Result<Vec<ShareView>, Refusal> {
        self.writer.call(|tx| pool_runners::shares(tx)).await
    }

    /// Sets how much of the pools a user gets beside others.
    pub async fn set_share(&self, user: String, weight: f64) -> Result<ShareView, Refusal> {
        self.writer.call(move |tx| pool_runners::set_share(tx, &user, weight)).await
    }

    /// Owners or groups have changed, and with them what pools may see.
    pub async fn walls_changed(&self) -> Result<(), Refusal> {
        self.writer
            .call_routine(|tx| {
                tx.state.pools.forget_index();
                Ok(())
            })
            .await
    }

    /// A runner is alive.
    pub async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer, Refusal> {
        self.writer.call(move |tx| runners::heartbeat(tx, &beat)).await
    }

    /// A runner leaves.
    pub async fn goodbye(
        &self,
        runner: RunnerId,
        goodbye: Goodbye,
    ) -> Result<GoodbyeAnswer, Refusal> {
        self.writer.call(move |tx| runners::goodbye(tx, runner, &goodbye)).await
    }

    /// A runner executed an action.
    pub async fn complete_action(
        &self,
        action: ActionId,
        report: ActionReport,
    ) -> Result<(), Refusal> {
        self.writer.call(move |tx| runners::complete_action(tx, action, &report)).await
    }
}

fn new_token() -> Result<String, Refusal> {
    crate::secret::new_token()
        .map_err(|_| Refusal::internal("the system has no randomness to give"))
}

fn random() -> Result<u64, Refusal> {
    getrandom::u64().map_err(|_| Refusal::internal("the system has no randomness to give"))
}

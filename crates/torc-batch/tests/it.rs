//! A library server whose allocations are served by a batch system in memory: no `torc` program, no
//! Slurm. What is proved is that the allocator knows the trait alone.

use serde_json::json;
use std::time::Duration;
use torc_batch::memory::{Job, MemoryBatch};
use torc_batch::{Allocator, serve};
use torc_client::{Client, Query};
use torc_model::api::WorkflowCreated;
use torc_model::slurm::wire::{AllocationView, ScheduleNodes, SubmissionOutcome};
use torc_model::slurm::{AllocationPhase, Verdict};
use torc_model::status::{AllocationStatus, Cause};
use torc_server::{Options, RunningServer, Server};

struct World {
    server: RunningServer,
    client: Client,
    batch: MemoryBatch,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(Options::new(dir.path().join("state"))).await.expect("a server");
        let client = Client::with_ca(server.url(), server.token(), None).expect("a client");
        Self { server, client, batch: MemoryBatch::default(), dir }
    }

    /// A workflow whose only job waits for a node, and the request for one.
    async fn ask_for_a_node(&self) {
        let spec = json!({
            "name": "w",
            "jobs": [{"name": "a", "command": "true", "scheduler": "s"}],
            "slurm_schedulers": [{"name": "s", "account": "x", "walltime": "01:00:00"}],
        });
        let body = json!({"spec": spec, "initialize": true, "directory": self.dir.path()});
        let created: WorkflowCreated =
            self.client.post("/workflows", &body).await.expect("created");
        let wanted = ScheduleNodes {
            workflow_id: created.id.0,
            scheduler: "s".into(),
            count: 1,
            key: "k".into(),
            ..ScheduleNodes::default()
        };
        self.client.schedule_nodes(&wanted).await.expect("planned");
    }

    fn allocator(&self) -> Allocator<MemoryBatch> {
        Allocator::new(self.client.clone(), self.batch.clone(), None).expect("an allocator")
    }

    async fn allocation(&self) -> AllocationView {
        self.client.list_allocations(&Query::new()).await.expect("a list").remove(0)
    }
}

#[tokio::test]
async fn a_submission_whose_answer_was_lost_is_found_and_not_repeated() {
    let world = World::new().await;
    world.ask_for_a_node().await;
    world.batch.lose_answers(1);
    let sent = world.allocator().submit_waiting(None).await.expect("sent");
    assert_eq!(sent[0].outcome, SubmissionOutcome::Submitted("1".into()));
    assert_eq!(world.batch.jobs().len(), 1, "submitted once");
    assert!(world.allocator().submit_waiting(None).await.expect("nothing waits").is_empty());
    world.server.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_batch_system_ends_nothing_and_an_end_is_recorded() {
    let world = World::new().await;
    world.ask_for_a_node().await;
    world.allocator().submit_waiting(None).await.expect("sent");
    world.batch.be_unreachable(true);
    let seen = world.allocator().sync(None, false, false).await.expect("told");
    assert_eq!(seen.unreachable.as_deref(), Some("it does not answer"));
    assert_eq!(world.allocation().await.status, AllocationStatus::Pending);
    world.batch.be_unreachable(false);
    world.batch.end("1", Cause::Walltime);
    let seen = world.allocator().sync(None, false, false).await.expect("told");
    assert_eq!((seen.looked_at, seen.seen.allocations_ended), (1, 1));
    assert_eq!(world.allocation().await.status, AllocationStatus::Complete);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_job_that_is_missing_once_is_not_given_up() {
    let world = World::new().await;
    world.ask_for_a_node().await;
    world.allocator().submit_waiting(None).await.expect("sent");
    world.batch.forget("1");
    world.allocator().sync(None, false, false).await.expect("told");
    assert_eq!(world.allocation().await.status, AllocationStatus::Pending);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_library_server_serves_its_allocations() {
    let world = World::new().await;
    let (client, batch) = (world.client.clone(), world.batch.clone());
    let service = tokio::spawn(serve(client, batch, world.server.allocations()));
    world.ask_for_a_node().await;
    let waits =
        |job: &Job| matches!(job.verdict, Verdict::Alive { phase: AllocationPhase::Waiting, .. });
    let submitted = world.batch.submitted();
    tokio::time::timeout(Duration::from_secs(30), submitted).await.expect("submitted");
    assert!(world.batch.jobs().iter().any(waits));
    service.abort();
    world.server.shutdown().await;
}

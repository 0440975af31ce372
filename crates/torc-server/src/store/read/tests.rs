//! Every list and every single row against a real database file.

use super::*;
use crate::boot::{Database, Options};
use rusqlite::Connection;
use torc_model::api::RunnerUse;
use torc_model::api::{
    FailureHandlerView, FileView, RequirementsView, SlurmSchedulerView, UserDataView,
};
use torc_model::event::EventKind;
use torc_model::ids::{AttemptId, JobId, RunnerId, WorkflowId};
use torc_model::status::{AttemptState, Cause, JobStatus, RunnerState};

const NOW: i64 = 1_000_000;

/// Two workflows: the first with everything, the second to be left alone.
const ROWS: &str = r#"
    INSERT INTO workflow (id, name, user, description, project, metadata, settings, spec, created_ms, run_id,
                          run_started_ms, job_count)
        VALUES (1, 'first', 'ann', 'a sweep', 'p', '{"k": 1}', '{"use_pending_failed": true}', '{"jobs": []}', 10, 2, 20, 4),
               (2, 'second', 'bob', NULL, NULL, NULL, '{}', '{}', 11, 0, NULL, 1);
    UPDATE workflow SET is_archived = 1 WHERE id = 2;
    INSERT INTO resource_requirements (id, workflow_id, name, num_cpus, num_gpus, num_nodes, memory_bytes, runtime_seconds)
        VALUES (1, 1, 'big', 8, 1, 2, 8589934592, 9000);
    INSERT INTO failure_handler (id, workflow_id, name, rules) VALUES (1, 1, 'handler', '[]');
    INSERT INTO slurm_scheduler (id, workflow_id, name, definition)
        VALUES (1, 1, 'debug', '{"name": "x", "account": "acc", "nodes": 3, "walltime": "01:00:00"}');
    INSERT INTO job (id, workflow_id, name, command, status, priority, position, resource_requirements_id,
                     failure_handler_id, scheduler_id, memory_bytes, extra)
        VALUES (1, 1, 'prep', 'echo', 5, 0, 1, NULL, NULL, NULL, NULL, NULL),
               (2, 1, 'work_1', 'sleep', 4, 5, 2, 1, 1, 1, 17179869184, '{"uses": ["licence"]}'),
               (3, 1, 'work_2', 'false', 6, 0, 3, NULL, NULL, NULL, NULL, NULL),
               (4, 1, 'post', 'true', 1, 0, 4, NULL, NULL, NULL, NULL, NULL),
               (5, 2, 'prep', 'echo', 0, 0, 5, NULL, NULL, NULL, NULL, NULL);
    INSERT INTO job_depends_on VALUES (1, 2, 1), (1, 3, 1), (1, 4, 3), (1, 4, 2);
    INSERT INTO file (id, workflow_id, name, path, mtime_ms, size)
        VALUES (1, 1, 'in', 'in.txt', 5, 6), (2, 1, 'out', 'dir/out.txt', NULL, NULL);
    INSERT INTO user_data (id, workflow_id, name, data, is_ephemeral)
        VALUES (1, 1, 'config', '[1, 2]', 0), (2, 1, 'made', NULL, 1);
    INSERT INTO job_item VALUES (1, 'input_file', 1), (1, 'output_file', 2), (2, 'input_file', 2),
                                (1, 'output_user_data', 2), (2, 'input_user_data', 2);
    INSERT INTO compute_node (id, workflow_id, register_key, hostname, boot_id, pid, pid_start, kind, capacity,
                              output_dir, started_ms, last_seen_ms, ended_ms, end_reason)
        VALUES (1, 1, 'a', 'h1', 'b', 7, 8, 'local', '{"num_cpus": 4}', '/out', 1, 999000, NULL, NULL),
               (2, 1, 'b', 'h2', 'b', 7, 8, 'slurm', '{"num_cpus": 4}', '/out', 1, 100, NULL, NULL),
               (3, 1, 'c', 'h3', 'b', 7, 8, 'local', '{}', '/out', 1, 100, 200, 'done');
    INSERT INTO attempt (id, workflow_id, job_id, run_id, attempt_id, state, origin, retry_of, created_ms,
                         compute_node_id, token, started_ms, ended_ms, return_code, cause, evidence, recovery, stdout_path, ended_by)
        VALUES (1, 1, 1, 1, 1, 'completed', 'initial', NULL, 1, 1, 't', 2, 30, 0, NULL, NULL, NULL, '/out/1', 'runner'),
               (2, 1, 1, 2, 1, 'completed', 'initial', NULL, 1, 1, 't', 2, 40, 0, NULL, NULL, NULL, '/out/2', 'runner'),
               (3, 1, 3, 2, 1, 'failed', 'initial', NULL, 1, 1, 't', 2, 50, 3, 'exit',
                '[{"source": "exit", "text": "code 3"}]', NULL, NULL, 'runner'),
               (4, 1, 3, 2, 2, 'failed', 'handler', 3, 1, 1, 't', 2, 60, 137, 'oom', NULL,
                '{"script": "fix", "timeout_seconds": 600, "on_failure": "continue", "failed_attempt_id": 1, "return_code": 3}', NULL, 'runner'),
               (5, 1, 2, 2, 1, 'running', 'initial', NULL, 1, 1, 't', 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    INSERT INTO event (id, workflow_id, timestamp_ms, kind, job_id, data)
        VALUES (1, 1, 100, 'job_started', 1, '{}'), (2, 2, 100, 'workflow_created', NULL, '{}'),
               (3, 1, 200, 'job_failed', 3, '{"return_code": 3}');
    INSERT INTO workflow_action (id, workflow_id, trigger_type, what, job_ids, persistent, state)
        VALUES (1, 1, 'on_jobs_complete', '{"action_type": "run_commands", "commands": ["ls"]}', '[1, 2]', 0, 'waiting'),
               (2, 1, 'on_worker_start', '{"action_type": "run_commands", "commands": ["id"]}', '[]', 1, 'triggered');
"#;

struct Fixture {
    reader: Reader,
    database: Database,
    _dir: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(&Options::new(dir.path())).unwrap();
    database.writer.execute_batch(ROWS).unwrap();
    Fixture { reader: Reader::open(&database.path).unwrap(), database, _dir: dir }
}

fn all() -> Paging {
    Paging::default()
}

#[tokio::test]
async fn workflows_are_listed_and_read() {
    let Fixture { reader, .. } = &fixture();
    let list = async |filter| {
        let page = reader.list_workflows(filter, all()).await.unwrap();
        page.items.into_iter().map(|w| w.id.0).collect::<Vec<_>>()
    };
    let none = WorkflowFilter::default;
    assert_eq!(list(none()).await, [1, 2]);
    assert_eq!(list(WorkflowFilter { is_archived: Some(false), ..none() }).await, [1]);
    assert_eq!(list(WorkflowFilter { search: Some("sweep".into()), ..none() }).await, [1]);
    assert_eq!(list(WorkflowFilter { name: Some("second".into()), ..none() }).await, [2]);
    assert_eq!(list(WorkflowFilter { user: Some("bob".into()), ..none() }).await, [2]);
    let first = reader.get_workflow(WorkflowId(1)).await.unwrap();
    assert!(first.use_pending_failed);
    assert_eq!(first.notes.metadata, Some(serde_json::json!({"k": 1})));
    assert_eq!(reader.get_spec(WorkflowId(1)).await.unwrap(), serde_json::json!({"jobs": []}));
    assert_eq!(
        reader.get_workflow(WorkflowId(9)).await.unwrap_err().to_string(),
        "workflow 9 not found"
    );
    assert_eq!(
        reader.get_spec(WorkflowId(9)).await.unwrap_err().to_string(),
        "workflow 9 not found"
    );
    assert!(!reader.is_complete(WorkflowId(1), None).await.unwrap().is_complete);
}

#[tokio::test]
async fn status_counts_jobs_runners_and_the_last_end() {
    let Fixture { reader, .. } = &fixture();
    let status = reader.workflow_status(WorkflowId(1), NOW, None).await.unwrap();
    assert_eq!(status.counts.len(), JobStatus::ALL.len());
    let count = |s: JobStatus| status.counts[s.as_str()];
    assert_eq!(
        (
            count(JobStatus::Completed),
            count(JobStatus::Running),
            count(JobStatus::Failed),
            count(JobStatus::Blocked)
        ),
        (1, 1, 1, 1)
    );
    assert_eq!((status.total, status.active_runners, status.lost_contact_runners), (4, 1, 1));
    assert_eq!((status.started_ms, status.last_end_ms), (Some(20), Some(60)));
    let empty = reader.workflow_status(WorkflowId(2), NOW, None).await.unwrap();
    assert_eq!((empty.active_runners, empty.last_end_ms), (0, None));
    assert!(reader.workflow_status(WorkflowId(9), NOW, None).await.is_err());
}

#[tokio::test]
async fn jobs_are_filtered_and_show_what_they_point_to() {
    let Fixture { reader, .. } = &fixture();
    let names = async |filter| {
        let page = reader.list_jobs(filter, all(), None).await.unwrap();
        assert_eq!(page.total_count, page.items.len() as i64);
        page.items.into_iter().map(|j| j.name).collect::<Vec<_>>().join(" ")
    };
    let of = |id| JobFilter { workflow_id: Some(id), ..JobFilter::default() };
    assert_eq!(names(of(1)).await, "prep work_1 work_2 post");
    assert_eq!(
        names(JobFilter { status: vec![JobStatus::Failed, JobStatus::Running], ..of(1) }).await,
        "work_1 work_2"
    );
    assert_eq!(names(JobFilter { search: Some("work_".into()), ..of(1) }).await, "work_1 work_2");
    assert_eq!(
        names(JobFilter { name: Some("prep".into()), ..JobFilter::default() }).await,
        "prep prep"
    );
    assert_eq!(names(JobFilter { upstream_job_id: Some(1), ..of(1) }).await, "work_1 work_2");
    assert_eq!(names(JobFilter { needs_file_id: Some(2), ..of(1) }).await, "work_1");
    assert_eq!(names(JobFilter { compute_node_id: Some(1), ..of(1) }).await, "work_1");
    assert_eq!(names(JobFilter { compute_node_id: Some(2), ..of(1) }).await, "");
    assert_eq!(names(JobFilter { held: Some(true), ..of(1) }).await, "");

    let job = reader.get_job(JobId(2)).await.unwrap();
    assert_eq!(job.resource_requirements.as_deref(), Some("big"));
    assert_eq!((job.num_cpus, job.num_gpus, job.num_nodes), (8, 1, 2));
    assert_eq!((job.memory.as_deref(), job.runtime.as_deref()), (Some("16g"), Some("PT2H30M")));
    assert_eq!(
        (job.failure_handler.as_deref(), job.scheduler.as_deref()),
        (Some("handler"), Some("debug"))
    );
    assert_eq!(job.depends_on_job_ids, Some(vec![JobId(1)]));
    assert_eq!(job.extra, Some(serde_json::json!({"uses": ["licence"]})));
    let failed = reader.get_job(JobId(3)).await.unwrap();
    assert_eq!((failed.return_code, failed.num_cpus, failed.memory), (Some(137), 1, None));
    assert_eq!(reader.workflow_of_job(JobId(5)).await.unwrap(), WorkflowId(2));
    assert!(reader.workflow_of_job(JobId(50)).await.is_err());
}

#[tokio::test]
async fn attempts_and_results_are_listed() {
    let Fixture { reader, .. } = &fixture();
    let attempts = reader.list_attempts(JobId(3), all()).await.unwrap();
    assert_eq!(attempts.items.iter().map(|a| a.attempt_id).collect::<Vec<_>>(), [1, 2]);
    let retry = &attempts.items[1];
    assert_eq!(
        (retry.retry_of, retry.hostname.as_deref(), retry.job_name.as_str()),
        (Some(AttemptId(3)), Some("h1"), "work_2")
    );
    assert_eq!(retry.recovery.as_ref().unwrap().script, "fix");
    assert_eq!(attempts.items[0].evidence[0].text, "code 3");
    let results = async |filter| {
        let page = reader.list_results(filter, all()).await.unwrap();
        page.items.into_iter().map(|a| a.id.0).collect::<Vec<_>>()
    };
    let of_first = || AttemptFilter { workflow_id: Some(1), ..AttemptFilter::default() };
    assert_eq!(results(of_first()).await, [1, 2, 3, 4]);
    assert_eq!(results(AttemptFilter { latest: true, ..of_first() }).await, [2, 4]);
    assert_eq!(results(AttemptFilter { run_id: Some(2), ..of_first() }).await, [2, 3, 4]);
    assert_eq!(results(AttemptFilter { cause: Some(Cause::Oom), ..of_first() }).await, [4]);
    assert_eq!(
        results(AttemptFilter { state: Some(AttemptState::Completed), ..of_first() }).await,
        [1, 2]
    );
    assert_eq!(results(AttemptFilter { return_code: Some(3), ..of_first() }).await, [3]);
    assert_eq!(results(AttemptFilter { compute_node_id: Some(3), ..of_first() }).await, [0i64; 0]);
    assert_eq!(results(AttemptFilter { workflow_id: Some(2), ..of_first() }).await, [0i64; 0]);
    assert_eq!(reader.get_attempt(AttemptId(5)).await.unwrap().state, AttemptState::Running);

    let logs = reader.find_logs(JobId(1), None, None).await.unwrap().unwrap();
    assert_eq!((logs.run_id, logs.stdout_path.as_deref()), (2, Some("/out/2")));
    assert_eq!(reader.find_logs(JobId(1), Some(1), None).await.unwrap().unwrap().run_id, 1);
    assert_eq!(reader.find_logs(JobId(4), None, None).await.unwrap(), None);
}

#[tokio::test]
async fn events_follow_a_cursor() {
    let Fixture { reader, .. } = &fixture();
    let ids = async |filter| {
        let page = reader.list_events(WorkflowId(1), filter, all()).await.unwrap();
        page.items.into_iter().map(|e| e.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(EventFilter::default()).await, [1, 3]);
    assert_eq!(ids(EventFilter { after: Some(1), ..Default::default() }).await, [3]);
    assert_eq!(
        ids(EventFilter { kind: Some(EventKind::JobStarted), ..Default::default() }).await,
        [1]
    );
    assert_eq!(ids(EventFilter { job_id: Some(3), ..Default::default() }).await, [3]);
    assert_eq!(ids(EventFilter { since_ms: Some(150), ..Default::default() }).await, [3]);
    assert_eq!(reader.next_events(WorkflowId(1), 0, 1).await.unwrap()[0].id, 1);
    assert_eq!(reader.last_event_id(WorkflowId(1)).await.unwrap(), 3);
    assert_eq!(reader.last_event_id(WorkflowId(9)).await.unwrap(), 0);
}

#[tokio::test]
async fn live_runners_show_what_their_attempts_hold() {
    let Fixture { reader, database, .. } = &fixture();
    let page = reader.list_runners(RunnerFilter::default(), all(), NOW).await.unwrap();
    let holds = RunnerUse { num_cpus: 8, memory_bytes: 16 << 30, num_gpus: 1 };
    let used: Vec<_> = page.items.iter().map(|runner| runner.used).collect();
    assert_eq!(used, [holds, RunnerUse::default(), RunnerUse::default()]);
    assert_eq!(reader.get_runner(RunnerId(1), NOW).await.unwrap().used, holds);
    // A job on several nodes takes whole ones.
    let spread =
        r#"{"num_cpus": 6, "memory_bytes": 100, "num_gpus": 2, "num_nodes": 3, "spreads": true}"#;
    let sql = "UPDATE compute_node SET capacity = ?1 WHERE id = 1";
    database.writer.execute(sql, [spread]).unwrap();
    let holds = RunnerUse { num_cpus: 12, memory_bytes: 200, num_gpus: 4 };
    assert_eq!(reader.get_runner(RunnerId(1), NOW).await.unwrap().used, holds);
}

#[tokio::test]
async fn runners_show_whether_they_are_in_contact() {
    let Fixture { reader, .. } = &fixture();
    let page = reader.list_runners(RunnerFilter::default(), all(), NOW).await.unwrap();
    let states: Vec<_> = page.items.iter().map(|r| (r.state, r.held)).collect();
    assert_eq!(
        states,
        [(RunnerState::Active, 1), (RunnerState::LostContact, 0), (RunnerState::Ended, 0)]
    );
    let active = RunnerFilter { is_active: Some(true), ..RunnerFilter::default() };
    assert_eq!(reader.list_runners(active, all(), NOW).await.unwrap().total_count, 2);
    let one = reader.get_runner(RunnerId(1), NOW).await.unwrap();
    assert_eq!((one.capacity.num_cpus, one.held), (4, 1));
    assert_eq!(reader.workflow_of_runner(RunnerId(2)).await.unwrap(), WorkflowId(1));
}

#[tokio::test]
async fn smaller_lists_are_filtered_too() {
    let Fixture { reader, .. } = &fixture();
    let actions = reader.list_actions(WorkflowId(1), ActionFilter::default(), all()).await.unwrap();
    assert_eq!(actions.items[0].job_ids, [JobId(1), JobId(2)]);
    let waiting = ActionFilter {
        state: Some(torc_model::status::ActionState::Waiting),
        ..Default::default()
    };
    assert_eq!(reader.list_actions(WorkflowId(1), waiting, all()).await.unwrap().total_count, 1);
    assert!(reader.get_action(torc_model::ids::ActionId(2)).await.unwrap().persistent);

    let produced = FileFilter { produced_by_job_id: Some(1), ..Default::default() };
    assert_eq!(reader.list::<FileView>(produced, all()).await.unwrap().items[0].name, "out");
    let needed = FileFilter { needed_by_job_id: Some(1), ..Default::default() };
    assert_eq!(reader.list::<FileView>(needed, all()).await.unwrap().items[0].name, "in");
    let search = FileFilter { search: Some("dir/".into()), ..Default::default() };
    assert_eq!(reader.list::<FileView>(search, all()).await.unwrap().total_count, 1);
    assert_eq!(reader.get::<FileView>(1).await.unwrap().size, Some(6));

    let consumed = UserDataFilter { consumer_job_id: Some(2), ..Default::default() };
    assert_eq!(reader.list::<UserDataView>(consumed, all()).await.unwrap().items[0].name, "made");
    assert_eq!(reader.get::<UserDataView>(1).await.unwrap().data, Some(serde_json::json!([1, 2])));

    let of_job = RequirementsFilter { job_id: Some(2), ..Default::default() };
    assert_eq!(
        reader.list::<RequirementsView>(of_job, all()).await.unwrap().items[0].memory.as_deref(),
        Some("8g")
    );
    assert_eq!(
        reader.get::<RequirementsView>(1).await.unwrap().runtime.as_deref(),
        Some("PT2H30M")
    );
    assert_eq!(reader.get::<FailureHandlerView>(1).await.unwrap().name, "handler");
    assert_eq!(
        reader.list::<FailureHandlerView>(Default::default(), all()).await.unwrap().total_count,
        1
    );
    let scheduler = reader.get::<SlurmSchedulerView>(1).await.unwrap().scheduler;
    assert_eq!((scheduler.name.as_str(), scheduler.nodes), ("debug", 3));
    assert_eq!(
        reader.list::<SlurmSchedulerView>(Default::default(), all()).await.unwrap().total_count,
        1
    );
}

#[tokio::test]
async fn a_read_can_not_write() {
    let Fixture { reader, .. } = &fixture();
    let write =
        reader.read(|connection: &Connection| Ok(connection.execute("DELETE FROM job", [])?)).await;
    assert!(matches!(write, Err(ReadError::Database(_))));
    // The connection of a failed read is not used again, and the next one works.
    assert_eq!(reader.list_jobs(JobFilter::default(), all(), None).await.unwrap().total_count, 5);
}

#[tokio::test]
async fn more_readers_than_connections_take_turns() {
    let Fixture { reader, .. } = &fixture();
    let reads: Vec<_> = (0..32)
        .map(|_| {
            let reader = reader.clone();
            tokio::spawn(async move {
                reader.workflow_status(WorkflowId(1), NOW, None).await.unwrap().total
            })
        })
        .collect();
    for read in reads {
        assert_eq!(read.await.unwrap(), 4);
    }
}

/// The plans that keep lists quick in a workflow of any size: the page is found in an index alone.
#[test]
fn pages_are_found_without_reading_whole_tables() {
    let Fixture { database, .. } = &fixture();
    let plan = |sql: &str| -> String {
        let mut statement = database.writer.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let count = statement.parameter_count();
        let rows = statement
            .query_map(rusqlite::params_from_iter(vec![1; count]), |row| row.get::<_, String>(3));
        rows.unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n")
    };
    for (sql, index) in [
        (
            "SELECT j.id FROM job j WHERE j.workflow_id = ? ORDER BY j.id LIMIT 5",
            "COVERING INDEX job_by_workflow",
        ),
        (
            "SELECT j.id FROM job j WHERE j.status IN (3, 4) AND j.workflow_id = ?
             AND j.status IN (SELECT value FROM json_each(?)) ORDER BY j.id LIMIT 5",
            "INDEX job_held",
        ),
        (
            "SELECT j.id FROM job j WHERE j.status >= 6 AND j.status <> 9 AND j.workflow_id = ?
             AND j.status IN (SELECT value FROM json_each(?)) ORDER BY j.id LIMIT 5",
            "INDEX job_bad",
        ),
        (
            "SELECT id FROM attempt WHERE workflow_id = ? AND ended_ms IS NULL",
            "INDEX attempt_one_live",
        ),
        (
            "SELECT DISTINCT workflow_id FROM attempt WHERE ended_ms IS NULL",
            "INDEX attempt_one_live",
        ),
        (
            "SELECT max(ended_ms) FROM attempt WHERE workflow_id = ? AND ended_ms IS NOT NULL",
            "COVERING INDEX attempt_ended",
        ),
        (
            "SELECT a.id FROM attempt a WHERE a.ended_ms IS NOT NULL AND a.workflow_id = ? ORDER BY a.ended_ms, a.id LIMIT 5",
            "COVERING INDEX attempt_ended",
        ),
        (
            "SELECT e.id FROM event e WHERE e.workflow_id = ? AND e.id > ? ORDER BY e.id LIMIT 5",
            "PRIMARY KEY (workflow_id=? AND id>?)",
        ),
    ] {
        let plan = plan(sql);
        assert!(plan.contains(index), "{sql}\n{plan}");
    }
}

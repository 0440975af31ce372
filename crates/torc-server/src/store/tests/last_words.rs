//! Attempts that were stopped with their allocation get their cause, whenever it becomes known.

use super::allocations::plan;
use super::*;
use crate::store::writer::{Failed, Tx};
use torc_engine::Lost;
use torc_engine::commands::EndRunner;
use torc_model::api::{CompletionBatch, Evidence};
use torc_model::slurm::wire::{Observation, Observations, ObservedView, SubmissionOutcome};
use torc_model::slurm::{AllocationEnding, Verdict, state};
use torc_model::status::{EndDetail, EvidenceSource, Trigger};
use torc_model::words;

/// A runner works in allocation 1.
async fn running() -> Fixture {
    let mut f = Fixture::new(plan()).await;
    f.store.execute_schedules(f.id).await.expect("executed");
    let orders = f.begin("me").await;
    f.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
    f.runner = f.register_in(1, "77_0").await.expect("registered");
    f
}

/// It was told to stop, and left in good order.
async fn stopped(cause: Option<Cause>) -> Fixture {
    let mut f = running().await;
    f.stop(cause.unwrap_or(Cause::Stopped)).await;
    f
}

impl Fixture {
    /// Reports an end and wants nothing more.
    async fn end(&self, end: CompletionReport) {
        let batch = CompletionBatch { runner_id: self.runner, items: vec![end] };
        self.store.complete(batch).await.expect("taken");
    }

    async fn stop(&mut self, cause: Cause) {
        let work = self.claim(vec![]).await.attempts;
        let end = CompletionReport {
            cause: Some(cause),
            detail: Some(EndDetail::ToldToStop),
            ..ended(&work[0], 143)
        };
        self.end(end).await;
        self.leave(Some(cause)).await;
    }

    pub async fn leave(&mut self, cause: Option<Cause>) {
        self.store
            .goodbye(self.runner, Goodbye { reason: "told to stop".into(), cause })
            .await
            .expect("left");
    }

    async fn slurm_says(&self, word: &str, before: Option<AllocationEnding>) -> ObservedView {
        let verdict = state::verdict(word, None);
        let items = vec![Observation {
            id: 1,
            verdict,
            slurm_job_id: None,
            is_missing: false,
            before,
            expected_start_ms: None,
            moves: None,
        }];
        self.store
            .observe_allocations(Observations { items, dry_run: false })
            .await
            .expect("observed")
    }

    async fn causes(&self) -> Vec<String> {
        let sql = "SELECT coalesce(cause, state) || ' ' || coalesce(evidence ->> '$[#-1].text', '') FROM attempt
                   WHERE ended_ms IS NOT NULL ORDER BY id";
        self.texts(sql).await
    }

    async fn texts(&self, sql: &'static str) -> Vec<String> {
        let read = move |tx: &mut Tx<'_>| {
            let mut statement = tx.db.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<Result<Vec<_>, _>>()?)
        };
        self.store.writer.call(read).await.expect("texts")
    }
}

const ALLOCATION: &str = "SELECT status || ' ' || state || ' ' || coalesce(cause, '') FROM scheduled_compute_node WHERE id = 1";

#[tokio::test]
async fn what_slurm_says_later_becomes_the_cause() {
    for (word, cause) in
        [("PREEMPTED", "preempted"), ("NODE_FAIL", "node_fail"), ("TIMEOUT", "walltime")]
    {
        let f = stopped(None).await;
        assert_eq!(f.causes().await, ["stopped "]);
        assert_eq!(f.texts(ALLOCATION).await, ["complete LEFT stopped"]);
        assert_eq!(f.slurm_says("COMPLETING", None).await.attempts_explained, 0);
        let seen = f.slurm_says(word, None).await;
        assert_eq!((seen.attempts_explained, seen.allocations_ended), (1, 0), "{seen:?}");
        let [told] = &f.causes().await[..] else { panic!("one attempt has ended") };
        assert!(told.starts_with(&format!("{cause} Slurm job 77_0: Slurm says {word}")), "{told}");
        assert_eq!(f.texts(ALLOCATION).await, [format!("complete {word} {cause}")]);
        let event =
            "SELECT data ->> 'cause' FROM event WHERE kind = 'attempt_explained' AND job_id = 1";
        assert_eq!(f.texts(event).await, [cause]);
        // Free, as it was.
        assert_eq!(f.statuses().await[0], ("a".into(), 2, 2));
        assert_eq!(f.scalar("SELECT refunds * 10 + lost_retries FROM job WHERE id = 1").await, 10);
        assert_eq!(f.slurm_says(word, None).await.attempts_explained, 0, "said once");
    }
}

#[tokio::test]
async fn what_explains_nothing_changes_no_cause() {
    // Out of memory is about one of its jobs, and not about those that were stopped.
    for word in ["CANCELLED", "COMPLETED", "FAILED", "OUT_OF_MEMORY"] {
        let f = stopped(None).await;
        assert_eq!(f.slurm_says(word, None).await.attempts_explained, 0);
        assert_eq!(f.causes().await, ["stopped "]);
        assert_eq!(f.texts(ALLOCATION).await, [format!("complete {word} stopped")]);
    }
    let f = stopped(None).await;
    f.observe(1, Verdict::Ended(AllocationEnding::vanished()), true).await;
    assert_eq!(f.texts(ALLOCATION).await, ["complete LEFT stopped"]);
    // What the runner knew is not forgotten.
    let f = stopped(Some(Cause::Preempted)).await;
    assert_eq!(f.causes().await, ["preempted "]);
    f.slurm_says("COMPLETED", None).await;
    assert_eq!(f.texts(ALLOCATION).await, ["complete COMPLETED preempted"]);
}

#[tokio::test]
async fn a_requeued_allocation_waits_again_and_accounting_tells_why() {
    let mut f = stopped(None).await;
    let Verdict::Ended(before) = state::verdict("PREEMPTED", None) else { panic!("it is an end") };
    let seen = f.slurm_says("PENDING", Some(before)).await;
    assert_eq!(seen.attempts_explained, 1, "{seen:?}");
    assert_eq!(f.texts(ALLOCATION).await, ["pending PENDING "]);
    // Its second life ends otherwise: that says nothing about the first.
    let back = |tx: &mut Tx<'_>| {
        tx.db.execute_batch("UPDATE compute_node SET started_ms = started_ms - 9")?;
        Ok(())
    };
    f.store.writer.call(back).await.expect("moved back");
    f.runner = f.register_in(1, "77_0").await.expect("registered");
    assert_eq!(f.texts(ALLOCATION).await, ["active RUNNING "]);
    f.stop(Cause::Stopped).await;
    f.slurm_says("NODE_FAIL", None).await;
    let causes = f.causes().await;
    assert!(
        causes[0].starts_with("preempted ") && causes[1].starts_with("node_fail "),
        "{causes:?}"
    );
}

#[tokio::test]
async fn without_accounting_a_requeue_explains_nothing() {
    let f = stopped(None).await;
    assert_eq!(f.slurm_says("PENDING", None).await.attempts_explained, 0);
    assert_eq!(
        (f.texts(ALLOCATION).await, f.causes().await),
        (vec!["pending PENDING ".into()], vec!["stopped ".into()])
    );
}

#[tokio::test]
async fn one_runner_of_an_allocation_may_know_for_all() {
    let mut f = running().await;
    let first = f.runner;
    let other = f.register_on(1, 1, "77_0").await.expect("registered");
    f.stop(Cause::Stopped).await;
    assert_eq!(f.texts(ALLOCATION).await, ["active RUNNING "], "one of its runners is still there");
    assert_ne!(first, other);
    f.runner = other;
    f.leave(Some(Cause::Preempted)).await;
    assert_eq!(f.texts(ALLOCATION).await, ["complete LEFT preempted"]);
    assert_eq!(f.causes().await, ["preempted told to stop"]);
}

fn end_runner(
    tx: &mut Tx<'_>,
    runner: RunnerId,
    workflow: WorkflowId,
    lost: &Lost,
) -> Result<usize, Failed> {
    let gone = EndRunner { runner, workflow, lost, reason: "gone", unbegun: &[] };
    crate::store::runners::end_runner(tx, gone)
}

#[tokio::test]
async fn a_runner_that_was_found_dead_died_of_what_slurm_says() {
    let mut f = running().await;
    f.claim(vec![]).await;
    let dead = Lost {
        cause: Cause::Lost,
        evidence: Evidence { source: EvidenceSource::Node, text: "gone".into() },
    };
    let (runner, id) = (f.runner, f.id);
    let find = move |tx: &mut Tx<'_>| end_runner(tx, runner, id, &dead);
    f.store.writer.call(find).await.expect("ended");
    assert_eq!(f.causes().await, [format!("lost {}", words::message("gone"))]);
    let seen = f.slurm_says("NODE_FAIL", None).await;
    assert_eq!((seen.attempts_explained, seen.allocations_ended), (1, 1), "{seen:?}");
    let cause = &f.causes().await[0];
    assert!(cause.starts_with("node_fail ") && words::has(cause, "Slurm job 77_0"), "{cause}");
    // It is a loss all the same.
    assert_eq!(f.scalar("SELECT lost_retries FROM job WHERE id = 1").await, 1);
}

#[tokio::test]
async fn a_runner_that_died_long_before_the_others_died_of_something_else() {
    let mut f = running().await;
    let first = f.runner;
    let other = f.register_on(1, 1, "77_0").await.expect("registered");
    f.claim(vec![]).await;
    let dead = Lost {
        cause: Cause::Lost,
        evidence: Evidence { source: EvidenceSource::Node, text: "gone".into() },
    };
    let id = f.id;
    let find = move |tx: &mut Tx<'_>| {
        end_runner(tx, first, id, &dead)?;
        Ok(tx.db.execute(
            "UPDATE compute_node SET ended_ms = ended_ms - 600000 WHERE id = ?1",
            [first.0],
        )?)
    };
    f.store.writer.call(find).await.expect("ended");
    f.runner = other;
    f.leave(Some(Cause::Stopped)).await;
    assert_eq!(f.slurm_says("TIMEOUT", None).await.attempts_explained, 0);
    assert_eq!(f.causes().await, [format!("lost {}", words::message("gone"))]);
}

#[tokio::test]
async fn an_allocation_that_was_too_short_gets_no_successor_by_itself() {
    for (seconds, is_asked) in [(600.0, 0), (0.0, 1)] {
        let mut plan = plan();
        plan.actions[0].trigger = Trigger::AutoScheduleOnReadyJobs;
        let mut f = Fixture::new(plan).await;
        let request = torc_model::slurm::wire::ScheduleNodes {
            workflow_id: f.id.0,
            scheduler: "s".into(),
            count: 1,
            key: "by hand".into(),
            ..Default::default()
        };
        f.store.schedule_nodes(request).await.expect("made");
        let orders = f.begin("me").await;
        f.report(&orders[0].name, SubmissionOutcome::Submitted("77".into())).await;
        f.runner = f.register_in(1, "77").await.expect("registered");
        let work = f.claim(vec![]).await.attempts;
        let back = |tx: &mut Tx<'_>| {
            tx.db.execute_batch("UPDATE compute_node SET started_ms = started_ms - 600000")?;
            tx.db.execute_batch(
                "UPDATE scheduled_compute_node SET started_ms = started_ms - 600000",
            )?;
            Ok(())
        };
        f.store.writer.call(back).await.expect("moved back");
        let end = ended(&work[0], 143);
        f.end(CompletionReport { cause: Some(Cause::Walltime), exec_seconds: seconds, ..end })
            .await;
        f.leave(Some(Cause::Walltime)).await;
        assert_eq!(f.statuses().await[0], ("a".into(), 2, 2), "it goes back at no cost");
        f.store.execute_schedules(f.id).await.expect("looked");
        let asked = "SELECT count(*) - 1 FROM scheduled_compute_node";
        assert_eq!(
            f.scalar(asked).await,
            is_asked,
            "it ran for {seconds} s of its allocation's 600"
        );
        assert_eq!(
            f.scalar("SELECT was_too_short FROM scheduled_compute_node WHERE id = 1").await,
            1
        );
    }
}

#[tokio::test]
async fn nothing_else_of_an_ended_attempt_changes() {
    let f = stopped(None).await;
    let columns = f.texts("SELECT name FROM pragma_table_info('attempt')").await;
    let mut tries: Vec<String> = columns
        .iter()
        .map(|column| format!("UPDATE attempt SET {column} = {column} WHERE ended_ms IS NOT NULL"))
        .collect();
    tries.extend(
        [
            "UPDATE attempt SET cause = 'oom' WHERE ended_ms IS NOT NULL",
            "UPDATE attempt SET evidence = '[]' WHERE ended_ms IS NOT NULL",
            "UPDATE attempt SET cause = 'preempted', return_code = 0 WHERE ended_ms IS NOT NULL",
            "UPDATE attempt SET cause = 'preempted', state = 'completed' WHERE ended_ms IS NOT NULL",
        ]
        .map(String::from),
    );
    for sql in tries {
        let tried = sql.clone();
        let refused = f.store.writer.call(move |tx| Ok(tx.db.execute(&tried, [])?)).await;
        assert!(refused.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn an_ended_attempt_is_given_once_a_cause_that_says_its_nodes_were_taken_away() {
    for cause in Cause::ALL.iter().copied() {
        let f = stopped(None).await;
        let give = async |cause: Cause| {
            let sql = "UPDATE attempt SET cause = ? WHERE ended_ms IS NOT NULL";
            f.store.writer.call(move |tx| Ok(tx.db.execute(sql, [cause.as_str()])?)).await.is_ok()
        };
        assert_eq!(give(cause).await, cause.is_taken_away(), "{}", cause.as_str());
        assert!(!cause.is_taken_away() || !give(Cause::Walltime).await, "once");
    }
}

//! Claims that wait are answered by the writer.

use super::*;

impl Fixture {
    /// A runner of this many CPUs whose claim waits in the writer.
    async fn waits(&mut self, key: &str, cpus: i64) -> tokio::task::JoinHandle<Vec<String>> {
        self.register(key).await;
        let capacity = Capacity { num_cpus: cpus, ..capacity() };
        let request = ClaimRequest { capacity, wait_seconds: 30.0, ..self.request(key, vec![]) };
        let (store, id, before) = (self.store.clone(), self.id, self.waiting().await);
        let claim = tokio::spawn(async move {
            let answer = store.claim(id, request).await.expect("claimed");
            answer.attempts.iter().map(|attempt| attempt.job_name.clone()).collect()
        });
        while self.waiting().await == before {
            tokio::task::yield_now().await;
        }
        claim
    }

    async fn waiting(&self) -> usize {
        let id = self.id;
        let count = move |tx: &mut Tx<'_>| Ok(tx.state.parked.count(id));
        self.store.writer.call_routine(count).await.expect("counted")
    }

    async fn completes(&self, attempt: &torc_model::api::AttemptPacket) {
        let batch = CompletionBatch { runner_id: self.runner, items: vec![ended(attempt, 0)] };
        self.store.complete(batch).await.expect("completed");
    }
}

#[tokio::test]
async fn of_runners_that_wait_the_one_with_the_least_room_is_served_first() {
    let mut f = Fixture::new(diamond()).await;
    let (reporter, first) = (f.runner, f.claim(vec![]).await);
    // The wide one has waited longer and could take both jobs.
    let wide = f.waits("wide", 8).await;
    let narrow = f.waits("narrow", 1).await;
    f.runner = reporter;
    f.completes(&first.attempts[0]).await;
    assert_eq!(narrow.await.expect("joined"), ["b"]);
    assert_eq!(wide.await.expect("joined"), ["c"]);
    assert_eq!(f.waiting().await, 0);
}

#[tokio::test]
async fn of_equal_runners_that_wait_the_one_that_asked_first_is_served_first() {
    let mut f = Fixture::new(diamond()).await;
    let (reporter, first) = (f.runner, f.claim(vec![]).await);
    let earlier = f.waits("earlier", 1).await;
    let later = f.waits("later", 1).await;
    f.runner = reporter;
    f.completes(&first.attempts[0]).await;
    assert_eq!(earlier.await.expect("joined"), ["b"]);
    assert_eq!(later.await.expect("joined"), ["c"]);
}

#[tokio::test]
async fn a_claim_whose_caller_has_gone_is_given_nothing() {
    let mut f = Fixture::new(diamond()).await;
    let (reporter, first) = (f.runner, f.claim(vec![]).await);
    let gone = f.waits("gone", 4).await;
    gone.abort();
    assert!(gone.await.is_err(), "it was aborted");
    f.runner = reporter;
    f.completes(&first.attempts[0]).await;
    let ready = f.statuses().await.iter().filter(|(_, status, _)| *status == 2).count();
    assert_eq!((ready, f.waiting().await), (2, 0));
}

#[tokio::test]
async fn a_claim_that_has_waited_long_enough_waits_no_more_in_the_writer() {
    let mut f = Fixture::new(diamond()).await;
    f.claim(vec![]).await;
    let request = ClaimRequest { wait_seconds: 0.05, ..f.request("short", vec![]) };
    let answer = f.store.claim(f.id, request).await.expect("answered");
    assert!(answer.attempts.is_empty(), "{answer:?}");
    assert_eq!(f.waiting().await, 0);
}

/// A job with a `runtime` must not start on a runner whose time has run down while it waited.
#[tokio::test]
async fn a_runner_that_has_waited_has_less_time_left() {
    let f = Fixture::new(diamond()).await;
    let left_after_10_s = |left| {
        let request = ClaimRequest { time_left_seconds: left, ..f.request("k", vec![]) };
        let asked = Instant::now().checked_sub(Duration::from_secs(10)).expect("a clock that ran");
        super::super::parked_claims::aged(&Arc::new(request), asked).time_left_seconds
    };
    assert!(left_after_10_s(Some(40)).is_some_and(|left| (20..=30).contains(&left)));
    assert_eq!(left_after_10_s(None), None);
}

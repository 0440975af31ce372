//! Webhooks against a real receiver on loopback: every end is told at least once, signed, and none
//! is forgotten.

use super::*;
use axum::http::{HeaderMap, StatusCode};
use std::sync::Mutex;
use tokio_util::sync::CancellationToken;
use torc_model::api::CreateWebhook;

type Calls = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Answers 500 to the first `failures` calls, then 200.
async fn receiver(failures: usize) -> (String, Calls, tokio::sync::mpsc::UnboundedReceiver<()>) {
    let calls: Calls = Arc::default();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let seen = calls.clone();
    let handler = move |headers: HeaderMap, body: String| async move {
        let mut seen = seen.lock().expect("calls");
        seen.push((headers, body));
        let _ = tell.send(());
        if seen.len() <= failures { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        axum::serve(listener, axum::Router::new().route("/hook", axum::routing::post(handler)))
            .await
    });
    (url, calls, told)
}

fn endpoint(url: &str, events: &[&str]) -> CreateWebhook {
    CreateWebhook {
        url: url.into(),
        secret: Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into()),
        events: events.iter().map(|e| (*e).to_owned()).collect(),
        workflow_id: None,
        allow_private: true,
    }
}

#[tokio::test]
async fn every_end_is_told_and_signed() {
    let mut f = Fixture::new(diamond()).await;
    let (url, calls, mut told) = receiver(0).await;
    let hook = f.store.create_webhook(endpoint(&url, &[])).await.expect("created");
    let stop = CancellationToken::new();
    tokio::spawn(crate::courier::run(f.store.clone(), String::new(), stop.clone()));
    let first = f.claim(vec![]).await;
    f.claim(vec![ended(&first.attempts[0], 7)]).await;
    // One failure, three jobs skipped because of it, one workflow at its end.
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_secs(10), told.recv())
            .await
            .expect("in time")
            .expect("a call");
    }
    let calls = calls.lock().expect("calls").clone();
    let mut events: Vec<String> = Vec::new();
    for (headers, body) in &calls {
        let header = |name: &str| headers[name].to_str().expect("text").to_owned();
        let signed = crate::courier::sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            &header("webhook-id"),
            &header("webhook-timestamp"),
            body,
        );
        assert_eq!(header("webhook-signature"), signed);
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        events.push(body["event"].as_str().expect("a name").to_owned());
        if body["event"] == "job.run.failed" {
            assert_eq!(
                (&body["return_code"], &body["will_retry"], &body["final"]),
                (&json!(7), &json!(false), &json!(true))
            );
            assert_eq!((&body["job_name"], &body["attempt_id"]), (&json!("a"), &json!(1)));
        }
    }
    events.sort();
    assert_eq!(
        events,
        [
            "job.run.failed",
            "job.run.skipped",
            "job.run.skipped",
            "job.run.skipped",
            "workflow.completed"
        ]
    );
    stop.cancel();
    assert_eq!(f.store.webhook(hook.id).await.expect("it").secret, None, "the secret is told once");
}

#[tokio::test]
async fn a_failed_delivery_waits_and_can_be_asked_for_again() {
    let mut f = Fixture::new(diamond()).await;
    let (url, calls, mut told) = receiver(1).await;
    let hook =
        f.store.create_webhook(endpoint(&url, &["job.run.completed"])).await.expect("created");
    let first = f.claim(vec![]).await;
    f.claim(vec![ended(&first.attempts[0], 0)]).await;
    // The row is there before the delivery begins: a crash here loses nothing.
    f.restart();
    let waiting = f
        .store
        .deliveries(hook.id, Some(torc_model::status::DeliveryState::Pending))
        .await
        .expect("deliveries");
    assert_eq!((waiting.len(), waiting[0].tries), (1, 0));
    let stop = CancellationToken::new();
    tokio::spawn(crate::courier::run(f.store.clone(), String::new(), stop.clone()));
    told.recv().await.expect("the first try");
    f.store.redeliver(waiting[0].id).await.expect("again");
    tokio::time::timeout(Duration::from_secs(10), told.recv())
        .await
        .expect("in time")
        .expect("the second try");
    let ids: Vec<_> =
        calls.lock().expect("calls").iter().map(|(h, _)| h["webhook-id"].clone()).collect();
    assert_eq!(ids[0], ids[1], "the id is the same for every try");
    stop.cancel();
}

#[tokio::test]
async fn bad_endpoints_are_refused() {
    let f = Fixture::new(diamond()).await;
    let cases = [
        (CreateWebhook { allow_private: false, ..endpoint("http://example.org/", &[]) }, "url"),
        (endpoint("ftp://example.org/", &[]), "url"),
        (endpoint("not a url", &[]), "url"),
        (endpoint("https://example.org/", &["job.run.exploded"]), "events"),
    ];
    for (request, field) in cases {
        let refusal = f.store.create_webhook(request).await.expect_err("refused");
        assert_eq!((refusal.status, refusal.field.as_deref()), (422, Some(field)));
    }
}

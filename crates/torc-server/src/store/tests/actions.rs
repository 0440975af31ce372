//! Actions reach a runner although an answer gets lost, and no other runner then.

use super::*;
use torc_model::api::ActionReport;
use torc_model::ids::ActionId;
use torc_model::plan::{Action, ActionKind};
use torc_model::status::Trigger;

async fn fixture() -> Fixture {
    let what = ActionKind::RunCommands { commands: vec!["true".into()] };
    let action =
        |trigger, persistent| Action { trigger, jobs: vec![], what: what.clone(), persistent };
    let actions =
        vec![action(Trigger::OnWorkflowStart, false), action(Trigger::OnWorkerStart, true)];
    Fixture::new(Plan { name: "w".into(), jobs: vec![job("a", &[])], actions, ..Plan::default() })
        .await
}

async fn given(f: &mut Fixture, key: &str) -> Vec<i64> {
    f.claim_with(key, vec![]).await.actions.iter().map(|action| action.id.0).collect()
}

async fn report(f: &Fixture, action: i64) {
    let report = ActionReport { runner_id: f.runner, return_code: 0, error: None };
    f.store.complete_action(ActionId(action), report).await.expect("reported");
}

#[tokio::test]
async fn a_repeated_claim_brings_the_same_actions_again() {
    let mut f = fixture().await;
    assert_eq!(given(&mut f, "k1").await, [1, 2]);
    assert_eq!(given(&mut f, "k1").await, [1, 2], "the answer was lost");
    assert_eq!(given(&mut f, "k2").await, [0; 0], "another claim is another claim");
    report(&f, 1).await;
    assert_eq!(given(&mut f, "k1").await, [2], "what is reported is over");
}

#[tokio::test]
async fn an_action_whose_answer_died_with_the_server_is_given_again_once() {
    let mut f = fixture().await;
    assert_eq!(given(&mut f, "k1").await, [1, 2]);
    f.restart();
    assert_eq!(given(&mut f, "k1").await, [1], "it is unknown whether the runner heard of it");
    assert_eq!(given(&mut f, "k2").await, [0; 0]);
    report(&f, 1).await;
    assert_eq!(f.scalar("SELECT count(*) FROM workflow_action WHERE state = 'executed'").await, 1);
    f.restart();
    assert_eq!(given(&mut f, "k3").await, [0; 0]);
}

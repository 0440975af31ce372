//! Reservations: the holder of one is told at once when there is room.

use crate::world::{World, completion};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn waiting_for_room_ends_with_the_job_that_makes_it() {
    let world = World::new().await;
    let reserve =
        json!({"scope": format!("workflow:{}", world.first.workflow), "reserved_by": "me"});
    let held = world.post("/reservations", &reserve).await.ok();
    assert_eq!(held["still_running"], json!(1), "{held}");
    let path = format!("/reservations/{}", held["id"]);
    let waiting = format!("{path}?until_running=0&wait_seconds=50");
    let wait = world.get(&waiting);
    let end = async {
        // Not before the other call waits: it has looked once when this runs.
        tokio::task::yield_now().await;
        let done = json!({"runner_id": world.first.runner, "items": [completion(&world.first.running, 0)]});
        world.post("/attempts/complete", &done).await.ok()
    };
    // Far less than the 50 s after which it would be answered anyhow.
    let both = tokio::time::timeout(Duration::from_secs(30), async { tokio::join!(wait, end) });
    let (answer, _) = both.await.expect("told by the event");
    assert_eq!(answer.ok()["still_running"], json!(0));
    // With room, or without a wish to wait, there is nothing to wait for.
    assert_eq!(world.get(&waiting).await.ok()["status"], "ACTIVE");
    assert_eq!(world.get(&path).await.ok()["still_running"], json!(0));
    for wrong in ["wait_seconds=51", "wait_seconds=-1", "until_running=x", "other=1"] {
        assert!(world.get(&format!("{path}?{wrong}")).await.status.is_client_error(), "{wrong}");
    }
}

#[tokio::test]
async fn a_reservation_whose_token_is_lost_is_released_without_it() {
    let world = World::new().await;
    let held =
        world.post("/reservations", &json!({"scope": "all", "reserved_by": "me"})).await.ok();
    let path = format!("/reservations/{}/release", held["id"]);
    let wrong = world.post(&path, &json!({"token": "of another one"})).await;
    assert!(wrong.status.is_client_error(), "a token that is given must be the right one");
    assert_eq!(world.post(&path, &json!({})).await.ok()["status"], "RELEASED");
    assert!(world.post(&path, &json!({})).await.status.is_client_error(), "it has ended");
}

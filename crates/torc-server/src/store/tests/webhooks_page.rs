//! The page about webhooks: its lists are those that the server uses.
//! Run with `UPDATE_EXPECTED=1` to write it anew, then read the difference.

use super::super::webhooks::{BACKOFF_SECONDS, EVENTS};
use std::fmt::Write as _;

const HEAD: &str = "\
# Webhooks

A webhook is an HTTPS address that the server posts to when something ends. A delivery is written in the transaction that made
its event, so that no crash loses one; it may arrive twice, with the same `webhook-id`. The lists on this page are made from
the server's own (`webhooks_page.rs`), and a test keeps them so.

```sh
torc webhooks create https://chat.example/hook --event workflow.completed
torc webhooks create http://127.0.0.1:9000/ --allow-private
torc webhooks deliveries 1 --state dead
torc webhooks redeliver 17
```

Without `--event` an endpoint gets every event, with `--workflow ID` only those of one workflow. The secret is printed once.
Loopback and private addresses, and plain `http`, need `--allow-private`.

## Events

| event | when |
|---|---|
";

fn about(event: &str) -> &'static str {
    match event {
        "job.run.completed" => "a job succeeded",
        "job.run.failed" => "an attempt failed; `will_retry` says whether another follows",
        "job.run.skipped" => "a job was canceled and does not run",
        "job.pending_failed" => "a job failed and waits for a verdict",
        "job.classification_held" => "a verdict waits for a person",
        "workflow.completed" => "every job of a workflow has ended",
        other => panic!("`{other}` has no explanation"),
    }
}

const PAYLOAD: &str = "
## Payload

A POST with `content-type: application/json` and this body; fields that do not apply are `null`:

| field | meaning |
|---|---|
| `event` | the event |
| `event_id` | grows with time, the same for all endpoints |
| `timestamp_ms` | when it happened, ms since 1970 |
| `workflow_id`, `workflow_name` | the workflow |
| `job_id`, `job_name` | the job |
| `run_id`, `attempt_id` | which attempt |
| `return_code`, `cause`, `outcome` | how it ended ([words.md](words.md) has the words) |
| `will_retry` | another attempt follows |
| `final` | nothing more comes of this job |
| `counts` | of a workflow: jobs per status |
| `classification_id` | of a verdict that waits |

## Signature

As [Standard Webhooks](https://www.standardwebhooks.com) has it. Every request has `webhook-id` (`msg_` and a number, the same
at every try), `webhook-timestamp` (seconds since 1970) and `webhook-signature`: `v1,` and the base64 of the HMAC-SHA256 of
`ID.TIMESTAMP.BODY`. The key is the base64 after `whsec_` of the secret, decoded. In Python:

```python
import base64, hashlib, hmac

def is_genuine(secret, headers, body):
    key = base64.b64decode(secret.removeprefix(\"whsec_\"))
    text = f\"{headers['webhook-id']}.{headers['webhook-timestamp']}.\".encode() + body
    signed = \"v1,\" + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(signed, headers[\"webhook-signature\"])
```

## Retries

Any answer from 200 to 299 within ten seconds is a success. Everything else is tried again; redirects are not followed:

| try | after |
|---|---|
";

fn page() -> String {
    let mut page = String::from(HEAD);
    for event in EVENTS {
        writeln!(page, "| `{event}` | {} |", about(event)).unwrap();
    }
    page += PAYLOAD;
    page += "| 1 | at once |\n";
    for (number, seconds) in (2..).zip(BACKOFF_SECONDS) {
        writeln!(page, "| {number} | {seconds} s |").unwrap();
    }
    page += "\nThen the delivery is `dead`: `torc webhooks deliveries ID --state dead` lists such, and `torc webhooks redeliver` \
             starts one over.\n";
    page
}

#[test]
fn the_page_about_webhooks_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/webhooks.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/webhooks.md is out of date; UPDATE_EXPECTED=1 writes it anew");
}

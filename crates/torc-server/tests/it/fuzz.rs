//! Random input on every route: whatever comes, the answer is in our form and is not "the server
//! made a mistake".

use crate::world::{Ids, OWNER, Operation, World, operations, request};
use axum::body::Body;
use axum::http::{Method, Request, header};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

/// Requests per route; a campaign may ask for more.
fn cases() -> usize {
    std::env::var("TORC_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

fn seed() -> [u8; 32] {
    let number: u64 =
        std::env::var("TORC_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed
}

/// Any JSON, with a taste for the edges.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(-1), Just(0), Just(1)]
            .prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::from(1e308)),
        Just(Value::from(u64::MAX)),
        ".{0,20}".prop_map(Value::from),
        prop_oneof![
            Just("'; DROP TABLE job; --"),
            Just("../../etc/passwd"),
            Just("\u{0}"),
            Just("NaN"),
            Just("[]")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{0,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every place inside a value.
fn places(value: &Value, at: &mut Vec<String>, found: &mut Vec<String>) {
    found.push(at.concat());
    let children: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (format!("/{key}"), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(i, value)| (format!("/{i}"), value)).collect()
        }
        _ => Vec::new(),
    };
    for (step, child) in children {
        at.push(step);
        places(child, at, found);
        at.pop();
    }
}

struct Dice {
    runner: TestRunner,
}

impl Dice {
    fn new() -> Self {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed());
        Self { runner: TestRunner::new_with_rng(Config::default(), rng) }
    }

    fn draw<S: Strategy>(&mut self, strategy: S) -> S::Value {
        strategy.new_tree(&mut self.runner).unwrap().current()
    }

    /// A good body with one part replaced, or any JSON, or any bytes.
    fn body(&mut self, good: &Value) -> Vec<u8> {
        let mut body = match self.draw(0..10) {
            0 => return self.draw(prop::collection::vec(any::<u8>(), 0..200)),
            1 => self.draw(any_json()),
            _ => {
                let mut found = Vec::new();
                places(good, &mut Vec::new(), &mut found);
                let place = found[self.draw(0..found.len())].clone();
                let mut body = good.clone();
                let part = self.draw(any_json());
                match self.draw(0..4) {
                    // Leave a key out instead.
                    0 => {
                        let (parent, key) = place.rsplit_once('/').unwrap_or_default();
                        if let Some(Value::Object(map)) = body.pointer_mut(parent) {
                            map.remove(key);
                        }
                    }
                    _ => {
                        if let Some(target) = body.pointer_mut(&place) {
                            *target = part;
                        }
                    }
                }
                body
            }
        };
        // Waiting is tested elsewhere.
        if let Some(wait) = body.get_mut("wait_seconds").filter(|wait| wait.is_number()) {
            *wait = 0.into();
        }
        serde_json::to_vec(&body).unwrap()
    }

    fn query(&mut self) -> String {
        let keys = [
            "limit",
            "offset",
            "sort_by",
            "reverse_sort",
            "status",
            "name",
            "search",
            "workflow_id",
            "job_id",
        ];
        let more = [
            "max_retries",
            "dry_run",
            "force",
            "after",
            "state",
            "cause",
            "run_id",
            "stream",
            "is_active",
            "x",
        ];
        let mut parts = Vec::new();
        for _ in 0..self.draw(0..4) {
            let key = self.draw(prop::sample::select([keys.as_slice(), more.as_slice()].concat()));
            let value = self.draw(prop_oneof![
                any::<i64>().prop_map(|n| n.to_string()),
                Just("true".to_string()),
                "[%a-z0-9,'_.-]{0,12}"
            ]);
            parts.push(format!("{key}={value}"));
        }
        if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
    }

    fn request(&mut self, operation: &Operation, ids: &Ids) -> (String, Request<Body>) {
        let path = match self.draw(0..4) {
            0 => operation
                .path
                .replace("{id}", &self.draw(any::<i64>()).to_string())
                .replace("{run_id}", "1"),
            _ => ids.path(&operation.path),
        };
        let query = if self.draw(any::<bool>()) {
            self.query()
        } else {
            ids.query(&operation.id).to_string()
        };
        let body =
            if operation.has_body { self.body(&ids.body(&operation.id)) } else { Vec::new() };
        let said = format!("{} {path}{query} {}", operation.method, String::from_utf8_lossy(&body));
        let mut request =
            request(operation.method.clone(), &format!("{path}{query}"), Some(OWNER), None);
        request.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        *request.body_mut() = body.into();
        (said, request)
    }
}

#[tokio::test]
async fn no_input_is_a_server_error() {
    let mut dice = Dice::new();
    let mut world = World::new().await;
    let operations: Vec<_> =
        operations().into_iter().filter(|o| !o.id.starts_with("stream_")).collect();
    for operation in &operations {
        for _ in 0..cases() {
            let (said, request) = dice.request(operation, &world.first);
            let answer = world.send(request).await;
            assert!(!answer.status.is_server_error(), "{said}\n{answer:?}");
            answer.check_form();
        }
        // Whatever happened, the server is well and its rows fit together.
        let health = world.call(Method::GET, "/health", Some(OWNER), None).await.ok();
        assert_eq!(health["status"], "ok");
        let problems: i64 = world
            .database()
            .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(problems, 0, "after {}", operation.id);
        if operation.method != Method::GET {
            world = World::new().await;
        }
    }
}

//! Who changed what: one row per request of a person, in the transaction of what it changed.
//!
//! The actor is kept beside the task that answers the request. The writer finds it there and adds
//! the row when the request has changed something, so there is no change without its row and no row
//! without a change.

use crate::request_id;
use crate::store::{AuditRow, forget_audit, insert_audit};
use axum::http::Method;
use axum::http::request::Parts;
use rusqlite::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use torc_model::api::BASE_PATH;

tokio::task_local! {
    static CURRENT: Actor;
}

/// As many rows are kept; older ones go.
const KEPT: i64 = 100_000;
/// So seldom are older ones looked for.
const EVERY: i64 = 1_000;

/// Who makes a request.
#[derive(Clone, Debug)]
pub struct Actor {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    user: String,
    token_id: Option<i64>,
    method: Method,
    path: String,
    request_id: String,
    /// It has its row: a request may take several transactions.
    is_told: AtomicBool,
}

impl Actor {
    /// Whether people make such requests: neither reads nor what runners do all the time.
    pub fn is_of_people(head: &Parts) -> bool {
        !matches!(head.method, Method::GET | Method::HEAD) && !is_of_runners(head.uri.path())
    }

    /// The actor of a request.
    pub fn new(head: &Parts, user: String, token_id: Option<i64>) -> Self {
        let path = head.uri.path();
        let inner = Inner {
            user,
            token_id,
            method: head.method.clone(),
            path: path.strip_prefix(BASE_PATH).unwrap_or(path).to_owned(),
            request_id: request_id::current().map(|id| id.to_string()).unwrap_or_default(),
            is_told: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Adds the row, in the transaction of the change.
    pub fn tell(&self, db: &Connection, now: i64) -> rusqlite::Result<()> {
        let Inner { user, token_id, method, path, request_id, is_told } = &*self.inner;
        if is_told.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let row = AuditRow { user, token_id: *token_id, method: method.as_str(), path, request_id };
        let id = insert_audit(db, &row, now)?;
        if id % EVERY == 0 {
            forget_audit(db, id - KEPT)?;
        }
        Ok(())
    }

    /// What it changed was taken back.
    pub fn untell(&self) {
        self.inner.is_told.store(false, Ordering::Relaxed);
    }
}

/// Of runners and batch systems, with any token.
fn is_of_runners(path: &str) -> bool {
    let path = path.strip_prefix(BASE_PATH).unwrap_or_default();
    path.ends_with("/claim")
        || path == "/compute_nodes"
        || path.ends_with("/goodbye")
        || ["/attempts/", "/actions/", "/scheduled_compute_nodes/"]
            .iter()
            .any(|begin| path.starts_with(begin))
}

/// Answers a request in the name of its actor.
pub async fn scope<T>(actor: Option<Actor>, answer: impl Future<Output = T>) -> T {
    match actor {
        Some(actor) => CURRENT.scope(actor, answer).await,
        None => answer.await,
    }
}

/// The actor of the request that this task answers.
pub fn current() -> Option<Actor> {
    CURRENT.try_with(Clone::clone).ok()
}

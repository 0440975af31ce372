//! The REST API: one file per noun, one flat table of routes.
//!
//! Every request passes, from the outside in: the front (see `front.rs` for what turns back there),
//! panic guard, host check, token check, time limit, handler. Reads go to [`Reader`], changes to
//! [`Store`]; handlers translate and check scopes, nothing else.
//!
//! To add a noun: write its file with `#[utoipa::path]` handlers and add one line to `router.rs`. A
//! route is closed to all but the owner unless its `security` says otherwise.

mod access_groups;
mod act;
mod actions;
mod allocations;
mod attempts;
mod auth;
mod classifications;
mod crash_recovery;
mod error;
mod events;
mod extract;
mod failure_handlers;
mod files;
mod forecast;
mod forwarded;
mod front;
mod guard;
mod health;
mod items;
mod jobs;
mod json;
mod json_place;
mod knowledge;
mod limits;
mod log_diff;
mod log_search;
mod logs;
mod metrics;
mod notifications;
mod openapi;
pub mod page;
mod page_access;
pub mod page_files;
#[cfg(test)]
mod page_modules;
#[cfg(test)]
mod page_squeeze;
mod pages;
mod pool;
mod pool_reads;
mod pulse;
mod query;
mod relations;
mod remedies;
mod requirements;
mod reservations;
mod results;
mod roles;
mod router;
mod runners;
mod samples;
mod schedulers;
mod server;
mod sessions;
mod shown;
mod timeline;
mod tokens;
mod user_data;
mod walls;
mod webhooks;
mod why;
mod workflows;

pub use auth::Acquaintance;
pub use forwarded::{Network, PeerAddress};
pub use front::Front;
pub use guard::Hosts;
pub use logs::read_log;
pub use openapi::document;

use crate::store::Store;
use crate::store::read::Reader;
use auth::Auth;
use error::ApiError;
use json::Json;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What every handler may use. Cheap to clone.
#[derive(Clone)]
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    reader: Reader,
    auth: Auth,
    walls: walls::Walls,
    reads: pool_reads::Reads,
    shown: shown::Shown,
    scrapes: metrics::Scrapes,
    socket: Option<std::path::PathBuf>,
    /// Browsers are told to come back by HTTPS only.
    is_https_only: bool,
    proxies: forwarded::Proxies,
    hosts: Hosts,
    stop: CancellationToken,
    started_ms: i64,
    /// False while recovery runs: requests wait.
    is_open: watch::Sender<bool>,
}

impl App {
    /// Puts the parts together. `token` is the owner's, which is good for everything; `stop` ends
    /// streams and waiting claims.
    pub fn new(
        store: Store,
        reader: Reader,
        token: &str,
        hosts: Hosts,
        stop: CancellationToken,
    ) -> Self {
        let auth = Auth::new(token, store.database_id(), reader.clone());
        let (started_ms, is_open) = (crate::clock::now_ms(), watch::Sender::new(true));
        let (shown, scrapes, socket) = <(shown::Shown, metrics::Scrapes, _)>::default();
        let walls = walls::Walls::default();
        Self {
            inner: Arc::new(Inner {
                store,
                reader,
                auth,
                walls,
                reads: pool_reads::Reads::default(),
                shown,
                scrapes,
                socket,
                is_https_only: false,
                proxies: forwarded::Proxies::default(),
                hosts,
                stop,
                started_ms,
                is_open,
            }),
        }
    }

    /// The page can also be reached through this Unix socket; told before the first request.
    pub fn with_socket(mut self, socket: Option<std::path::PathBuf>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.socket = socket;
        }
        self
    }

    /// Browsers are told to come back by HTTPS only; told before the first request.
    pub fn with_https_only(mut self, is_https_only: bool) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.is_https_only = is_https_only;
        }
        self
    }

    fn is_https_only(&self) -> bool {
        self.inner.is_https_only
    }

    /// What these proxies say of their clients counts; told before the first request.
    pub fn with_proxies(mut self, proxies: Vec<Network>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.proxies = forwarded::Proxies::new(proxies);
        }
        self
    }

    fn proxies(&self) -> &forwarded::Proxies {
        &self.inner.proxies
    }

    /// While it is closed, only `/health` is answered; everything else waits.
    pub fn set_open(&self, is_open: bool) {
        self.inner.is_open.send_replace(is_open);
    }

    /// Requests are served: it has recovered, does not end, and can change things.
    fn is_ready(&self) -> bool {
        let is_open = *self.inner.is_open.borrow();
        is_open && !self.inner.stop.is_cancelled() && self.store().is_alive()
    }

    /// Writes down when tokens were last used, every minute and at the end.
    pub async fn note_token_uses(self) {
        const EVERY: std::time::Duration = std::time::Duration::from_secs(60);
        loop {
            let is_over = tokio::select! {
                () = self.inner.stop.cancelled() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            let uses = self.inner.auth.tokens.take_uses().await;
            if !uses.is_empty()
                && let Err(error) = self.store().note_token_uses(uses).await
            {
                tracing::warn!(%error, "when tokens were last used could not be noted");
            }
            if is_over {
                return;
            }
        }
    }

    fn store(&self) -> &Store {
        &self.inner.store
    }

    fn reader(&self) -> &Reader {
        &self.inner.reader
    }
}

/// Runs in a task of its own. When a caller hangs up, its request is dropped where it waits: between
/// the commit and the change in memory, a revoked right would stay good until the next start.
async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let task = tokio::spawn(crate::audit::scope(crate::audit::current(), work));
    task.await.map_err(|error| {
        tracing::error!(%error, "a change of rights did not end");
        ApiError::internal()
    })?
}

/// What a handler gives back.
type Answer<T> = Result<Json<T>, ApiError>;

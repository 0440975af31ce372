//! The way in: what is asked all the time is answered at once, everything else goes through the
//! routes.
//!
//! People watch, and so do programs: the status of a workflow is asked for a thousand times a
//! second while its jobs need the processor. What it says is in memory. The way through the routes
//! takes far more than finding it there, for its many small steps all have left the processor's
//! caches since the last time.

use super::auth::{Acquaintance, Caller};
use super::forwarded::ForwardedClient;
use super::{App, guard, page, router};
use crate::audit::Actor;
use crate::clock::now_ms;
use crate::request_id::{self, RequestId};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::Response;
use axum::{BoxError, Router};
use std::time::Instant;
use torc_model::api::BASE_PATH;
use torc_model::ids::WorkflowId;
use tower::ServiceExt as _;

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    app: App,
    routes: Router,
}

impl Front {
    /// Everything the API has.
    pub fn new(app: App) -> Self {
        Self { routes: router::router(app.clone()), app }
    }

    /// Requests should have the address that they come from beside them ([`super::PeerAddress`]).
    pub fn wants_peers(&self) -> bool {
        !self.app.proxies().is_empty() || tracing::enabled!(tracing::Level::INFO)
    }

    /// The answer to a request.
    pub fn answer<B>(&self, request: Request<B>) -> impl Future<Output = Response> + Send + use<B>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let begin = Instant::now();
        let id = RequestId::of(&head.headers);
        let is_given = matches!(id, RequestId::Given(_));
        page::strip_prefix(&mut head);
        let client = self.app.proxies().client(&head);
        let log = RequestLog::of(&head, client);
        let metrics = self.app.store().metrics().clone();
        let is_browser = page::is_browser(&head);
        let is_https_only = self.app.is_https_only() || client.is_https;
        let answer = at_once(&self.app, &head)
            .or_else(|| page::answer(&self.app, &head))
            .ok_or_else(|| self.routes.clone().oneshot(Request::from_parts(head, Body::new(body))));
        async move {
            let mut answer = match answer {
                Ok(answer) => answer,
                Err(routes) => {
                    let routes = request_id::scope(id.clone(), routes);
                    routes.await.unwrap_or_else(|never| match never {})
                }
            };
            let status = answer.status();
            metrics.answered(status.as_u16());
            if let Some(log) = log {
                log.write(&id, status, begin);
            }
            if (is_given || !status.is_success())
                && let Some(id) = id.to_header()
            {
                answer.headers_mut().insert(request_id::HEADER, id);
            }
            if is_browser { page::guarded(answer, is_https_only) } else { answer }
        }
    }
}

/// What the log says of a request: its path without the query.
struct RequestLog {
    method: Method,
    uri: Uri,
    client: ForwardedClient,
    /// Runners ask many times a second, and reads are many: they are told to those who debug.
    is_change: bool,
}

impl RequestLog {
    /// None when nothing of it would be written, so that nothing is kept for it.
    fn of(head: &Parts, client: ForwardedClient) -> Option<Self> {
        if !tracing::enabled!(tracing::Level::INFO) {
            return None;
        }
        let is_change = Actor::is_of_people(head);
        Some(Self { method: head.method.clone(), uri: head.uri.clone(), client, is_change })
    }

    fn write(&self, id: &RequestId, status: StatusCode, begin: Instant) {
        let seconds = begin.elapsed().as_secs_f64();
        let (method, path, status_code) = (self.method.as_str(), self.uri.path(), status.as_u16());
        let client = self.client.address.map_or_else(|| "local".to_owned(), |ip| ip.to_string());
        if self.is_change || status.is_client_error() || status.is_server_error() {
            tracing::info!(
                request_id = %id, method, path, status = status_code, seconds, client, "request"
            );
        } else {
            tracing::debug!(
                request_id = %id, method, path, status = status_code, seconds, client, "request"
            );
        }
    }
}

/// The status of a workflow, if that is what is asked for, by a caller that is known to have the
/// right to it, and if all of it is in memory. Refusals and everything else are left to the routes,
/// so there is one place where they are made.
fn at_once(app: &App, head: &Parts) -> Option<Response> {
    let id = asked_for_status(head)?;
    if !*app.inner.is_open.borrow() {
        return None;
    }
    guard::check_host(&app.inner.hosts, head).ok()?;
    app.check_now(&Caller::Known(app.inner.auth.known(&head.headers)?), id)?;
    let text = app.reader().remembered_status(id, now_ms(), app.store().progress(id)?)?;
    let mut answer = Response::new(Body::from(text));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Acquaintance::tell(head);
    Some(answer)
}

fn asked_for_status(head: &Parts) -> Option<WorkflowId> {
    if head.method != Method::GET || head.uri.query().is_some() {
        return None;
    }
    let path = head.uri.path().strip_prefix(BASE_PATH)?;
    let id = path.strip_prefix("/workflows/")?.strip_suffix("/status")?;
    id.parse().ok().map(WorkflowId)
}

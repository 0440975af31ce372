//! The way in: the files of the page are answered here, everything else goes through the routes.
//! Every answer is counted, logged and given its request id.

use super::forwarded::ForwardedClient;
use super::{App, page, router};
use crate::audit::Actor;
use crate::request_id::{self, RequestId};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode, Uri};
use axum::response::Response;
use axum::{BoxError, Router};
use std::time::Instant;
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
        let answer = page::answer(&self.app, &head)
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

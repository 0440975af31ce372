//! The way in: what is asked all the time is answered at once, everything else goes through the
//! routes.
//!
//! People watch, and so do programs: the status of a workflow is asked for a thousand times a
//! second while its jobs need the processor. What it says is in memory. The way through the routes
//! takes far more than finding it there, for its many small steps all have left the processor's
//! caches since the last time.

use super::auth::{Authenticated, Caller};
use super::{App, guard, page, router};
use crate::clock::now_ms;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use axum::{BoxError, Router};
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

    /// The answer to a request.
    pub fn answer<B>(&self, request: Request<B>) -> impl Future<Output = Response> + Send + use<B>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        page::strip_prefix(&mut head);
        let is_browser = page::is_browser(&head);
        let answer = at_once(&self.app, &head)
            .or_else(|| page::answer(&self.app, &head))
            .ok_or_else(|| self.routes.clone().oneshot(Request::from_parts(head, Body::new(body))));
        async move {
            let answer = match answer {
                Ok(answer) => answer,
                Err(routes) => routes.await.unwrap_or_else(|never| match never {}),
            };
            if is_browser { page::guarded(answer) } else { answer }
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
    Caller::Known(app.inner.auth.known(&head.headers)?).check(id).ok()?;
    let text = app.reader().remembered_status(id, now_ms(), app.store().progress(id)?)?;
    let mut answer = Response::new(Body::from(text));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.extensions_mut().insert(Authenticated);
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

//! Events: lists, and the live stream.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::query::{list_query, word};
use super::{Answer, App};
use crate::store::read::EventFilter;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use torc_model::api::{EventView, Page};
use torc_model::event::EventKind;
use torc_model::ids::WorkflowId;
use utoipa::IntoParams;

/// Events read at once while catching up.
const BATCH: i64 = 500;
/// Clients take a minute of silence for a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

list_query! {
    /// Which events.
    ListEvents {
        /// After the event with this id.
        after: Option<i64>,
        /// Of this kind.
        kind: Option<String>,
        /// About this job.
        job_id: Option<i64>,
        /// Not before this time, ms since 1970.
        since_ms: Option<i64>,
    }
}

/// Lists the events of a workflow.
#[utoipa::path(
    get,
    path = "/workflows/{id}/events",
    operation_id = "list_events",
    tag = "events",
    params(("id" = i64, Path, description = "The workflow."), ListEvents),
    responses((status = 200, description = "One page of events.", body = Page<EventView>), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn list_events(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<ListEvents>,
) -> Answer<Page<EventView>> {
    caller.check(WorkflowId(id))?;
    let paging = query.paging()?;
    let kind = query
        .kind
        .as_deref()
        .map(|text| word("kind", text, EventKind::parse, EventKind::ALL, EventKind::as_str));
    let kind = kind.transpose()?;
    let filter =
        EventFilter { after: query.after, kind, job_id: query.job_id, since_ms: query.since_ms };
    app.reader().get_workflow(WorkflowId(id)).await?;
    Ok(Json(app.reader().list_events(WorkflowId(id), filter, paging).await?))
}

/// Where a stream begins.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamEvents {
    /// After the event with this id; without it (and without `Last-Event-ID`) with the next one
    /// that happens.
    pub after: Option<i64>,
}

/// The events of a workflow as they happen, as server-sent events. `Last-Event-ID` goes on where a
/// stream broke off.
#[utoipa::path(
    get,
    path = "/workflows/{id}/events/stream",
    operation_id = "stream_events",
    tag = "events",
    params(("id" = i64, Path, description = "The workflow."), StreamEvents),
    responses((status = 200, description = "A stream without end.", body = String, content_type = "text/event-stream"), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn stream_events(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<i64>,
    Query(query): Query<StreamEvents>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let workflow = WorkflowId(id);
    caller.check(workflow)?;
    app.reader().get_workflow(workflow).await?;
    // First listen, then look: what happens in between comes twice and is recognized by its id.
    let live = app.store().subscribe();
    let last_id = match last_event_id(&headers)?.or(query.after) {
        Some(id) => id,
        None => app.reader().last_event_id(workflow).await?,
    };
    let feed = StreamPosition {
        app,
        caller,
        workflow,
        live,
        last_id,
        pending: VecDeque::new(),
        behind: true,
    };
    let stream = unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        Some((Ok(event), feed))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    id.map(Some).ok_or_else(|| {
        ApiError::bad_query("Last-Event-ID", "`Last-Event-ID` is not the id of an event")
    })
}

/// Where one stream stands.
struct StreamPosition {
    app: App,
    caller: Caller,
    workflow: WorkflowId,
    live: Receiver<Arc<EventView>>,
    last_id: i64,
    pending: VecDeque<EventView>,
    /// There may be events in the table that were neither sent nor received.
    behind: bool,
}

impl StreamPosition {
    /// The next event; None ends the stream, and the client comes back.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                if !self.app.may_go_on(&self.caller, self.workflow).await {
                    return None;
                }
                self.last_id = event.id;
                return Some(message(&event));
            }
            if self.behind {
                self.catch_up().await.ok()?;
                continue;
            }
            let stop = self.app.inner.stop.clone();
            let received = tokio::select! {
                received = self.live.recv() => received,
                () = stop.cancelled() => return None,
            };
            match received {
                Ok(event) if event.workflow_id == self.workflow && event.id > self.last_id => {
                    if !self.app.may_go_on(&self.caller, self.workflow).await {
                        return None;
                    }
                    self.last_id = event.id;
                    return Some(message(&event));
                }
                Ok(_) => {}
                // A slow reader missed some, but the table has them all.
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), ApiError> {
        if self.app.inner.stop.is_cancelled() {
            return Err(ApiError::shutting_down());
        }
        let events = self.app.reader().next_events(self.workflow, self.last_id, BATCH).await?;
        self.behind = events.len() as i64 == BATCH;
        self.pending = events.into();
        Ok(())
    }
}

fn message(event: &EventView) -> Event {
    // Plain maps and texts cannot fail to become JSON.
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.id.to_string()).event(event.kind.as_str()).data(data)
}

//! Questions to the server: each becomes one call, and its answer one event.

use crate::message::{Answer, AskProblem, LogOf, Request};
use crate::state::WINDOW;
use crate::timeline::Bars;
use std::sync::Arc;
use torc_client::{Client, Error, Query};
use torc_model::api::{ActView, FamiliesView, Page};

/// Workflows that the list shows.
const WORKFLOWS: i64 = 200;
/// Events at first.
const EVENTS: i64 = 500;
/// Bytes of a quick look, and of each side of a comparison.
const PEEK: i64 = 4 << 10;
const COMPARED: i64 = 256 << 10;
/// Lines that a search gives, of all that it counts.
const HITS: i64 = 2_000;

/// Asks the server.
pub async fn fetch(client: &Client, request: &Request) -> Result<Answer, AskProblem> {
    ask(client, request).await.map_err(|error| problem(&error))
}

pub fn problem(error: &Error) -> AskProblem {
    let is_away = matches!(error, Error::Unreachable { .. }) || error.status() == Some(503);
    AskProblem { message: error.to_string(), is_away }
}

async fn ask(client: &Client, request: &Request) -> Result<Answer, Error> {
    Ok(match request {
        Request::Workflows => {
            let query = Query::new()
                .add("sort_by", "id")
                .add("reverse_sort", true)
                .add("is_archived", false)
                .add("limit", WORKFLOWS);
            Answer::Workflows(client.list_workflows(&query).await?)
        }
        Request::Row(id) | Request::Families(id) => {
            let view: FamiliesView = client.get(&format!("/workflows/{id}/families")).await?;
            Answer::Families(Box::new(view))
        }
        Request::Resources(id) => Answer::Resources(
            client.get::<Page<_>>(&format!("/workflows/{id}/resources")).await?.items,
        ),
        Request::Failures(id) => Answer::Failures(
            client.get::<Page<_>>(&format!("/workflows/{id}/failures")).await?.items,
        ),
        Request::Runners(id) => {
            let query = Query::new()
                .add("workflow_id", id)
                .add("sort_by", "id")
                .add("reverse_sort", true)
                .add("limit", WORKFLOWS);
            Answer::Runners(client.list_runners(&query).await?.items)
        }
        Request::Allocations(id) => {
            let query = Query::new().add("workflow_id", id).add("limit", WORKFLOWS);
            let path = format!("/scheduled_compute_nodes{query}");
            Answer::Allocations(client.get::<Page<_>>(&path).await?.items)
        }
        Request::Timeline(id) => {
            let bytes = client.get_bytes(&format!("/workflows/{id}/timeline")).await?;
            let bars = Bars::read(&bytes).ok_or_else(|| Error::Protocol {
                url: client.url().to_owned(),
                message: "the timeline has another form than expected".into(),
            })?;
            Answer::Timeline(Arc::new(bars))
        }
        Request::CriticalPath(id) => {
            Answer::CriticalPath(client.get(&format!("/workflows/{id}/critical_path")).await?)
        }
        Request::Events(id, after) => {
            let query = match after {
                Some(after) => Query::new().add("after", after),
                None => Query::new().add("sort_by", "id").add("reverse_sort", true),
            };
            let page = client.list_events(*id, &query.add("limit", EVENTS)).await?;
            Answer::Events(page.items)
        }
        Request::Jobs(asked) => {
            let query = Query::new()
                .add("workflow_id", asked.workflow)
                .add("include_last", true)
                .add("limit", WINDOW)
                .maybe("where", (!asked.filter.is_empty()).then_some(&asked.filter));
            let query = match asked.after {
                Some(job) => query.add("after", job),
                None => query
                    .add("offset", asked.window * WINDOW)
                    .add("sort_by", asked.sort)
                    .maybe("reverse_sort", asked.reverse.then_some(true)),
            };
            Answer::Jobs(client.list_jobs(&query).await?)
        }
        Request::Why(id) => Answer::Why(Box::new(client.why(*id).await?)),
        Request::Attempts(id) => Answer::Attempts(client.list_attempts(*id).await?.items),
        Request::Log { of, offset, limit, .. } => {
            let query = log_query(of).add("offset", offset).add("limit", limit);
            Answer::Log(client.job_log(of.job, &query).await?)
        }
        Request::Peek(id, stream) => {
            let query = Query::new().add("stream", stream).add("offset", -PEEK).add("limit", PEEK);
            Answer::Log(client.job_log(*id, &query).await?)
        }
        Request::Search { of, text, is_regex } => {
            let query = log_query(of)
                .add("text", text)
                .add("limit", HITS)
                .maybe("regex", is_regex.then_some(true));
            Answer::Search(client.get(&format!("/jobs/{}/logs/search{query}", of.job)).await?)
        }
        Request::Compared(of) => {
            let query = log_query(of).add("offset", -COMPARED).add("limit", COMPARED);
            Answer::Log(client.job_log(of.job, &query).await?)
        }
        Request::Act(request, _) => {
            let view: ActView = client.post("/jobs/act", request).await?;
            Answer::Act(view)
        }
        Request::Find(workflow, text) => find(client, *workflow, text).await?,
    })
}

pub fn log_query(of: &LogOf) -> Query {
    Query::new().add("stream", of.stream).add("run_id", of.run).add("attempt_id", of.attempt)
}

async fn find(
    client: &Client,
    workflow: Option<torc_model::ids::WorkflowId>,
    text: &str,
) -> Result<Answer, Error> {
    let wanted = (!text.is_empty()).then_some(text);
    let query = Query::new()
        .add("sort_by", "id")
        .add("reverse_sort", true)
        .add("limit", 5)
        .maybe("search", wanted);
    let workflows = client.list_workflows(&query).await?.items;
    let jobs = match (workflow, wanted) {
        (Some(id), Some(text)) => {
            let query = Query::new().add("workflow_id", id).add("search", text).add("limit", 8);
            client.list_jobs(&query).await?.items
        }
        _ => Vec::new(),
    };
    Ok(Answer::Find { workflows, jobs })
}

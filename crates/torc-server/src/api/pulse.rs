//! `pulse`: the progress of a workflow as a stream, small at any rate of jobs.

use super::App;
use super::auth::{Caller, token_hash};
use super::error::ApiError;
use super::extract::{Path, Query};
use super::openapi::Refusals;
use super::pages::summed;
use crate::clock::now_ms;
use crate::secret::Hash;
use crate::store::read::Surroundings;
use crate::store::{FamilyCounts, Progress};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;
use torc_model::api::{PulseFailure, PulseJob, PulseView};
use torc_model::ids::WorkflowId;
use torc_model::status::JobStatus;
use utoipa::IntoParams;

/// At most two frames a second.
const BEAT: Duration = Duration::from_millis(500);
/// A frame comes at least this often, so that a page can tell silence from a lost server.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A frame is at most this long.
const MAX_FRAME: usize = 8 << 10;
/// Jobs whose states are told.
const MAX_JOBS: usize = 200;
/// Groups of failures in one frame, and letters of a name in it.
const MAX_FAILURES: usize = 5;
const MAX_NAME: usize = 60;
/// Groups of failures are made anew at most this often, so that a look right after a failure may miss it.
const LATER: Duration = Duration::from_millis(2500);

/// What to tell besides.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetPulse {
    /// Ids of at most 200 jobs of the workflow, separated by commas: frames tell their states, the
    /// first one all of them and later ones those that have changed.
    pub jobs: Option<String>,
}

impl GetPulse {
    fn jobs(&self) -> Result<Vec<i64>, ApiError> {
        let text = self.jobs.as_deref().unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let refused = |message: String| ApiError::bad_query("jobs", message);
        let jobs: Vec<i64> = parts
            .map(|part| {
                part.parse().map_err(|_| refused(format!("`{part}` is not the id of a job")))
            })
            .collect::<Result<_, _>>()?;
        match jobs.len() <= MAX_JOBS {
            true => Ok(jobs),
            false => Err(refused(format!("`jobs` names {}; at most {MAX_JOBS}", jobs.len()))),
        }
    }
}

/// The progress of a workflow as server-sent events: at most two frames a second, each of 8 KB at
/// most, at any rate of jobs.
#[utoipa::path(
    get,
    path = "/workflows/{id}/pulse",
    operation_id = "stream_pulse",
    tag = "page",
    params(("id" = i64, Path, description = "The workflow."), GetPulse),
    responses((status = 200, description = "A stream without end; each event `pulse` holds a `PulseView`.", body = PulseView, content_type = "text/event-stream"), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn stream_pulse(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<i64>,
    Query(query): Query<GetPulse>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let workflow = WorkflowId(id);
    caller.check(workflow)?;
    app.reader().get_workflow(workflow).await?;
    let jobs = query.jobs()?;
    let page = caller.is_page().then(|| token_hash(&headers)).flatten();
    let beat = PulseBeat {
        app,
        caller,
        page,
        workflow,
        jobs,
        told: HashMap::new(),
        failures: None,
        bad: 0,
        look_again: None,
        seen: None,
        sent: None,
    };
    let stream = unfold(beat, |mut beat| async move {
        let event = beat.next().await?;
        Some((Ok(event), beat))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new()))
}

struct PulseBeat {
    app: App,
    caller: Caller,
    /// The hash of the token of the session that reads it, if a page does.
    page: Option<Hash>,
    workflow: WorkflowId,
    /// Whose states are told.
    jobs: Vec<i64>,
    /// What frames have told of them.
    told: HashMap<i64, PulseJob>,
    /// The filters of the groups of failures that were there at the last frame.
    failures: Option<HashSet<String>>,
    /// Jobs that had failed at the last frame, and when to look at their groups once more.
    bad: u32,
    look_again: Option<Instant>,
    /// What the last frame told of.
    seen: Option<(Progress, u64)>,
    sent: Option<Instant>,
}

impl PulseBeat {
    /// The next frame. A clock asks for changes, not every event: at two thousand jobs a second
    /// there are thousands of events between two frames.
    async fn next(&mut self) -> Option<Event> {
        let stop = self.app.inner.stop.clone();
        loop {
            let progress = self.app.store().progress(self.workflow);
            let is_due = match self.sent {
                None => true,
                Some(sent) => {
                    sent.elapsed() >= LONGEST_PAUSE
                        || progress != self.seen
                        || self.look_again.take_if(|at| *at <= Instant::now()).is_some()
                }
            };
            if is_due {
                if !self.may_go_on().await {
                    return None;
                }
                (self.seen, self.sent) = (progress, Some(Instant::now()));
                let text = self.frame().await.ok()?;
                // The pause counts from the beginning of a frame, and the next one waits for it.
                return Some(Event::default().event("pulse").data(text));
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    async fn may_go_on(&self) -> bool {
        if let Some(hash) = &self.page
            && !self.app.inner.auth.sessions.is_live(self.app.reader(), hash).await
        {
            return false;
        }
        self.app.may_go_on(&self.caller, self.workflow).await
    }

    async fn frame(&mut self) -> Result<String, ApiError> {
        if let Some(sent) = self.sent {
            tokio::time::sleep_until(sent + BEAT).await;
        }
        let (_, counts) = self.app.family_counts(self.workflow).await?;
        let around = self.app.reader().surroundings(self.workflow, now_ms()).await?;
        let news = FrameDetails {
            jobs: self.changed_jobs().await?,
            failures: self.new_failures(&counts).await?,
        };
        Ok(frame(&counts, &around, news))
    }

    /// States of the jobs that are asked for, as far as they are news.
    async fn changed_jobs(&mut self) -> Result<Vec<PulseJob>, ApiError> {
        if self.jobs.is_empty() {
            return Ok(Vec::new());
        }
        let states = self.app.reader().job_states(self.workflow, self.jobs.clone()).await?;
        let told = &mut self.told;
        Ok(states.into_iter().filter(|one| told.insert(one.0, *one) != Some(*one)).collect())
    }

    /// Groups of failures that were not there at the frame before.
    async fn new_failures(&mut self, counts: &FamilyCounts) -> Result<Vec<PulseFailure>, ApiError> {
        let all = summed(counts);
        let bad = [JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed];
        let bad: u32 = bad.iter().map(|status| all[*status as usize]).sum();
        if self.bad != bad {
            (self.bad, self.look_again) = (bad, Some(Instant::now() + LATER));
        }
        if bad == 0 {
            self.failures = Some(HashSet::new());
            return Ok(Vec::new());
        }
        let groups = self.app.failure_groups(self.workflow).await?;
        let now: HashSet<String> = groups.iter().map(|group| group.filter.clone()).collect();
        let before = self.failures.replace(now);
        let Some(before) = before else { return Ok(Vec::new()) };
        let new = groups.iter().filter(|group| !before.contains(&group.filter));
        Ok(new
            .take(MAX_FAILURES)
            .map(|group| PulseFailure {
                kind: group.diagnosis.kind,
                family: group.family.chars().take(MAX_NAME).collect(),
                jobs: group.counts.jobs,
            })
            .collect())
    }
}

/// What a frame tells besides counts.
#[derive(Default)]
struct FrameDetails {
    jobs: Vec<PulseJob>,
    failures: Vec<PulseFailure>,
}

/// One frame as text, within its bound.
fn frame(counts: &FamilyCounts, around: &Surroundings, news: FrameDetails) -> String {
    let compact = |counts: &[u32; 11]| {
        let length = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        counts[..length].iter().copied().map(i64::from).collect::<Vec<_>>()
    };
    let families = counts.iter().enumerate().map(|(at, counts)| (at as i64, compact(counts)));
    let mut pulse = PulseView {
        at_ms: now_ms(),
        run_id: around.run_id,
        is_complete: around.is_complete,
        is_canceled: around.is_canceled,
        counts: summed(counts).iter().copied().map(i64::from).collect(),
        families: families.collect(),
        cpus: around.cpus,
        ended_last_minute: around.ended_last_minute,
        failures: news.failures,
        jobs: news.jobs,
    };
    loop {
        // Numbers always become JSON.
        let text = serde_json::to_string(&pulse).unwrap_or_default();
        if text.len() + 32 <= MAX_FRAME || pulse.families.is_empty() {
            return text;
        }
        let excess = text.len() + 600 - MAX_FRAME;
        let (count, each) = (pulse.families.len(), text.len() / pulse.families.len());
        pulse.families.truncate(count.saturating_sub(excess / each.max(1)).min(count - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_model::recovery::Kind;

    #[test]
    fn a_frame_stays_within_its_bound_however_many_families_there_are() {
        for families in [1usize, 60, 900, 5000] {
            let counts = vec![[100_000u32; 11]; families];
            let text = frame(&counts, &Surroundings::default(), FrameDetails::default());
            assert!(text.len() <= MAX_FRAME, "{families} families: {} bytes", text.len());
            let pulse: PulseView = serde_json::from_str(&text).unwrap();
            assert_eq!(pulse.counts[5], 100_000 * families as i64);
            assert_eq!(pulse.families.len() == families, families < 90, "{families}");
            let failure =
                PulseFailure { kind: Kind::Unknown, family: "é".repeat(MAX_NAME), jobs: 1 << 40 };
            let news = FrameDetails {
                jobs: vec![PulseJob(1 << 40, 10, 1000); MAX_JOBS],
                failures: vec![failure; MAX_FAILURES],
            };
            let text = frame(&counts, &Surroundings::default(), news);
            assert!(text.len() <= MAX_FRAME, "{families} families: {} bytes", text.len());
            let pulse: PulseView = serde_json::from_str(&text).unwrap();
            assert_eq!((pulse.jobs.len(), pulse.failures.len()), (MAX_JOBS, MAX_FAILURES));
        }
    }
}

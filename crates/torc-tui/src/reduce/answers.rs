//! Answers of the server.

use crate::format::StatusCounts;
use crate::message::{Answer, AskProblem, Effect, Request};
use crate::state::*;
use std::collections::BTreeMap;
use torc_model::api::{EventView, FamiliesView};
use torc_model::status::JobStatus;

impl State {
    pub(crate) fn on_answer(
        &mut self,
        request: Request,
        answer: Result<Answer, AskProblem>,
    ) -> Vec<Effect> {
        if let Some(feed) = feed(&request) {
            self.mark_answered(feed);
        }
        match answer {
            Ok(answer) => {
                self.connection.heard_ms = Some(self.now_ms);
                // Without a workflow there is no pulse that would tell.
                if self.workflow.is_none() {
                    self.connection.link = Link::Connected;
                }
                self.on_success(&request, answer)
            }
            Err(problem) => self.on_problem(&request, problem),
        }
    }

    fn on_success(&mut self, request: &Request, answer: Answer) -> Vec<Effect> {
        match (request, answer) {
            (Request::Workflows, Answer::Workflows(page)) => {
                self.workflows.total = page.total_count;
                self.workflows.rows = Some(page.items);
                self.keep_in_sight();
                return self.load_workflow_rows();
            }
            (Request::Row(id), Answer::Families(view)) => {
                self.workflows.pending.remove(id);
                self.workflows.families.insert(*id, *view);
            }
            (Request::Families(id), Answer::Families(view)) if self.workflow == Some(*id) => {
                return self.on_families(*view);
            }
            (Request::Resources(id), Answer::Resources(rows)) if self.workflow == Some(*id) => {
                self.overview.resources = rows;
            }
            (Request::Failures(id), Answer::Failures(groups)) if self.workflow == Some(*id) => {
                self.overview.failures = Some(groups);
                self.keep_in_sight();
            }
            (Request::Runners(id), Answer::Runners(mut rows)) if self.workflow == Some(*id) => {
                rows.sort_by_key(|runner| runner.ended_ms.is_some());
                self.nodes.runners = Some(rows);
                self.keep_in_sight();
            }
            (Request::Allocations(id), Answer::Allocations(rows)) if self.workflow == Some(*id) => {
                self.nodes.allocations = rows;
                self.keep_in_sight();
            }
            (Request::Timeline(id), Answer::Timeline(bars)) if self.workflow == Some(*id) => {
                let count = bars.bars.len();
                self.timeline.bars = Some(bars);
                self.timeline.current = self.timeline.current.filter(|at| *at < count);
            }
            (Request::CriticalPath(id), Answer::CriticalPath(path))
                if self.workflow == Some(*id) =>
            {
                self.timeline.path = Some(path);
            }
            (Request::Events(id, after), Answer::Events(rows)) if self.workflow == Some(*id) => {
                self.on_events(*after, rows);
            }
            (Request::Jobs(asked), Answer::Jobs(page)) => return self.on_jobs(asked, page),
            (Request::Why(id), Answer::Why(why)) => return self.on_why(*id, *why),
            (Request::Attempts(id), Answer::Attempts(rows)) => {
                return self.on_attempts(*id, rows);
            }
            (Request::Log { of, piece, offset, .. }, Answer::Log(log)) => {
                return self.on_log(of, *piece, *offset, &log);
            }
            (Request::Peek(id, _), Answer::Log(log)) => self.on_peek(*id, Ok(log.text)),
            (Request::Search { of, text, .. }, Answer::Search(view)) => {
                return self.on_search(of, text, view);
            }
            (Request::Compared(of), Answer::Log(log)) => self.on_compared(of, &log.text),
            (Request::Act(asked, turn), Answer::Act(view)) => {
                return self.on_acted(asked, *turn, view);
            }
            (Request::Find(_, text), Answer::Find { workflows, jobs }) => {
                self.on_found(text, workflows, jobs);
            }
            // An answer for a screen that was left.
            _ => {}
        }
        Vec::new()
    }

    fn on_problem(&mut self, request: &Request, problem: AskProblem) -> Vec<Effect> {
        let message = crate::text::line(&problem.message).into_owned();
        match request {
            Request::Row(id) => {
                self.workflows.pending.remove(id);
            }
            Request::Jobs(asked) if asked.generation == self.jobs.generation => {
                self.jobs.pending.remove(&asked.window);
                if !problem.is_away {
                    self.jobs.problem = Some(message.clone());
                    self.jobs.windows.clear();
                    (self.jobs.total, self.jobs.is_old) = (None, false);
                }
            }
            Request::Peek(id, _) => self.on_peek(*id, Err(message.clone())),
            Request::Why(id) | Request::Attempts(id) => {
                if let Some(place) = self.job.as_mut().filter(|place| place.id == *id) {
                    place.problem = Some(message.clone());
                }
            }
            Request::Log { of, .. } | Request::Search { of, .. } => {
                self.on_log_problem(of, &message);
            }
            Request::Compared(of) => self.on_compared(of, ""),
            Request::Act(_, turn) => {
                self.on_act_problem(*turn, &message);
                return Vec::new();
            }
            _ => {}
        }
        if problem.is_away {
            return self.on_away(None, problem.message);
        }
        Vec::new()
    }

    fn on_families(&mut self, view: FamiliesView) -> Vec<Effect> {
        let was_known = self.overview.families.is_some();
        self.overview.counts = numbers(&view.counts);
        self.overview.by_family = view.families.iter().map(|f| numbers(&f.counts)).collect();
        self.overview.families = Some(view);
        self.keep_in_sight();
        if !was_known && self.route.view == View::Jobs {
            self.propose_filter();
        }
        Vec::new()
    }

    fn on_events(&mut self, after: Option<i64>, mut rows: Vec<EventView>) {
        rows.sort_by_key(|event| std::cmp::Reverse(event.id));
        let events = &mut self.events;
        match (after, &mut events.rows) {
            (Some(_), Some(known)) => {
                let newest = known.first().map_or(0, |event| event.id);
                rows.retain(|event| event.id > newest);
                // The cursor stays on its event, unless it is on the newest.
                if events.list.cursor > 0 {
                    events.list.cursor += rows.len();
                    events.list.top += rows.len();
                }
                rows.append(known);
                rows.truncate(MAX_EVENTS);
                *known = rows;
            }
            _ => events.rows = Some(rows),
        }
        self.keep_in_sight();
    }
}

/// The feed that a question belongs to.
fn feed(request: &Request) -> Option<Feed> {
    Some(match request {
        Request::Workflows => Feed::Workflows,
        Request::Families(_) => Feed::Families,
        Request::Resources(_) => Feed::Resources,
        Request::Failures(_) => Feed::Failures,
        Request::Runners(_) => Feed::Runners,
        Request::Allocations(_) => Feed::Allocations,
        Request::Timeline(_) => Feed::Timeline,
        Request::CriticalPath(_) => Feed::CriticalPath,
        Request::Events(..) => Feed::Events,
        Request::Jobs(_) => Feed::Jobs,
        Request::Why(_) => Feed::Why,
        Request::Attempts(_) => Feed::Attempts,
        Request::Log { .. } => Feed::Log,
        Request::Row(_)
        | Request::Peek(..)
        | Request::Search { .. }
        | Request::Compared(_)
        | Request::Act(..)
        | Request::Find(..) => return None,
    })
}

/// Counts by the status' integer out of counts by its name.
pub(crate) fn numbers(named: &BTreeMap<String, i64>) -> StatusCounts {
    let mut counts = [0; 11];
    for (name, count) in named {
        if let Some(status) = JobStatus::parse(name) {
            counts[status as usize] = *count;
        }
    }
    counts
}

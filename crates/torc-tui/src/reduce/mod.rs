//! The reducer: state and event in, new state and effects out. No clock, no terminal, no network.

pub(crate) mod acting;
mod answers;
mod job;
mod jobs;
mod keys;
mod mouse;
mod typing;

pub(crate) use answers::numbers;

use crate::message::{Effect, Event, Request};
use crate::state::*;
use std::collections::BTreeMap;
use torc_model::api::PulseView;
use torc_model::ids::WorkflowId;

/// How long a sentence stays at the bottom.
const NOTICE_MS: i64 = 6_000;
/// Frames that the curve of busy CPUs remembers.
const MAX_BUSY: usize = 240;

impl State {
    /// The first screen: Overview of a workflow, or the list of all.
    pub fn new(settings: Settings, workflow: Option<WorkflowId>, size: (u16, u16)) -> Self {
        Self {
            settings,
            now_ms: 0,
            frame: FramePlaces { size, hits: Vec::new() },
            route: ViewTrail {
                view: if workflow.is_some() { View::Overview } else { View::Workflows },
                trail: Vec::new(),
            },
            workflow: None,
            connection: ServerLink {
                link: Link::Connecting,
                heard_ms: None,
                asked: BTreeMap::new(),
            },
            overview: Overview::default(),
            jobs: JobsScreen::default(),
            failures: List::default(),
            timeline: TimelineScreen::default(),
            nodes: NodesScreen::default(),
            events: Events::default(),
            workflows: Workflows::default(),
            job: None,
            dialogs: Dialogs::default(),
        }
    }

    /// What the loop does before the first event.
    pub fn begin(&mut self, workflow: Option<WorkflowId>, now_ms: i64) -> Vec<Effect> {
        self.now_ms = now_ms;
        let mut effects = Vec::new();
        if let Some(id) = workflow {
            effects = self.open_workflow(id, View::Overview);
        }
        effects.extend(self.refresh());
        effects
    }

    /// Takes one event in.
    pub fn on(&mut self, event: Event, now_ms: i64) -> Vec<Effect> {
        self.now_ms = now_ms;
        if self.dialogs.notice.as_ref().is_some_and(|notice| notice.until_ms <= now_ms) {
            self.dialogs.notice = None;
        }
        let mut effects = match event {
            Event::Key(key) => self.on_key(key),
            Event::Mouse(mouse) => self.on_mouse(mouse),
            Event::Paste(text) => self.on_paste(&text),
            Event::Resize(columns, rows) => {
                self.frame.size = (columns, rows);
                self.keep_in_sight();
                self.load_visible()
            }
            Event::Pulse(id, frame) => self.on_pulse(id, &frame),
            Event::Away(id, why) => self.on_away(Some(id), why),
            Event::Refused(id, why) => self.on_refused(id, &why),
            Event::Answer(request, answer) => self.on_answer(request, answer),
            Event::Closed => vec![Effect::Quit],
            Event::Tick => Vec::new(),
        };
        if !effects.contains(&Effect::Quit) {
            effects.extend(self.refresh());
        }
        effects
    }

    /// Shows another workflow from its beginning.
    pub(crate) fn open_workflow(&mut self, id: WorkflowId, view: View) -> Vec<Effect> {
        self.job = None;
        self.route.go(view);
        if self.workflow == Some(id) {
            return Vec::new();
        }
        self.workflow = Some(id);
        self.connection.link = Link::Connecting;
        self.overview = Overview::default();
        let generation = self.jobs.generation + 1;
        self.jobs = JobsScreen {
            generation,
            hidden: std::mem::take(&mut self.jobs.hidden),
            ..JobsScreen::default()
        };
        self.failures = List::default();
        self.timeline = TimelineScreen::default();
        self.nodes = NodesScreen::default();
        self.events = Events::default();
        self.connection.asked.retain(|feed, _| *feed == Feed::Workflows);
        vec![Effect::Follow(id)]
    }

    /// Goes to a screen; Esc comes back.
    pub(crate) fn go(&mut self, view: View) -> Vec<Effect> {
        if self.workflow.is_none() && view != View::Workflows {
            self.say_bad("choose a workflow first: Enter opens the one under the cursor");
            return Vec::new();
        }
        self.job = None;
        if self.route.view != view {
            self.route.trail.retain(|seen| *seen != view);
            self.route.trail.push(self.route.view);
            self.route.view = view;
        }
        if view == View::Jobs {
            self.propose_filter();
        }
        self.load_visible()
    }

    /// One step back; whether there was one.
    pub(crate) fn back(&mut self) -> bool {
        if let Some(place) = &mut self.job {
            match place.part {
                Part::Both => self.job = None,
                Part::Why | Part::Log | Part::Compare => place.part = Part::Both,
            }
            return true;
        }
        match self.route.trail.pop() {
            Some(view) => {
                self.route.view = view;
                true
            }
            None => false,
        }
    }

    pub(crate) fn say(&mut self, text: impl Into<String>) {
        let until_ms = self.now_ms + NOTICE_MS;
        self.dialogs.notice = Some(Notice { text: text.into(), is_bad: false, until_ms });
    }

    pub(crate) fn say_bad(&mut self, text: impl Into<String>) {
        let until_ms = self.now_ms + NOTICE_MS;
        self.dialogs.notice = Some(Notice { text: text.into(), is_bad: true, until_ms });
    }

    fn on_pulse(&mut self, id: WorkflowId, frame: &PulseView) -> Vec<Effect> {
        if self.workflow != Some(id) {
            return Vec::new();
        }
        let was_away = self.connection.link != Link::Connected;
        self.connection.link = Link::Connected;
        self.connection.heard_ms = Some(self.now_ms);
        let mut counts = [0; 11];
        counts.iter_mut().zip(&frame.counts).for_each(|(sum, count)| *sum = *count);
        let view = self.overview.families.as_mut();
        let is_other = view.as_ref().is_none_or(|view| {
            view.run_id != frame.run_id
                || view.is_complete != frame.is_complete
                || view.is_canceled != frame.is_canceled
                || (view.cpus.busy, view.cpus.runners) != (frame.cpus.busy, frame.cpus.runners)
        });
        if let Some(view) = view {
            view.is_complete = frame.is_complete;
            view.is_canceled = frame.is_canceled;
            view.cpus = frame.cpus;
            view.at_ms = frame.at_ms;
        }
        if was_away || is_other || counts != self.overview.counts {
            self.mark_stale();
        } else {
            // The leases of runners are renewed without any other change.
            self.connection.asked.entry(Feed::Runners).or_default().is_stale = true;
        }
        self.overview.counts = counts;
        for (number, counts) in &frame.families {
            let place =
                usize::try_from(*number).ok().and_then(|n| self.overview.by_family.get_mut(n));
            if let Some(place) = place {
                *place = [0; 11];
                place.iter_mut().zip(counts).for_each(|(sum, count)| *sum = *count);
            }
        }
        self.overview.busy.push(frame.cpus.busy);
        let surplus = self.overview.busy.len().saturating_sub(MAX_BUSY);
        self.overview.busy.drain(..surplus);
        Vec::new()
    }

    /// The server does not answer. What is shown stays, with its age.
    pub(crate) fn on_away(&mut self, id: Option<WorkflowId>, why: String) -> Vec<Effect> {
        if id.is_some() && id != self.workflow {
            return Vec::new();
        }
        // What was asked for will not come.
        for asked in self.connection.asked.values_mut() {
            (asked.is_waiting, asked.is_stale) = (false, true);
        }
        self.jobs.pending.clear();
        self.workflows.pending.clear();
        if let Some(place) = &mut self.job {
            place.log.is_waiting = false;
        }
        let since_ms = match self.connection.link {
            Link::Away { since_ms, .. } => since_ms,
            Link::Connecting | Link::Connected => {
                self.say_bad(why.clone());
                self.connection.heard_ms.unwrap_or(self.now_ms)
            }
        };
        self.connection.link = Link::Away { since_ms, why };
        Vec::new()
    }

    /// The workflow cannot be looked at, now or later: back to the list.
    fn on_refused(&mut self, id: WorkflowId, why: &str) -> Vec<Effect> {
        if self.workflow != Some(id) {
            return Vec::new();
        }
        self.workflow = None;
        self.connection.link = Link::Connecting;
        (self.job, self.dialogs.overlay) = (None, None);
        self.route.trail.clear();
        self.route.view = View::Workflows;
        self.connection.asked.clear();
        self.say_bad(why);
        Vec::new()
    }

    /// Asks for what is on the screen and not here.
    pub(crate) fn load_visible(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.job.is_none() && self.route.view == View::Jobs {
            effects.extend(self.load_jobs());
        }
        if self.route.view == View::Workflows {
            effects.extend(self.load_workflow_rows());
        }
        effects
    }

    /// The families of workflows that are on the screen: their bars and counts.
    pub(crate) fn load_workflow_rows(&mut self) -> Vec<Effect> {
        let rows = usize::from(self.frame.size.1).max(1);
        let Workflows { rows: Some(all), list, pending, families, .. } = &mut self.workflows else {
            return Vec::new();
        };
        let mut effects = Vec::new();
        for workflow in all.iter().skip(list.top).take(rows) {
            // What is complete does not change by itself; opening it asks again.
            let is_done = families.get(&workflow.id).is_some_and(|view| {
                view.is_complete
                    && view.run_id == workflow.run_id
                    && view.total == workflow.job_count
            });
            if !is_done && pending.insert(workflow.id) {
                effects.push(Effect::Fetch(Request::Row(workflow.id)));
            }
        }
        effects
    }

    /// Rows of the body, under the head and above the keys.
    pub(crate) fn body_rows(&self) -> usize {
        usize::from(crate::view::body_height(self.frame.size))
    }

    /// Moves tops of lists so that their cursors are seen.
    pub(crate) fn keep_in_sight(&mut self) {
        let rows = self.body_rows();
        let counts = [
            (View::Nodes, self.node_rows()),
            (View::Events, self.events.shown().len()),
            (View::Workflows, self.workflows.rows.as_ref().map_or(0, Vec::len)),
            (View::Failures, self.overview.failures.as_ref().map_or(0, Vec::len)),
            (View::Overview, self.overview_rows()),
        ];
        for (view, count) in counts {
            let Some(list) = self.list_of(view) else { continue };
            list.cursor = list.cursor.min(count.saturating_sub(1));
            list.show(rows.saturating_sub(1).max(1));
        }
        let rows = self.table_rows();
        let jobs = &mut self.jobs;
        let last = jobs.total.unwrap_or(0).max(1) - 1;
        jobs.cursor = jobs.cursor.clamp(0, last);
        jobs.top = jobs.top.clamp(0, jobs.cursor).max(jobs.cursor + 1 - rows).max(0);
    }

    pub(crate) fn list_of(&mut self, view: View) -> Option<&mut List> {
        match view {
            View::Overview => Some(&mut self.overview.list),
            View::Failures => Some(&mut self.failures),
            View::Nodes => Some(&mut self.nodes.list),
            View::Events => Some(&mut self.events.list),
            View::Workflows => Some(&mut self.workflows.list),
            View::Jobs | View::Timeline => None,
        }
    }

    /// Cause groups and families that the cursor of Overview goes through.
    pub(crate) fn overview_rows(&self) -> usize {
        self.shown_groups() + self.overview.by_family.len()
    }

    /// Cause groups that Overview shows: five at most.
    pub(crate) fn shown_groups(&self) -> usize {
        self.overview.failures.as_ref().map_or(0, |groups| groups.len().min(5))
    }

    pub(crate) fn node_rows(&self) -> usize {
        self.nodes.runners.as_ref().map_or(0, Vec::len) + self.nodes.allocations.len()
    }
}

impl List {
    /// Moves the window so that the cursor is in it.
    pub(crate) fn show(&mut self, rows: usize) {
        self.top = self.top.min(self.cursor).max((self.cursor + 1).saturating_sub(rows));
    }
}

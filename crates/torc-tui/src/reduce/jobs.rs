//! The table of jobs: a cursor over any number of rows, of which a few windows are here.

use crate::format;
use crate::message::{Effect, Request};
use crate::state::*;
use torc_model::api::{JobView, Page};
use torc_model::filter::Filter;
use torc_model::ids::JobId;
use torc_model::status::{JobStatus, Stream};

/// Lines of a quick look.
const PEEK_LINES: usize = 8;

impl State {
    /// Rows of the table that are on the screen.
    pub(crate) fn table_rows(&self) -> i64 {
        let peek = if self.jobs.peek.is_some() { PEEK_LINES + 1 } else { 0 };
        // The filter line and the head of the table.
        let rows = self.body_rows().saturating_sub(2);
        rows.saturating_sub(peek.min(rows / 2)).max(1) as i64
    }

    /// What failed is what people come for; the rest is one key away.
    pub(crate) fn propose_filter(&mut self) {
        let jobs = &mut self.jobs;
        if jobs.is_chosen || !jobs.filter.is_empty() || format::bad(&self.overview.counts) == 0 {
            return;
        }
        jobs.is_chosen = true;
        self.set_filter("-status:completed".into());
    }

    /// Another filter or order: the table from its top.
    pub(crate) fn set_filter(&mut self, filter: String) {
        self.jobs.filter = filter;
        self.restart_table();
    }

    pub(crate) fn restart_table(&mut self) {
        let jobs = &mut self.jobs;
        jobs.generation += 1;
        jobs.is_old = true;
        jobs.opens = None;
        jobs.pending.clear();
        (jobs.cursor, jobs.top) = (0, 0);
        jobs.marks.clear();
        jobs.problem = None;
        jobs.peek = None;
        self.connection.asked.remove(&Feed::Jobs);
    }

    /// Opens the table with a filter.
    pub(crate) fn jobs_where(&mut self, filter: String) -> Vec<Effect> {
        self.jobs.is_chosen = true;
        self.set_filter(filter);
        self.go(View::Jobs)
    }

    /// A filter that cannot be read is told without a question.
    pub(crate) fn check_filter(text: &str) -> Result<(), String> {
        Filter::parse(text).map(drop).map_err(|error| error.to_string())
    }

    /// Asks for the windows on the screen that are neither here nor on their way.
    pub(crate) fn load_jobs(&mut self) -> Vec<Effect> {
        let (Some(id), Some(_), false) = (self.workflow, self.jobs.total, self.jobs.is_old) else {
            return Vec::new();
        };
        let mut effects = Vec::new();
        for window in self.visible_windows() {
            let is_here = self.jobs.windows.contains_key(&window);
            if !is_here && self.jobs.pending.insert(window) {
                effects.push(Effect::Fetch(Request::Jobs(self.jobs.window(id, window))));
            }
        }
        effects
    }

    pub(crate) fn on_jobs(
        &mut self,
        asked: &crate::message::JobsWindow,
        page: Page<JobView>,
    ) -> Vec<Effect> {
        if asked.generation != self.jobs.generation || Some(asked.workflow) != self.workflow {
            return Vec::new();
        }
        let jobs = &mut self.jobs;
        jobs.pending.remove(&asked.window);
        jobs.problem = None;
        if jobs.is_old {
            jobs.windows.clear();
            jobs.is_old = false;
        }
        // After a cursor the server counts what follows it only.
        let total = match asked.after {
            None => page.total_count,
            Some(_) => asked.window * WINDOW + page.total_count,
        };
        jobs.total = Some(total);
        jobs.windows.insert(asked.window, page.items);
        while jobs.windows.len() > MAX_WINDOWS {
            let here = jobs.cursor / WINDOW;
            let far = jobs.windows.keys().copied().max_by_key(|window| (window - here).abs());
            if let Some(window) = far {
                jobs.windows.remove(&window);
            }
        }
        // Rows behind the end went with a shorter answer.
        jobs.windows.retain(|window, _| window * WINDOW < total.max(1));
        self.keep_in_sight();
        let mut effects = self.load_jobs();
        effects.extend(self.follow_peek());
        let is_here =
            self.route.view == View::Jobs && self.job.is_none() && self.dialogs.overlay.is_none();
        if let Some(part) = self.jobs.opens.take().filter(|_| is_here) {
            effects.extend(self.open_current(part).unwrap_or_default());
        }
        effects
    }

    /// Opens the job under the cursor.
    pub(crate) fn open_current(&mut self, part: Part) -> Option<Vec<Effect>> {
        let job = self.current_job()?;
        let (id, name) = (job.id, job.name.clone());
        let effects = self.open_job(id, name);
        if let Some(place) = &mut self.job {
            place.part = part;
        }
        Some(effects)
    }

    /// Moves the cursor by so many rows.
    pub(crate) fn move_in_table(&mut self, by: i64) -> Vec<Effect> {
        self.jobs.cursor = self.jobs.cursor.saturating_add(by);
        self.keep_in_sight();
        let mut effects = self.load_jobs();
        effects.extend(self.follow_peek());
        effects
    }

    /// The job under the cursor. Rows of another filter are not for acting.
    pub(crate) fn current_job(&self) -> Option<&JobView> {
        if self.jobs.is_old { None } else { self.jobs.row(self.jobs.cursor) }
    }

    pub(crate) fn toggle_mark(&mut self) -> Vec<Effect> {
        let Some(id) = self.current_job().map(|job| job.id) else { return Vec::new() };
        self.jobs.marks.all = false;
        if !self.jobs.marks.jobs.remove(&id) {
            self.jobs.marks.jobs.insert(id);
        }
        self.move_in_table(1)
    }

    pub(crate) fn mark_all(&mut self) {
        self.jobs.marks.jobs.clear();
        self.jobs.marks.all = !self.jobs.marks.all;
        if self.jobs.marks.all && self.jobs.filter.is_empty() {
            self.say("every job of the workflow is marked; Esc takes the marks back");
        }
    }

    pub(crate) fn toggle_peek(&mut self) -> Vec<Effect> {
        if self.jobs.peek.take().is_some() {
            self.keep_in_sight();
            return Vec::new();
        }
        let Some((job, stream)) = self.current_job().map(|job| (job.id, quick_stream(job))) else {
            return Vec::new();
        };
        self.jobs.peek = Some(Peek { job, stream, lines: None });
        self.keep_in_sight();
        vec![Effect::Fetch(Request::Peek(job, stream))]
    }

    /// The quick look follows the cursor.
    fn follow_peek(&mut self) -> Vec<Effect> {
        let Some(peek) = &self.jobs.peek else { return Vec::new() };
        let Some((job, stream)) = self.current_job().map(|job| (job.id, quick_stream(job))) else {
            return Vec::new();
        };
        if peek.job == job {
            return Vec::new();
        }
        self.jobs.peek = Some(Peek { job, stream, lines: None });
        vec![Effect::Fetch(Request::Peek(job, stream))]
    }

    pub(crate) fn on_peek(&mut self, job: JobId, text: Result<String, String>) {
        let Some(peek) = self.jobs.peek.as_mut().filter(|peek| peek.job == job) else { return };
        peek.lines = Some(match text {
            Ok(text) => {
                let lines: Vec<String> = text.lines().map(crate::text::output).collect();
                lines[lines.len().saturating_sub(PEEK_LINES)..].to_vec()
            }
            Err(message) => vec![crate::text::line(&message).into_owned()],
        });
    }

    /// The next order, or the same from the other end.
    pub(crate) fn sort_by(&mut self, sort: &'static str) -> Vec<Effect> {
        let jobs = &mut self.jobs;
        jobs.order.reverse = jobs.order.sort == sort && !jobs.order.reverse;
        jobs.order.sort = sort;
        self.restart_table();
        Vec::new()
    }
}

/// Where a quick look finds most: what went wrong, or what it says.
fn quick_stream(job: &JobView) -> Stream {
    let is_bad = job.status.is_bad_end() || job.status == JobStatus::PendingFailed;
    if is_bad { Stream::Stderr } else { Stream::Stdout }
}

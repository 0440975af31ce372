//! Keys.

use crate::format::quoted;
use crate::message::Effect;
use crate::state::*;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use torc_model::api::ActWord;

/// How much of the timeline one step pans.
const PAN: f64 = 0.25;
const ZOOM: f64 = 1.6;
/// The shortest span that the timeline shows, in ms.
const SHORTEST: i64 = 10;
/// Columns that a long line moves at once.
const SIDE_STEP: usize = 20;

impl State {
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return vec![Effect::Quit],
                KeyCode::Char('l') => return vec![Effect::Repaint],
                KeyCode::Char('z') => return vec![Effect::Suspend],
                _ => {}
            }
        }
        match self.dialogs.overlay {
            Some(Overlay::Input(_)) => return self.on_input_key(key),
            Some(Overlay::Palette(_)) => return self.on_palette_key(key),
            Some(Overlay::Act(_)) => return self.on_act_key(key),
            Some(Overlay::Columns { .. }) => return self.on_columns_key(key),
            Some(Overlay::Help { .. }) => {
                if let Some(effects) = self.on_help_key(key) {
                    return effects;
                }
            }
            None => {}
        }
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return Vec::new();
        }
        let handled = match (&self.job, self.route.view) {
            (Some(_), _) => self.on_job_key(key.code),
            (None, View::Jobs) => self.on_jobs_key(key.code),
            (None, View::Timeline) => self.on_timeline_key(key.code),
            (None, _) => self.on_list_key(key.code),
        };
        match handled {
            Some(effects) => effects,
            None => self.on_common_key(key.code),
        }
    }

    /// Keys of every screen.
    fn on_common_key(&mut self, code: KeyCode) -> Vec<Effect> {
        match code {
            KeyCode::Char(digit @ '1'..='7') => {
                let at = digit as usize - '1' as usize;
                self.go(View::ALL[at])
            }
            KeyCode::Tab | KeyCode::BackTab => {
                let at = View::ALL.iter().position(|view| *view == self.route.view).unwrap_or(0);
                let step = if code == KeyCode::Tab { 1 } else { View::ALL.len() - 1 };
                self.go(View::ALL[(at + step) % View::ALL.len()])
            }
            KeyCode::Char(':') => self.open_palette(),
            KeyCode::Char('?') => {
                self.dialogs.overlay = Some(Overlay::Help { top: 0 });
                Vec::new()
            }
            KeyCode::Char('Q') => vec![Effect::Quit],
            KeyCode::Char('q') | KeyCode::Esc => {
                self.dialogs.notice = None;
                let is_marked = !self.jobs.marks.is_empty();
                if self.job.is_none() && self.route.view == View::Jobs && is_marked {
                    self.jobs.marks.clear();
                    return Vec::new();
                }
                match (self.back(), code) {
                    (true, _) => self.load_visible(),
                    (false, KeyCode::Char('q')) => vec![Effect::Quit],
                    (false, _) => Vec::new(),
                }
            }
            KeyCode::Char(c) => match action(c) {
                Some(action) => self.propose(action),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Overview, Failures, Nodes, Events and Workflows: a cursor in a list.
    fn on_list_key(&mut self, code: KeyCode) -> Option<Vec<Effect>> {
        if let Some(by) = self.steps(code) {
            return Some(self.move_in_list(by));
        }
        match (code, self.route.view) {
            (KeyCode::Enter, View::Overview) => {
                let at = self.overview.list.cursor;
                match at.checked_sub(self.shown_groups()) {
                    None => {
                        self.failures.cursor = at;
                        Some(self.go(View::Failures))
                    }
                    Some(at) => {
                        let family = self.overview.families.as_ref()?.families.get(at)?;
                        Some(self.jobs_where(format!("family:{}", quoted(&family.name))))
                    }
                }
            }
            (KeyCode::Enter, View::Failures) => {
                let group = self.overview.failures.as_ref()?.get(self.failures.cursor)?;
                let (id, name) = (group.sample.job, group.sample.name.clone());
                Some(self.open_job(id, name))
            }
            (KeyCode::Char('J'), View::Failures) => {
                let group = self.overview.failures.as_ref()?.get(self.failures.cursor)?;
                Some(self.jobs_where(group.filter.clone()))
            }
            (KeyCode::Enter, View::Nodes) => {
                let runner = self.nodes.runners.as_ref()?.get(self.nodes.list.cursor)?;
                Some(self.jobs_where(format!("node:{}", quoted(&runner.hostname))))
            }
            (KeyCode::Enter, View::Events) => {
                let shown = self.events.shown();
                let event = shown.get(self.events.list.cursor)?;
                let (id, name) = (event.job_id?, event.job_name.clone().unwrap_or_default());
                Some(self.open_job(id, name))
            }
            (KeyCode::Char('/'), View::Events) => {
                self.type_in(InputFor::EventFilter);
                Some(Vec::new())
            }
            (KeyCode::Enter, View::Workflows) => {
                let rows = self.workflows.rows.as_ref()?;
                let id = rows.get(self.workflows.list.cursor)?.id;
                Some(self.open_workflow(id, View::Overview))
            }
            _ => None,
        }
    }

    pub(crate) fn move_in_list(&mut self, by: i64) -> Vec<Effect> {
        let count = match self.route.view {
            View::Overview => self.overview_rows(),
            View::Failures => self.overview.failures.as_ref().map_or(0, Vec::len),
            View::Nodes => self.node_rows(),
            View::Events => self.events.shown().len(),
            View::Workflows => self.workflows.rows.as_ref().map_or(0, Vec::len),
            View::Jobs | View::Timeline => 0,
        };
        if let Some(list) = self.list_of(self.route.view) {
            let cursor = (list.cursor as i64).saturating_add(by);
            list.cursor = usize::try_from(cursor.max(0)).unwrap_or(0).min(count.saturating_sub(1));
        }
        self.keep_in_sight();
        self.load_visible()
    }

    /// How far a key moves a cursor.
    fn steps(&self, code: KeyCode) -> Option<i64> {
        let page = self.body_rows().saturating_sub(3).max(1) as i64;
        // Far enough from the ends of the type that a cursor can be added.
        const ALL: i64 = i64::MAX / 4;
        match code {
            KeyCode::Down | KeyCode::Char('j') => Some(1),
            KeyCode::Up | KeyCode::Char('k') => Some(-1),
            KeyCode::PageDown => Some(page),
            KeyCode::PageUp => Some(-page),
            KeyCode::Home | KeyCode::Char('g') => Some(-ALL),
            KeyCode::End | KeyCode::Char('G') => Some(ALL),
            _ => None,
        }
    }

    fn on_jobs_key(&mut self, code: KeyCode) -> Option<Vec<Effect>> {
        self.jobs.opens = None;
        if let Some(by) = self.steps(code) {
            return Some(self.move_in_table(by));
        }
        match code {
            KeyCode::Enter | KeyCode::Char('l' | 'w') => {
                let part = match code {
                    KeyCode::Char('l') => Part::Log,
                    KeyCode::Char('w') => Part::Why,
                    _ => Part::Both,
                };
                if self.jobs.is_old {
                    self.jobs.opens = Some(part);
                    return Some(Vec::new());
                }
                self.open_current(part)
            }
            KeyCode::Char('/') => {
                self.type_in(InputFor::JobFilter);
                Some(Vec::new())
            }
            KeyCode::Char(' ') => Some(self.toggle_peek()),
            KeyCode::Char('v') => Some(self.toggle_mark()),
            KeyCode::Char('V') => {
                self.mark_all();
                Some(Vec::new())
            }
            KeyCode::Char('u') => {
                self.jobs.marks.clear();
                Some(Vec::new())
            }
            KeyCode::Char('s') => {
                let at = SORTS.iter().position(|sort| *sort == self.jobs.order.sort).unwrap_or(0);
                Some(self.sort_by(SORTS[(at + 1) % SORTS.len()]))
            }
            KeyCode::Char('S') => Some(self.sort_by(self.jobs.order.sort)),
            KeyCode::Char('c') => {
                self.dialogs.overlay = Some(Overlay::Columns { cursor: 0 });
                Some(Vec::new())
            }
            KeyCode::Char('y') => {
                let name = self.current_job()?.name.clone();
                self.say("copied the name");
                Some(vec![Effect::Copy(name)])
            }
            _ => None,
        }
    }

    fn on_timeline_key(&mut self, code: KeyCode) -> Option<Vec<Effect>> {
        match code {
            KeyCode::Char('+' | '=') => self.zoom(1.0 / ZOOM),
            KeyCode::Char('-') => self.zoom(ZOOM),
            KeyCode::Char('h') => self.pan(-PAN),
            KeyCode::Char('l') => self.pan(PAN),
            KeyCode::Char('0') => self.timeline.span = None,
            KeyCode::Right => self.step_bar(1),
            KeyCode::Left => self.step_bar(-1),
            KeyCode::Enter => {
                let bars = self.timeline.bars.as_ref()?;
                let job = bars.bars.get(self.timeline.current?)?.job;
                return Some(self.open_job(job, format!("job {job}")));
            }
            _ => {
                let by = self.steps(code)?;
                let rows = self.timeline.bars.as_ref().map_or(0, |bars| bars.hosts.len());
                let top = (self.timeline.top as i64).saturating_add(by);
                let last = rows.saturating_sub(1) as i64;
                self.timeline.top = top.clamp(0, last) as usize;
            }
        }
        Some(Vec::new())
    }

    /// The time that the timeline shows, in ms since its first start.
    pub(crate) fn span(&self) -> (i64, i64) {
        let Some(bars) = &self.timeline.bars else { return (0, 1) };
        self.timeline.span.unwrap_or_else(|| (0, bars.end(self.timeline_now())))
    }

    /// Now, on the timeline; what has ended does not grow.
    pub(crate) fn timeline_now(&self) -> i64 {
        let is_complete = self.overview.families.as_ref().is_some_and(|view| view.is_complete);
        let base = self.timeline.bars.as_ref().map_or(0, |bars| bars.base_ms);
        if is_complete { 0 } else { (self.now_ms - base).max(0) }
    }

    pub(crate) fn zoom(&mut self, factor: f64) {
        let (from, until) = self.span();
        let bars = self.timeline.bars.as_ref();
        let whole = bars.map_or(1, |bars| bars.end(self.timeline_now()));
        let current = self.timeline.current.and_then(|at| bars?.bars.get(at));
        let middle = current
            .map(|bar| (bar.start + bar.end(self.timeline_now())) / 2)
            .filter(|at| (from..until).contains(at))
            .unwrap_or((from + until) / 2);
        let length = (((until - from) as f64) * factor) as i64;
        if length >= whole {
            self.timeline.span = None;
            return;
        }
        let length = length.max(SHORTEST);
        let share = (middle - from) as f64 / (until - from).max(1) as f64;
        let begin = middle - (length as f64 * share) as i64;
        self.timeline.span = Some((begin, begin + length));
    }

    fn pan(&mut self, share: f64) {
        let (from, until) = self.span();
        let by = ((until - from) as f64 * share) as i64;
        let whole = self.timeline.bars.as_ref().map_or(1, |bars| bars.end(self.timeline_now()));
        let by = by.clamp(-from, (whole - until).max(-from).max(0));
        self.timeline.span = Some((from + by, until + by));
    }

    fn step_bar(&mut self, by: i64) {
        let Some(bars) = self.timeline.bars.clone() else { return };
        if bars.bars.is_empty() {
            return;
        }
        let last = bars.bars.len() as i64 - 1;
        let next = match self.timeline.current {
            Some(at) => (at as i64 + by).clamp(0, last),
            None if by > 0 => 0,
            None => last,
        };
        self.choose_bar(next as usize);
    }

    /// Puts the cursor on a bar and brings it into sight.
    pub(crate) fn choose_bar(&mut self, at: usize) {
        let Some(bars) = self.timeline.bars.clone() else { return };
        let Some(bar) = bars.bars.get(at) else { return };
        self.timeline.current = Some(at);
        let (from, until) = self.span();
        if bar.start < from || bar.start > until {
            let half = (until - from) / 2;
            self.timeline.span = Some((bar.start - half, bar.start + half));
        }
        let rows = self.body_rows().saturating_sub(5).max(1);
        let row = bar.row as usize;
        self.timeline.top = self.timeline.top.min(row).max((row + 1).saturating_sub(rows));
    }

    fn on_job_key(&mut self, code: KeyCode) -> Option<Vec<Effect>> {
        let part = self.job.as_ref()?.part;
        if let Some(by) = self.steps(code) {
            return Some(self.scroll_job(part, code, by));
        }
        let place = self.job.as_mut()?;
        match code {
            KeyCode::Char('l') | KeyCode::Enter => place.part = Part::Log,
            KeyCode::Char('w') => place.part = Part::Why,
            KeyCode::Char('W') => place.log.scroll.wrap = !place.log.scroll.wrap,
            KeyCode::Left => {
                place.log.scroll.left = place.log.scroll.left.saturating_sub(SIDE_STEP)
            }
            KeyCode::Right => place.log.scroll.left += SIDE_STEP,
            KeyCode::Char('[') => return Some(self.step_attempt(-1)),
            KeyCode::Char(']') => return Some(self.step_attempt(1)),
            KeyCode::Char('s') => {
                let effects = self.next_stream();
                let is_compared = part == Part::Compare;
                return Some(if is_compared { self.compare_attempts() } else { effects });
            }
            KeyCode::Char('d') => return Some(self.compare_attempts()),
            KeyCode::Char('/') => {
                if part != Part::Compare {
                    if part == Part::Why {
                        place.part = Part::Log;
                    }
                    self.type_in(InputFor::LogSearch { is_regex: false });
                }
            }
            KeyCode::Char('n') => return Some(self.show_hit(1)),
            KeyCode::Char('N') => return Some(self.show_hit(-1)),
            KeyCode::Char('o') => {
                let Some(of) = place.log_of() else {
                    self.say("it has not started, so there is no output yet");
                    return Some(Vec::new());
                };
                return Some(vec![Effect::Pager(of)]);
            }
            KeyCode::Char('e') => {
                let command = place.why.as_ref().map(|why| why.job.command.clone());
                return Some(command.map(Effect::Editor).into_iter().collect());
            }
            KeyCode::Char('y') => {
                let command = log_command(place);
                self.say(format!("copied `{command}`"));
                return Some(vec![Effect::Copy(command)]);
            }
            _ => return None,
        }
        Some(Vec::new())
    }

    pub(crate) fn scroll_job(&mut self, part: Part, code: KeyCode, by: i64) -> Vec<Effect> {
        match (part, code) {
            (Part::Both | Part::Log, KeyCode::Home | KeyCode::Char('g')) => self.log_to_start(),
            (Part::Both | Part::Log, KeyCode::End | KeyCode::Char('G')) => self.log_to_end(),
            (Part::Both | Part::Log, _) => self.scroll_log(by),
            (Part::Why, _) => {
                let rows = self.body_rows();
                let count = crate::view::why_lines(self).saturating_sub(rows);
                if let Some(place) = &mut self.job {
                    let top = (place.why_top as i64).saturating_add(by);
                    place.why_top = top.clamp(0, count as i64) as usize;
                }
                Vec::new()
            }
            (Part::Compare, _) => {
                let rows = self.body_rows();
                if let Some(compared) = self.job.as_mut().and_then(|place| place.compared.as_mut())
                {
                    let count =
                        compared.lines.as_ref().map_or(0, Vec::len).saturating_sub(rows / 2);
                    let top = (compared.top as i64).saturating_add(by);
                    compared.top = top.clamp(0, count as i64) as usize;
                }
                Vec::new()
            }
        }
    }

    fn on_act_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let Some(Overlay::Act(dialog)) = &mut self.dialogs.overlay else { return Vec::new() };
        let command = dialog.plan.as_ref().map(|plan| plan.command.clone());
        let has_value = dialog.value.is_some();
        match key.code {
            KeyCode::Esc => self.dialogs.overlay = None,
            KeyCode::Enter => return self.carry_out(),
            KeyCode::Char('y') if is_control || !has_value => {
                if let Some(command) = command {
                    self.say("copied the command");
                    return vec![Effect::Copy(command)];
                }
            }
            KeyCode::Char('q') if !has_value => self.dialogs.overlay = None,
            _ => {
                if let Some(value) = &mut dialog.value
                    && !dialog.is_going
                    && value.on_key(key)
                {
                    return self.plan_again();
                }
            }
        }
        Vec::new()
    }

    fn on_columns_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(Overlay::Columns { cursor }) = &mut self.dialogs.overlay else {
            return Vec::new();
        };
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => *cursor = cursor.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => {
                *cursor = (*cursor + 1).min(Column::ALL.len() - 1);
            }
            KeyCode::Char(' ') | KeyCode::Enter => {
                let column = Column::ALL[*cursor];
                // A table without names would be of no use.
                if column != Column::Name && !self.jobs.hidden.remove(&column) {
                    self.jobs.hidden.insert(column);
                }
            }
            KeyCode::Esc | KeyCode::Char('q' | 'c') => self.dialogs.overlay = None,
            _ => {}
        }
        Vec::new()
    }

    /// `None`: the key is for the screen below.
    fn on_help_key(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let by = self.steps(key.code);
        let count = crate::view::help_lines(self);
        let rows = self.body_rows();
        let Some(Overlay::Help { top }) = &mut self.dialogs.overlay else { return None };
        if let Some(by) = by {
            let last = count.saturating_sub(rows.saturating_sub(2)) as i64;
            *top = (*top as i64).saturating_add(by).clamp(0, last) as usize;
            return Some(Vec::new());
        }
        self.dialogs.overlay = None;
        match key.code {
            KeyCode::Esc | KeyCode::Char('q' | '?') => Some(Vec::new()),
            _ => None,
        }
    }
}

/// Letters that act, on every screen that has jobs.
fn action(letter: char) -> Option<ActWord> {
    Some(match letter {
        'r' => ActWord::Retry,
        'R' => ActWord::Recover,
        'x' => ActWord::Cancel,
        'h' => ActWord::Hold,
        'H' => ActWord::Release,
        'p' => ActWord::Priority,
        'm' => ActWord::Memory,
        't' => ActWord::Runtime,
        'f' => ActWord::Fail,
        _ => return None,
    })
}

/// The command that prints what is shown.
fn log_command(place: &JobPlace) -> String {
    let stream = match place.stream.as_str().contains("stdout") {
        true => "--stdout",
        false => "--stderr",
    };
    match place.attempt() {
        Some(attempt) => {
            format!("torc logs {} --attempt {} {stream}", place.id, attempt.attempt_id)
        }
        None => format!("torc logs {}", place.id),
    }
}

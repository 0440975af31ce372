//! Lines that are typed: filter, search, palette, values.

use crate::message::{Effect, Request};
use crate::state::*;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use torc_model::api::{ActWord, JobView, WorkflowView};

/// No filter, search or value comes near this; a paste may.
const LONGEST: usize = 4096;

impl Editor {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), at: text.len() }
    }

    /// Puts text in at the cursor; line breaks and control characters do not get in.
    pub(crate) fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            if self.text.len() + c.len_utf8() <= LONGEST {
                self.text.insert(self.at, c);
                self.at += c.len_utf8();
            }
        }
    }

    /// Takes a key in; whether the text changed.
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> bool {
        let before = self.text.clone();
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let previous = self.text[..self.at].chars().next_back().map_or(0, char::len_utf8);
        let next = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        match (key.code, is_control) {
            (KeyCode::Char('u'), true) => {
                self.text.drain(..self.at);
                self.at = 0;
            }
            (KeyCode::Char('k'), true) => self.text.truncate(self.at),
            (KeyCode::Char('w'), true) => {
                let word = self.text[..self.at].trim_end();
                let start = word.rfind(' ').map_or(0, |at| at + 1);
                self.text.drain(start..self.at);
                self.at = start;
            }
            (KeyCode::Char('a'), true) | (KeyCode::Home, _) => self.at = 0,
            (KeyCode::Char('e'), true) | (KeyCode::End, _) => self.at = self.text.len(),
            (KeyCode::Char(c), false) => self.insert(c.encode_utf8(&mut [0; 4])),
            (KeyCode::Backspace, _) if previous > 0 => {
                self.at -= previous;
                self.text.remove(self.at);
            }
            (KeyCode::Delete, _) if next > 0 => {
                self.text.remove(self.at);
            }
            (KeyCode::Left, _) => self.at -= previous,
            (KeyCode::Right, _) => self.at += next,
            _ => {}
        }
        self.text != before
    }
}

impl State {
    pub(crate) fn type_in(&mut self, what: InputFor) {
        let before = match what {
            InputFor::JobFilter => self.jobs.filter.clone(),
            InputFor::EventFilter => self.events.filter.clone(),
            InputFor::LogSearch { .. } => self
                .job
                .as_ref()
                .and_then(|place| place.log.search.as_ref())
                .map(|search| search.text.clone())
                .unwrap_or_default(),
        };
        let editor = Editor::new(&before);
        self.dialogs.overlay = Some(Overlay::Input(Input { what, editor, before, problem: None }));
    }

    pub(crate) fn on_input_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(Overlay::Input(input)) = &mut self.dialogs.overlay else { return Vec::new() };
        match key.code {
            KeyCode::Esc => {
                let (what, before) = (input.what, input.before.clone());
                self.dialogs.overlay = None;
                return match what {
                    InputFor::JobFilter if before != self.jobs.filter => {
                        self.set_filter(before);
                        Vec::new()
                    }
                    InputFor::EventFilter => {
                        self.events.filter = before;
                        Vec::new()
                    }
                    _ => Vec::new(),
                };
            }
            KeyCode::Enter => {
                if input.problem.is_some() {
                    return Vec::new();
                }
                let (what, text) = (input.what, input.editor.text.trim().to_owned());
                self.dialogs.overlay = None;
                return match what {
                    InputFor::LogSearch { is_regex } => self.search_log(text, is_regex),
                    InputFor::JobFilter | InputFor::EventFilter => Vec::new(),
                };
            }
            KeyCode::Char('r') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                if let InputFor::LogSearch { is_regex } = &mut input.what {
                    *is_regex = !*is_regex;
                }
                return Vec::new();
            }
            _ => {}
        }
        if input.editor.on_key(key) { self.on_typed() } else { Vec::new() }
    }

    /// The filters hold while they are typed.
    fn on_typed(&mut self) -> Vec<Effect> {
        let Some(Overlay::Input(input)) = &mut self.dialogs.overlay else { return Vec::new() };
        let text = input.editor.text.trim().to_owned();
        match input.what {
            InputFor::JobFilter => {
                input.problem = Self::check_filter(&text).err();
                if input.problem.is_none() && text != self.jobs.filter {
                    self.jobs.is_chosen = true;
                    self.set_filter(text);
                }
            }
            InputFor::EventFilter => {
                self.events.filter = text;
                self.events.list = List::default();
            }
            InputFor::LogSearch { .. } => {}
        }
        Vec::new()
    }

    pub(crate) fn on_paste(&mut self, text: &str) -> Vec<Effect> {
        match &mut self.dialogs.overlay {
            Some(Overlay::Input(input)) => {
                input.editor.insert(text);
                self.on_typed()
            }
            Some(Overlay::Palette(palette)) => {
                palette.editor.insert(text);
                self.find()
            }
            Some(Overlay::Act(dialog)) => match &mut dialog.value {
                Some(value) => {
                    value.insert(text);
                    self.plan_again()
                }
                None => Vec::new(),
            },
            Some(Overlay::Help { .. } | Overlay::Columns { .. }) | None => Vec::new(),
        }
    }

    pub(crate) fn open_palette(&mut self) -> Vec<Effect> {
        let palette =
            Palette { editor: Editor::default(), items: Vec::new(), found: Vec::new(), cursor: 0 };
        self.dialogs.overlay = Some(Overlay::Palette(palette));
        self.find()
    }

    /// Lines of the palette that fit what is typed: places and actions at once, workflows and jobs
    /// when the server has found them.
    fn find(&mut self) -> Vec<Effect> {
        let workflow = self.workflow;
        let has_jobs = self.job.is_some() || self.route.view != View::Workflows;
        let Some(Overlay::Palette(palette)) = &mut self.dialogs.overlay else { return Vec::new() };
        let text = palette.editor.text.trim().to_lowercase();
        let mut items = Vec::new();
        // `:jobs status:failed` opens the table with a filter.
        if let Some(filter) = text.strip_prefix("jobs ").map(str::trim) {
            let typed = palette.editor.text.trim()[5..].trim().to_owned();
            if workflow.is_some() && Self::check_filter(filter).is_ok() {
                items.push(PaletteItem { text: format!("jobs {typed}"), go: Go::JobsWhere(typed) });
            }
        }
        for view in View::ALL {
            if workflow.is_some() || view == View::Workflows {
                items.push(PaletteItem { text: view.title().to_lowercase(), go: Go::View(view) });
            }
        }
        if workflow.is_some() && has_jobs {
            items.extend(ActWord::ALL.iter().map(|action| {
                let title = super::acting::title(*action).to_lowercase();
                let text = match title == action.as_str() {
                    true => title,
                    false => format!("{action}: {title}"),
                };
                PaletteItem { text, go: Go::Act(*action) }
            }));
        }
        items.push(PaletteItem { text: "help".into(), go: Go::Help });
        items.push(PaletteItem { text: "quit".into(), go: Go::Quit });
        items.retain(|item| item.text.to_lowercase().contains(&text));
        palette.items = items;
        palette.found.clear();
        palette.cursor = 0;
        let text = palette.editor.text.trim().to_owned();
        vec![Effect::Fetch(Request::Find(workflow, text))]
    }

    pub(crate) fn on_found(
        &mut self,
        text: &str,
        workflows: Vec<WorkflowView>,
        jobs: Vec<JobView>,
    ) {
        let Some(Overlay::Palette(palette)) = &mut self.dialogs.overlay else { return };
        if palette.editor.text.trim() != text {
            return;
        }
        let workflows = workflows.into_iter().map(|workflow| PaletteItem {
            text: format!("workflow {} (#{})", workflow.name, workflow.id),
            go: Go::Workflow(workflow.id),
        });
        let jobs = jobs.into_iter().map(|job| PaletteItem {
            text: format!("job {}", job.name),
            go: Go::Job(job.id, job.name),
        });
        palette.found = workflows.chain(jobs).collect();
    }

    pub(crate) fn on_palette_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(Overlay::Palette(palette)) = &mut self.dialogs.overlay else { return Vec::new() };
        let count = palette.items.len() + palette.found.len();
        match key.code {
            KeyCode::Esc => self.dialogs.overlay = None,
            KeyCode::Up => palette.cursor = palette.cursor.saturating_sub(1),
            KeyCode::Down | KeyCode::Tab => {
                palette.cursor = (palette.cursor + 1).min(count.saturating_sub(1));
            }
            KeyCode::Enter => {
                let all = palette.items.iter().chain(&palette.found);
                let go = all.map(|item| item.go.clone()).nth(palette.cursor);
                self.dialogs.overlay = None;
                return match go {
                    Some(go) => self.follow_item(go),
                    None => {
                        self.say_bad("there is no such place, workflow or job");
                        Vec::new()
                    }
                };
            }
            _ => {
                if palette.editor.on_key(key) {
                    return self.find();
                }
            }
        }
        Vec::new()
    }

    fn follow_item(&mut self, go: Go) -> Vec<Effect> {
        match go {
            Go::View(view) => self.go(view),
            Go::JobsWhere(filter) => self.jobs_where(filter),
            Go::Workflow(id) => self.open_workflow(id, View::Overview),
            Go::Job(id, name) => self.open_job(id, name),
            Go::Act(action) => self.propose(action),
            Go::Help => {
                self.dialogs.overlay = Some(Overlay::Help { top: 0 });
                Vec::new()
            }
            Go::Quit => vec![Effect::Quit],
        }
    }
}

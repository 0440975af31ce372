//! Nodes, events and workflows.

use super::canvas::{Canvas, Cell, TableColumn, layout};
use super::empty;
use crate::format::{self, grouped};
use crate::reduce::numbers;
use crate::state::{InputFor, Overlay, State, Target};
use crate::theme::Tone;
use ratatui::layout::Rect;
use torc_model::api::{EventView, FamiliesView, RunnerView, WorkflowView};
use torc_model::slurm;
use torc_model::slurm::wire::AllocationView;
use torc_model::status::{JobStatus, RunnerState};

const fn left(title: &'static str, width: u16, rank: u8, grows: u16) -> TableColumn {
    TableColumn { title, width, is_right: false, rank, grows }
}

const fn right(title: &'static str, width: u16, rank: u8) -> TableColumn {
    TableColumn { title, width, is_right: true, rank, grows: 0 }
}

const RUNNERS: [TableColumn; 8] = [
    left("Host", 14, 0, 16),
    left("State", 16, 1, 0),
    right("Running", 7, 2),
    right("CPUs", 5, 3),
    right("Memory", 8, 4),
    right("Since", 15, 6),
    right("Last seen", 20, 5),
    left("", 12, 7, 60),
];
const ALLOCATIONS: [TableColumn; 6] = [
    left("Slurm job", 12, 0, 8),
    left("State", 12, 1, 0),
    left("Why", 24, 2, 60),
    right("Asked", 15, 4),
    right("Started", 15, 3),
    right("Ended", 15, 5),
];

fn why(allocation: &AllocationView) -> String {
    allocation.reason.as_deref().map(slurm::reason::text).unwrap_or_default()
}

/// An allocation on one line of Overview.
pub fn allocation_line(allocation: &AllocationView, dot: &str) -> String {
    let id = allocation.slurm_job_id.as_deref().unwrap_or("not sent yet");
    let state = allocation.state.as_deref().unwrap_or(allocation.status.as_str());
    let why = match why(allocation) {
        why if why.is_empty() => String::new(),
        why => format!("{dot}{why}"),
    };
    format!("Slurm {id} {state}{why}")
}

pub fn nodes(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(runners) = &state.nodes.runners else {
        return empty(canvas, area, 0, "loading the runners");
    };
    let allocations = &state.nodes.allocations;
    let mut y = 0;
    if runners.is_empty() && allocations.is_empty() {
        let id = state.workflow.map_or(0, |id| id.0);
        let said = format!("No runner has worked for it yet. `torc run {id}` starts one.");
        return empty(canvas, area, 0, &said);
    }
    let below = if allocations.is_empty() {
        0
    } else {
        (allocations.len() as u16 + 2).min(area.height / 2)
    };
    let rows = area.height.saturating_sub(below + 1);
    let places = layout(&RUNNERS, area.width);
    canvas.head(area, y, &RUNNERS, &places);
    y += 1;
    let cursor = state.nodes.list.cursor;
    let top = (cursor.min(runners.len().saturating_sub(1)) + 1).saturating_sub(usize::from(rows));
    for (number, runner) in runners.iter().enumerate().skip(top).take(usize::from(rows)) {
        canvas.row(area, y, &RUNNERS, &places, &runner_cells(state, canvas, runner));
        pick(canvas, area, y, number, cursor);
        y += 1;
    }
    if allocations.is_empty() {
        return;
    }
    y += 1;
    let places = layout(&ALLOCATIONS, area.width);
    canvas.head(area, y, &ALLOCATIONS, &places);
    y += 1;
    let rows = usize::from(area.height.saturating_sub(y));
    let at = cursor.saturating_sub(runners.len());
    let top = (at + 1).saturating_sub(rows);
    for (number, allocation) in allocations.iter().enumerate().skip(top).take(rows) {
        canvas.row(area, y, &ALLOCATIONS, &places, &allocation_cells(state, canvas, allocation));
        pick(canvas, area, y, runners.len() + number, cursor);
        y += 1;
    }
}

fn pick(canvas: &mut Canvas<'_>, area: Rect, y: u16, number: usize, cursor: usize) {
    if number == cursor {
        canvas.restyle(area, y, canvas.style(Tone::Picked));
    }
    if y < area.height {
        canvas.hit(Rect { y: area.y + y, height: 1, ..area }, Target::Row(number as i64));
    }
}

fn runner_cells(state: &State, canvas: &Canvas<'_>, runner: &RunnerView) -> Vec<Cell> {
    let plain = canvas.style(Tone::Plain);
    let clock = |ms| format::clock(ms, state.now_ms, &state.settings.zone);
    let warning = canvas.theme.warning();
    let (word, style) = match runner.state {
        RunnerState::Active => ("active".to_owned(), canvas.style(Tone::Good)),
        RunnerState::LostContact => (format!("{warning} out of contact"), canvas.style(Tone::Warn)),
        RunnerState::Ended => ("ended".to_owned(), canvas.style(Tone::Quiet)),
    };
    let seen = match (runner.state, runner.ended_ms) {
        (RunnerState::Ended, Some(ms)) => format!("left {}", clock(ms)),
        _ => format::ago(runner.last_seen_ms, state.now_ms),
    };
    let (note, tone) = match (&runner.quarantine, &runner.end_reason) {
        (Some(why), _) => (format!("{warning} gets no work: {why}"), Tone::Warn),
        (None, Some(why)) => (why.clone(), Tone::Quiet),
        (None, None) => (String::new(), Tone::Plain),
    };
    vec![
        Cell::Name(runner.hostname.clone(), plain),
        Cell::Text(word, style),
        Cell::Text(grouped(runner.held), plain),
        Cell::Text(grouped(runner.capacity.num_cpus), plain),
        Cell::Text(format::bytes(runner.capacity.memory_bytes), plain),
        Cell::Text(clock(runner.started_ms), plain),
        Cell::Text(seen, plain),
        Cell::Text(note, canvas.style(tone)),
    ]
}

fn allocation_cells(state: &State, canvas: &Canvas<'_>, one: &AllocationView) -> Vec<Cell> {
    let plain = canvas.style(Tone::Plain);
    let dash = canvas.theme.dash();
    let clock = |ms: Option<i64>| match ms {
        Some(ms) => format::clock(ms, state.now_ms, &state.settings.zone),
        None => dash.to_owned(),
    };
    let text = |said: String| Cell::Text(said, plain);
    vec![
        text(one.slurm_job_id.clone().unwrap_or_else(|| dash.to_owned())),
        text(one.state.clone().unwrap_or_else(|| one.status.as_str().to_owned())),
        text(why(one)),
        text(clock(one.submitted_ms.or(Some(one.created_ms)))),
        text(clock(one.started_ms)),
        text(clock(one.ended_ms)),
    ]
}

const EVENTS: [TableColumn; 4] = [
    right("When", 15, 2),
    left("What", 18, 0, 6),
    left("Job", 16, 1, 24),
    left("Details", 24, 3, 200),
];

pub fn events(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let events = &state.events;
    let x = canvas.put(area, 0, 0, "/", canvas.style(Tone::Key));
    match &state.dialogs.overlay {
        Some(Overlay::Input(input)) if input.what == InputFor::EventFilter => {
            canvas.editor(area, x, 0, &input.editor);
        }
        _ if events.filter.is_empty() => {
            canvas.put(area, x, 0, "kind, job or text", canvas.style(Tone::Quiet));
        }
        _ => {
            canvas.put(area, x, 0, &events.filter, canvas.style(Tone::Strong));
        }
    }
    if events.rows.is_none() {
        return empty(canvas, area, 1, "loading the events");
    }
    let shown = events.shown();
    if shown.is_empty() {
        return empty(canvas, area, 1, "No events.");
    }
    let places = layout(&EVENTS, area.width);
    canvas.head(area, 1, &EVENTS, &places);
    let rows = usize::from(area.height.saturating_sub(2));
    let cursor = events.list.cursor;
    let top = events.list.top.min(cursor).max((cursor + 1).saturating_sub(rows));
    for (at, event) in shown.iter().enumerate().skip(top).take(rows) {
        let y = 2 + (at - top) as u16;
        canvas.row(area, y, &EVENTS, &places, &event_cells(state, canvas, event));
        pick(canvas, area, y, at, cursor);
    }
}

fn event_cells(state: &State, canvas: &Canvas<'_>, event: &EventView) -> Vec<Cell> {
    let plain = canvas.style(Tone::Plain);
    let when = format::clock(event.timestamp_ms, state.now_ms, &state.settings.zone);
    let job = match (&event.job_name, event.job_id) {
        (Some(name), _) => name.clone(),
        (None, Some(id)) => format!("job {id}"),
        (None, None) => canvas.theme.dash().to_owned(),
    };
    vec![
        Cell::Text(when, canvas.style(Tone::Quiet)),
        Cell::Text(event.kind.as_str().replace('_', " "), plain),
        Cell::Name(job, plain),
        Cell::Text(details(&event.data), canvas.style(Tone::Quiet)),
    ]
}

/// The fields of an event that say something, in one line.
fn details(data: &serde_json::Value) -> String {
    let Some(fields) = data.as_object() else { return String::new() };
    // What went wrong first, and last the numbers that are mostly 1.
    let rank = |key: &str| match key {
        "error" | "reason" => 0,
        "return_code" => 1,
        "attempt_id" => 3,
        "run_id" => 4,
        _ => 2,
    };
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(key, _)| rank(key));
    let said = fields.into_iter().filter_map(|(key, value)| detail(key, value));
    said.collect::<Vec<_>>().join(", ")
}

/// `exit code 4`, `completed 12, failed 3`; nothing for what has no value.
fn detail(key: &str, value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    let word = match key {
        "return_code" => "exit code".to_owned(),
        // Attempts, runs and runners are called by their numbers.
        other => other.strip_suffix("_id").unwrap_or(other).replace('_', " "),
    };
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(word),
        Value::String(text) => Some(format!("{word} {text}")),
        Value::Object(counts) => {
            let is_some = |value: &Value| value.as_i64() != Some(0);
            let parts: Vec<String> = counts
                .iter()
                .filter(|(_, value)| is_some(value))
                .filter_map(|(key, value)| detail(key, value))
                .collect();
            (!parts.is_empty()).then(|| parts.join(", "))
        }
        Value::Number(_) | Value::Array(_) => Some(format!("{word} {value}")),
    }
}

const WORKFLOWS: [TableColumn; 8] = [
    left("Name", 16, 0, 40),
    right("Id", 5, 3),
    left("State", 16, 1, 2),
    left("", 16, 4, 40),
    right("Jobs", 17, 2),
    right("Failed", 8, 5),
    right("Time", 12, 7),
    right("Begun", 18, 6),
];

pub fn workflows(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(rows) = &state.workflows.rows else {
        return empty(canvas, area, 0, "loading the workflows");
    };
    if rows.is_empty() {
        canvas.line(area, 0, "Nothing here yet", Tone::Strong);
        let said = "Start a workflow in another terminal and it appears here by itself:";
        canvas.line(area, 1, said, Tone::Plain);
        canvas.line(area, 2, "  torc run SPEC.yaml", Tone::Key);
        return;
    }
    let places = layout(&WORKFLOWS, area.width);
    canvas.head(area, 0, &WORKFLOWS, &places);
    let fits = usize::from(area.height.saturating_sub(1));
    let cursor = state.workflows.list.cursor;
    let top = state.workflows.list.top.min(cursor).max((cursor + 1).saturating_sub(fits));
    for (at, workflow) in rows.iter().enumerate().skip(top).take(fits) {
        let y = 1 + (at - top) as u16;
        let view = state.workflows.families.get(&workflow.id);
        canvas.row(area, y, &WORKFLOWS, &places, &workflow_cells(state, canvas, workflow, view));
        pick(canvas, area, y, at, cursor);
    }
    let older = state.workflows.total - rows.len() as i64;
    let y = 1 + (rows.len() - top) as u16;
    if older > 0 && y < area.height {
        empty(canvas, area, y, &format!("and {} older", grouped(older)));
    }
}

fn workflow_cells(
    state: &State,
    canvas: &Canvas<'_>,
    workflow: &WorkflowView,
    view: Option<&FamiliesView>,
) -> Vec<Cell> {
    let plain = canvas.style(Tone::Plain);
    let name = Cell::Name(workflow.name.clone(), plain);
    let id = Cell::Text(workflow.id.to_string(), canvas.style(Tone::Quiet));
    let Some(view) = view else {
        return vec![name, id, Cell::Text(canvas.theme.more().to_owned(), plain)];
    };
    let counts = numbers(&view.counts);
    let bad = format::bad(&counts);
    let running = format::of(&counts, JobStatus::Running) + format::of(&counts, JobStatus::Pending);
    let (word, tone) = match (view.is_canceled, view.is_complete, bad, running) {
        (true, ..) => ("canceled".to_owned(), Tone::Warn),
        (_, true, 0, _) => ("done".to_owned(), Tone::Good),
        (_, true, bad, _) => (format!("done, {} failed", grouped(bad)), Tone::Bad),
        (_, false, _, 0) => ("waiting".to_owned(), Tone::Quiet),
        (_, false, ..) => ("running".to_owned(), Tone::Live),
    };
    let end = if view.is_complete { view.last_end_ms.unwrap_or(view.at_ms) } else { state.now_ms };
    let time = view.started_ms.map(|start| format::duration((end - start) as f64 / 1000.0));
    let done = format::of(&counts, JobStatus::Completed);
    let dash = canvas.theme.dash();
    vec![
        name,
        id,
        Cell::Text(word, canvas.style(tone)),
        Cell::Bar(counts),
        Cell::Text(format!("{} / {}", grouped(done), grouped(view.total)), plain),
        match bad {
            0 => Cell::Text(dash.to_owned(), plain),
            bad => Cell::Text(grouped(bad), canvas.style(Tone::Bad)),
        },
        Cell::Text(time.unwrap_or_else(|| dash.to_owned()), plain),
        Cell::Text(
            format::ago(view.started_ms.unwrap_or(workflow.created_ms), state.now_ms),
            plain,
        ),
    ]
}

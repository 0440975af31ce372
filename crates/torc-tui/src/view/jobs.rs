//! The table of jobs: one filter, any number of rows, and a quick look at the last lines.

use super::canvas::{Canvas, Cell, TableColumn, layout};
use super::empty;
use crate::format::{self, count, grouped};
use crate::state::{Column as Shown, InputFor, JobsScreen, Overlay, Peek, State, Target};
use crate::theme::Tone;
use ratatui::layout::Rect;
use torc_model::api::JobView;
use torc_model::status::{Cause, JobStatus};

/// From this width on the status is a word.
const WIDE: u16 = 60;

fn column(shown: Shown, is_wide: bool) -> TableColumn {
    let (width, is_right, rank) = match shown {
        Shown::Name => (18, false, 0),
        Shown::Status if is_wide => (17, false, 1),
        Shown::Status => (3, false, 1),
        Shown::Time => (11, true, 2),
        Shown::Exit => (14, true, 3),
        Shown::Try => (3, true, 4),
        Shown::Memory => (19, true, 5),
        Shown::Node => (12, false, 6),
        Shown::Started => (15, true, 7),
        Shown::Family => (12, false, 8),
        Shown::Priority => (8, true, 3),
    };
    let grows = match shown {
        Shown::Name => 50,
        Shown::Node | Shown::Family => 12,
        _ => 0,
    };
    TableColumn { title: shown.title(), width, is_right, rank, grows }
}

pub fn draw(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let jobs = &state.jobs;
    filter_line(state, canvas, area);
    let rows = state.table_rows().max(1) as u16;
    table(
        state,
        canvas,
        Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area },
        rows,
    );
    if let Some(peek) = &jobs.peek {
        let y = 2 + rows;
        let below = Rect { y: area.y + y, height: area.height.saturating_sub(y), ..area };
        peek_panel(jobs, peek, canvas, below);
    }
}

fn filter_line(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let jobs = &state.jobs;
    let counted = match jobs.total.filter(|_| !jobs.is_old) {
        Some(total) => count(total, "job"),
        None => "looking".into(),
    };
    let marked = match (jobs.marks.all, jobs.marks.jobs.len()) {
        (true, _) => format!("all {} marked, ", grouped(jobs.total.unwrap_or(0))),
        (false, 0) => String::new(),
        (false, n) => format!("{} marked, ", grouped(n as i64)),
    };
    let order = match (jobs.order.sort, jobs.order.reverse) {
        ("id", false) => String::new(),
        (sort, reverse) => {
            let word = if sort == "attempt_id" { "try" } else { sort };
            format!(", by {word} {}", canvas.theme.sorted(reverse))
        }
    };
    let said = format!("{marked}{counted}{order}");
    canvas.right(area, 0, &said, canvas.style(Tone::Strong));
    let width = area.width.saturating_sub(crate::text::width(&said) as u16 + 1);
    let area = Rect { width, ..area };
    let x = canvas.put(area, 0, 0, "/", canvas.style(Tone::Key));
    match &state.dialogs.overlay {
        Some(Overlay::Input(input)) if input.what == InputFor::JobFilter => {
            let x = canvas.editor(area, x, 0, &input.editor);
            if let Some(problem) = &input.problem {
                let style = canvas.style(Tone::Bad);
                let room = usize::from(area.width.saturating_sub(x + 2));
                canvas.put_fit(area, x + 2, 0, problem, room, style);
            }
        }
        _ if jobs.filter.is_empty() => {
            let hint = "train status:failed cause:oom time>1h mem>90% name~_7$";
            let room = usize::from(area.width.saturating_sub(x));
            canvas.put_fit(area, x, 0, hint, room, canvas.style(Tone::Quiet));
        }
        _ => {
            let room = usize::from(area.width.saturating_sub(x));
            canvas.put_fit(area, x, 0, &jobs.filter, room, canvas.style(Tone::Strong));
        }
    }
}

fn table(state: &State, canvas: &mut Canvas<'_>, area: Rect, rows: u16) {
    let jobs = &state.jobs;
    let is_wide = area.width >= WIDE;
    let kinds: Vec<Shown> =
        Shown::ALL.into_iter().filter(|column| !jobs.hidden.contains(column)).collect();
    let mut columns: Vec<TableColumn> = kinds.iter().map(|kind| column(*kind, is_wide)).collect();
    if !is_wide && let Some(at) = kinds.iter().position(|kind| *kind == Shown::Status) {
        columns[at].title = "St";
    }
    // Two columns for the mark.
    let inner = Rect { x: area.x + 2, width: area.width.saturating_sub(2), ..area };
    let places = layout(&columns, inner.width);
    canvas.head(inner, 0, &columns, &places);
    for (at, x, width) in &places {
        let head = Rect { x: inner.x + x, width: *width, height: 1, ..inner };
        canvas.hit(head, Target::Head(kinds[*at]));
    }
    if let Some(problem) = &jobs.problem {
        canvas.line(area, 1, problem, Tone::Bad);
        return;
    }
    match jobs.total {
        None => return empty(canvas, area, 1, "looking for jobs"),
        Some(0) if jobs.filter.is_empty() => return empty(canvas, area, 1, "No jobs."),
        Some(0) => {
            return empty(canvas, area, 1, "No job matches this filter. `/` changes it.");
        }
        Some(_) => {}
    }
    for place in 0..rows {
        let index = jobs.top + i64::from(place);
        let y = 1 + place;
        if index >= jobs.total.unwrap_or(0) || y >= area.height {
            break;
        }
        match jobs.row(index) {
            None => empty(canvas, inner, y, canvas.theme.more()),
            Some(job) => {
                let cells: Vec<Cell> =
                    kinds.iter().map(|kind| cell(state, canvas, *kind, job, is_wide)).collect();
                canvas.row(inner, y, &columns, &places, &cells);
                if jobs.marks.contains(job.id) {
                    canvas.put(area, 0, y, "*", canvas.style(Tone::Warn));
                }
            }
        }
        if index == jobs.cursor {
            canvas.restyle(area, y, canvas.style(Tone::Picked));
        }
        canvas.hit(Rect { y: area.y + y, height: 1, ..area }, Target::Row(index));
    }
}

fn cell(state: &State, canvas: &Canvas<'_>, kind: Shown, job: &JobView, is_wide: bool) -> Cell {
    let plain = canvas.style(Tone::Plain);
    let dash = || canvas.theme.dash().to_owned();
    let last = job.last.as_ref();
    let said = match kind {
        Shown::Name => return Cell::Name(job.name.clone(), plain),
        Shown::Status => {
            let style = canvas.theme.of(job.status);
            let sign = canvas.theme.sign(job.status);
            let said = match (is_wide, job.held) {
                (false, _) => format!("{}{sign}", format::letter(job.status)),
                (true, true) => format!("{sign} {}, held", format::word(job.status)),
                (true, false) => format!("{sign} {}", format::word(job.status)),
            };
            return Cell::Text(said, style);
        }
        Shown::Family => job.family.clone(),
        Shown::Try => grouped(job.attempt_id),
        Shown::Started => last
            .and_then(|last| last.started_ms)
            .map_or_else(dash, |ms| format::clock(ms, state.now_ms, &state.settings.zone)),
        Shown::Time => last
            .and_then(|last| match (last.exec_seconds, last.started_ms, last.ended_ms) {
                (Some(seconds), ..) => Some(seconds),
                (None, Some(start), None) if job.status == JobStatus::Running => {
                    Some((state.now_ms - start) as f64 / 1000.0)
                }
                _ => None,
            })
            .map_or_else(dash, format::duration),
        Shown::Memory => last
            .and_then(|last| {
                let used = format::bytes(last.peak_memory_bytes.filter(|n| *n > 0)?);
                Some(match last.memory_bytes {
                    Some(asked) => format!("{used} / {}", format::bytes(asked)),
                    None => used,
                })
            })
            .unwrap_or_else(dash),
        Shown::Node => last.and_then(|last| last.hostname.clone()).unwrap_or_else(dash),
        Shown::Exit => match (last.and_then(|last| last.cause), job.return_code) {
            (Some(cause), _) if cause != Cause::Exit => cause.as_str().replace('_', " "),
            (_, Some(code)) => code.to_string(),
            (_, None) => dash(),
        },
        Shown::Priority => job.priority.to_string(),
    };
    Cell::Text(said, plain)
}

fn peek_panel(jobs: &JobsScreen, peek: &Peek, canvas: &mut Canvas<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    let name = jobs.row(jobs.cursor).map_or("", |job| job.name.as_str());
    let name = crate::text::line(name).into_owned();
    canvas.title(area, 0, &format!("Last lines of {name} ({})", peek.stream));
    match &peek.lines {
        None => empty(canvas, area, 1, "loading"),
        Some(lines) if lines.is_empty() => empty(canvas, area, 1, "It wrote nothing here."),
        Some(lines) => {
            let rows = usize::from(area.height - 1);
            let first = lines.len().saturating_sub(rows);
            for (at, said) in lines[first..].iter().enumerate() {
                canvas.line(area, 1 + at as u16, said, Tone::Plain);
            }
        }
    }
}

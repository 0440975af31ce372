//! What lies over a screen: help, palette, columns, and an action before it is done.

use super::canvas::Canvas;
use crate::format::{count, grouped};
use crate::keymap::{self, Key};
use crate::reduce::acting;
use crate::state::{ActDialog, Column, Palette, State};
use crate::text;
use crate::theme::Tone;
use ratatui::layout::Rect;

/// Lines of the help.
pub fn help_lines(state: &State) -> usize {
    all_keys(state).len()
}

/// Keys of the screen, a gap, and keys of every screen.
fn all_keys(state: &State) -> Vec<Option<Key>> {
    let own = keymap::of_screen(state).iter().copied().map(Some);
    own.chain([None]).chain(keymap::EVERYWHERE.iter().copied().map(Some)).collect()
}

pub fn help(state: &State, top: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let keys = all_keys(state);
    let inner = canvas.window(area, 90, keys.len() as u16 + 2, "Keys");
    let rows = usize::from(inner.height);
    let top = top.min(keys.len().saturating_sub(rows));
    let indent = if inner.width >= 40 { 14 } else { 9 };
    for (y, key) in keys.iter().skip(top).take(rows).enumerate() {
        let Some((key, does)) = key else { continue };
        let x = canvas.put(inner, 0, y as u16, key, canvas.style(Tone::Key));
        let x = (x + 1).max(indent);
        let room = usize::from(inner.width.saturating_sub(x));
        canvas.put_fit(inner, x, y as u16, does, room, canvas.style(Tone::Plain));
    }
}

pub fn palette(palette: &Palette, canvas: &mut Canvas<'_>, area: Rect) {
    let items: Vec<_> = palette.items.iter().chain(&palette.found).collect();
    let height = (items.len() as u16 + 3).max(6);
    let inner = canvas.window(area, 70, height, "Go to");
    let x = canvas.put(inner, 0, 0, ":", canvas.style(Tone::Key));
    canvas.editor(inner, x, 0, &palette.editor);
    if items.is_empty() {
        canvas.line(inner, 1, "nothing of that name", Tone::Quiet);
        return;
    }
    let rows = usize::from(inner.height.saturating_sub(1));
    let top = (palette.cursor + 1).saturating_sub(rows);
    for (y, item) in items.iter().enumerate().skip(top).take(rows) {
        let row = (y - top) as u16 + 1;
        canvas.line(inner, row, &item.text, Tone::Plain);
        if y == palette.cursor {
            canvas.restyle(inner, row, canvas.style(Tone::Picked));
        }
    }
}

pub fn columns(state: &State, cursor: usize, canvas: &mut Canvas<'_>, area: Rect) {
    let inner = canvas.window(area, 36, Column::ALL.len() as u16 + 2, "Columns: Space switches");
    for (y, column) in Column::ALL.iter().enumerate() {
        let sign = if state.jobs.hidden.contains(column) { "[ ]" } else { "[x]" };
        let y = y as u16;
        canvas.line(inner, y, &format!("{sign} {}", column.title()), Tone::Plain);
        if usize::from(y) == cursor {
            canvas.restyle(inner, y, canvas.style(Tone::Picked));
        }
    }
}

pub fn act(dialog: &ActDialog, canvas: &mut Canvas<'_>, area: Rect) {
    let width = area.width.min(84);
    let room = usize::from(width.saturating_sub(4));
    let (head, tail) = act_lines(dialog, canvas, room);
    let value_rows = u16::from(dialog.value.is_some());
    let height = (head.len() + tail.len()) as u16 + 2 + value_rows;
    let title = match &dialog.plan {
        Some(plan) => format!("{}: {}", acting::title(dialog.action), count(plan.done, "job")),
        None => acting::title(dialog.action).to_owned(),
    };
    let inner = canvas.window(area, width, height, &title);
    let mut y = 0;
    if let (Some(value), Some((name, _))) = (&dialog.value, acting::value(dialog.action)) {
        let x = canvas.put(inner, 0, 0, &format!("{name}: "), canvas.style(Tone::Quiet));
        canvas.editor(inner, x, 0, value);
        y += 1;
    }
    // The command and the keys stay when there is little room.
    let rows = usize::from(inner.height.saturating_sub(y));
    let shown = head.iter().take(rows.saturating_sub(tail.len())).chain(&tail);
    for (at, (said, tone)) in shown.enumerate() {
        canvas.line(inner, y + at as u16, said, *tone);
    }
}

type Lines = Vec<(String, Tone)>;

/// What an action would do; and the command that does the same, with the keys.
fn act_lines(dialog: &ActDialog, canvas: &Canvas<'_>, room: usize) -> (Lines, Lines) {
    let wrapped = |said: &str, tone: Tone| -> Lines {
        let safe = text::line(said);
        text::wrap(&safe, room).into_iter().map(|row| (row, tone)).collect()
    };
    let mut lines = Vec::new();
    let mut add = |said: &str, tone: Tone| lines.extend(wrapped(said, tone));
    if let Some(problem) = &dialog.problem {
        add(problem, Tone::Bad);
    }
    let Some(plan) = &dialog.plan else {
        if dialog.problem.is_none() {
            add("asking the server what it would do", Tone::Quiet);
        }
        return (lines, wrapped("Esc leaves it", Tone::Key));
    };
    add(&format!("{} of {}", grouped(plan.done), count(plan.matched, "job")), Tone::Strong);
    for note in &plan.notes {
        add(note, Tone::Plain);
    }
    if plan.others > 0 && plan.notes.is_empty() {
        add(&format!("{} change with them", count(plan.others, "other job")), Tone::Plain);
    }
    for (why, number) in &plan.skipped {
        add(&format!("{} left as they are: {why}", count(*number, "job")), Tone::Quiet);
    }
    if !plan.names.is_empty() {
        let mut said = plan.names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
        let more = plan.done - plan.names.len().min(8) as i64;
        if more > 0 {
            said += &format!(" and {} more", grouped(more));
        }
        add(&said, Tone::Quiet);
    }
    add("The same in a terminal:", Tone::Quiet);
    let mut last = wrapped(&plan.command, Tone::Strong);
    let copy = if dialog.value.is_some() { "Ctrl-Y" } else { "y" };
    let keys = match (dialog.is_going, plan.done) {
        (true, _) => "the server does it".to_owned(),
        (false, 0) => format!("nothing to do{}Esc leaves it", canvas.theme.dot()),
        (false, _) => {
            let dot = canvas.theme.dot();
            format!("Enter does it{dot}{copy} copies the command{dot}Esc leaves it")
        }
    };
    last.extend(wrapped(&keys, Tone::Key));
    (lines, last)
}

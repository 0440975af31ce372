//! The view: state in, cells out. It changes nothing, and no size makes it panic.

mod canvas;
mod dialogs;
mod failures;
mod job;
mod jobs;
mod lists;
mod overview;
mod timeline;

use crate::format::{self, count, grouped};
use crate::keymap;
use crate::state::{Hit, Link, Overlay, State, Target, View};
use crate::theme::Tone;
use canvas::Canvas;
pub(crate) use dialogs::help_lines;
pub(crate) use job::{why_lines, why_rows};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use torc_model::api::FamiliesView;
use torc_model::status::JobStatus;

/// Less than this is one line with counts.
const LEAST: (u16, u16) = (40, 8);
/// From this height on the screens have a line of their own.
const WITH_TABS: u16 = 12;

/// What a frame tells the loop and the reducer.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// What can be clicked.
    pub hits: Vec<Hit>,
    /// Where the terminal's cursor stands; hidden without.
    pub cursor: Option<(u16, u16)>,
}

/// Rows between the head and the keys.
pub(crate) const fn body_height(size: (u16, u16)) -> u16 {
    let (_, rows) = size;
    if is_one_line(size) {
        1
    } else if rows >= WITH_TABS {
        rows - 3
    } else {
        rows - 2
    }
}

const fn is_one_line((columns, rows): (u16, u16)) -> bool {
    columns < LEAST.0 || rows < LEAST.1
}

/// Draws the whole screen.
pub fn draw(state: &State, buffer: &mut Buffer) -> Frame {
    let area = buffer.area;
    let mut canvas = Canvas::new(buffer, state.settings.theme);
    let size = (area.width, area.height);
    if is_one_line(size) {
        one_line(state, &mut canvas, area);
        return Frame { hits: canvas.hits, cursor: None };
    }
    let row = |y: u16| Rect { y: area.y + y, height: 1, ..area };
    head(state, &mut canvas, row(0));
    let mut top = 1;
    if area.height >= WITH_TABS {
        tabs(state, &mut canvas, row(1));
        top = 2;
    }
    let body = Rect { y: area.y + top, height: body_height(size), ..area };
    canvas.hit(body, Target::Body);
    match (&state.job, state.route.view) {
        (Some(place), _) => job::draw(state, place, &mut canvas, body),
        (None, View::Overview) => overview::draw(state, &mut canvas, body),
        (None, View::Jobs) => jobs::draw(state, &mut canvas, body),
        (None, View::Failures) => failures::draw(state, &mut canvas, body),
        (None, View::Timeline) => timeline::draw(state, &mut canvas, body),
        (None, View::Nodes) => lists::nodes(state, &mut canvas, body),
        (None, View::Events) => lists::events(state, &mut canvas, body),
        (None, View::Workflows) => lists::workflows(state, &mut canvas, body),
    }
    match &state.dialogs.overlay {
        Some(Overlay::Help { top }) => dialogs::help(state, *top, &mut canvas, body),
        Some(Overlay::Palette(palette)) => dialogs::palette(palette, &mut canvas, body),
        Some(Overlay::Act(dialog)) => dialogs::act(dialog, &mut canvas, body),
        Some(Overlay::Columns { cursor }) => dialogs::columns(state, *cursor, &mut canvas, body),
        // It is typed where it stands.
        Some(Overlay::Input(_)) | None => {}
    }
    notice(state, &mut canvas, body);
    keys(state, &mut canvas, row(area.height - 1));
    Frame { hits: canvas.hits, cursor: canvas.cursor }
}

/// Counts and the state in one line, for a screen of any size.
fn one_line(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let counts = &state.overview.counts;
    if let Link::Away { since_ms, .. } = &state.connection.link {
        let age = format::duration((state.now_ms - since_ms) as f64 / 1000.0);
        let x = canvas.put(area, 0, 0, &format!("away {age}"), canvas.style(Tone::Alarm));
        canvas.put(area, x, 0, " ", canvas.style(Tone::Plain));
        counts_in_letters(canvas, area, x + 1, counts);
        return;
    }
    let Some(view) = &state.overview.families else {
        let said = if state.workflow.is_some() { "loading" } else { "make the window larger" };
        canvas.line(area, 0, said, Tone::Quiet);
        return;
    };
    let done = format::of(counts, JobStatus::Completed) + format::of(counts, JobStatus::Disabled);
    let share = done * 100 / view.total.max(1);
    let x = canvas.put(area, 0, 0, &format!("{share}% "), canvas.style(Tone::Strong));
    let x = counts_in_letters(canvas, area, x, counts);
    let quiet = canvas.style(Tone::Quiet);
    canvas.put_fit(area, x, 0, &view.name, usize::from(area.width.saturating_sub(x)), quiet);
}

fn counts_in_letters(
    canvas: &mut Canvas<'_>,
    area: Rect,
    x: u16,
    counts: &format::StatusCounts,
) -> u16 {
    let worst_first = format::BAR_ORDER.iter().rev();
    worst_first.filter(|status| counts[**status as usize] > 0).fold(x, |x, status| {
        let style = canvas.theme.of(*status);
        let said = format!("{}{} ", format::letter(*status), grouped(counts[*status as usize]));
        canvas.put(area, x, 0, &said, style)
    })
}

/// What is looked at and how far it is; when the server is away, since when.
fn head(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let mut area = area;
    if let Link::Away { since_ms, .. } = &state.connection.link {
        let time = format::clock(*since_ms, state.now_ms, &state.settings.zone);
        let age = format::duration((state.now_ms - since_ms) as f64 / 1000.0);
        let said = match area.width >= 70 {
            true => format!(" as of {time} ({age} ago), reconnecting "),
            false => format!(" {age} old, reconnecting "),
        };
        canvas.right(area, 0, &said, canvas.style(Tone::Alarm));
        area.width = area.width.saturating_sub(crate::text::width(&said) as u16 + 1);
    }
    let (strong, quiet) = (canvas.style(Tone::Strong), canvas.style(Tone::Quiet));
    let (Some(id), view) = (state.workflow, &state.overview.families) else {
        let total = state.workflows.total;
        let said = match state.workflows.rows.is_some() {
            true => count(total, "workflow"),
            false => "loading the workflows".into(),
        };
        canvas.pieces(area, 0, 0, &[("torc", strong), (canvas.theme.dot(), quiet), (&said, quiet)]);
        return;
    };
    let name = view.as_ref().map_or_else(|| format!("workflow {id}"), |view| view.name.clone());
    // A long name leaves room for the state.
    let room = usize::from(area.width) / 2;
    let name =
        crate::text::fit_middle(&crate::text::line(&name), room, canvas.theme.more()).into_owned();
    let said = match view {
        Some(view) => state_text(state, view),
        None => "loading".into(),
    };
    let number = if view.is_some() { format!(" #{id}") } else { String::new() };
    canvas.pieces(
        area,
        0,
        0,
        &[(&name, strong), (&number, quiet), (canvas.theme.dot(), quiet), (&said, quiet)],
    );
}

/// How far a workflow is and when it ends, in the page's words.
pub(crate) fn state_text(state: &State, view: &FamiliesView) -> String {
    let counts = &state.overview.counts;
    let failed = format::bad(counts);
    // The frames carry the server's clock; between two frames the time of the terminal goes on.
    let now = view.at_ms.max(if view.is_complete { 0 } else { state.now_ms });
    let end = if view.is_complete { view.last_end_ms.unwrap_or(now) } else { now };
    let elapsed = view.started_ms.map_or(0.0, |start| (end - start) as f64 / 1000.0);
    let (run, elapsed) = (view.run_id, format::duration(elapsed));
    if view.is_canceled {
        return format!("run {run}, canceled after {elapsed}");
    }
    if view.is_complete {
        let how = match failed {
            0 => "every job succeeded".into(),
            failed => format!("{} failed", grouped(failed)),
        };
        return format!("run {run}, done in {elapsed}, {how}");
    }
    if view.started_ms.is_none() {
        return "not started".into();
    }
    let running = format::of(counts, JobStatus::Running) + format::of(counts, JobStatus::Pending);
    if running == 0 && view.cpus.runners == 0 {
        let id = view.workflow_id;
        return format!("run {run}, {elapsed}, waits for a runner: `torc run {id}` starts one");
    }
    let text = format!("run {run}, {elapsed} so far");
    match seconds_left(state, view) {
        Some(left) if left > 1.0 => {
            let at = format::clock(now + (left * 1000.0) as i64, now, &state.settings.zone);
            format!("{text}, ends about {at} (limited by CPUs)")
        }
        _ => text,
    }
}

/// What is left by the medians of the families, on the CPUs that are there.
fn seconds_left(state: &State, view: &FamiliesView) -> Option<f64> {
    if view.cpus.all <= 0 {
        return None;
    }
    let mut work = 0.0;
    for (number, counts) in state.overview.by_family.iter().enumerate() {
        let open: i64 = JobStatus::ALL
            .iter()
            .filter(|status| !status.is_final())
            .map(|status| counts[*status as usize])
            .sum();
        if open == 0 {
            continue;
        }
        let facts = state.overview.resources.iter().find(|row| row.number == number as i64)?;
        work += open as f64 * facts.seconds.median? * facts.cpus_asked as f64;
    }
    Some(work / view.cpus.all as f64)
}

fn tabs(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    // Whole names, else four letters, else only the digit; the screen that is shown keeps its name.
    let title = |view: View, letters: usize| match view == state.route.view {
        true => view.title(),
        false => crate::text::head(view.title(), letters),
    };
    let taken = |letters: usize| -> usize {
        let one = |view: &View| match title(*view, letters) {
            "" => 1,
            title => 2 + title.len(),
        };
        View::ALL.iter().map(|view| one(view) + 2).sum::<usize>() - 2
    };
    let width = usize::from(area.width);
    let letters = [40, 4].into_iter().find(|letters| taken(*letters) <= width).unwrap_or(0);
    let mut x = 0;
    for (at, view) in View::ALL.iter().enumerate() {
        let is_here = state.route.view == *view;
        let style = canvas.style(if is_here { Tone::Picked } else { Tone::Plain });
        let begin = x;
        let said = format!("{} {}", at + 1, title(*view, letters));
        x = canvas.put(area, x, 0, said.trim_end(), style);
        let width = x.saturating_sub(begin);
        canvas.hit(Rect { x: area.x + begin, width, ..area }, Target::Tab(*view));
        x += 2;
    }
}

/// A sentence over the last row of the body.
fn notice(state: &State, canvas: &mut Canvas<'_>, body: Rect) {
    let Some(notice) = &state.dialogs.notice else { return };
    let y = body.height.saturating_sub(1);
    let tone = if notice.is_bad { Tone::Alarm } else { Tone::Picked };
    let blank = " ".repeat(usize::from(body.width));
    canvas.put(body, 0, y, &blank, canvas.style(tone));
    canvas.line(body, y, &format!(" {}", notice.text), tone);
}

/// The six most useful keys.
fn keys(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let (key_style, quiet) = (canvas.style(Tone::Key), canvas.style(Tone::Plain));
    let keys = &keymap::keys(state)[..6];
    let width = usize::from(area.width);
    // A narrow screen keeps all six keys: the first ones with their words, the last ones alone.
    let taken = |words: usize| -> usize {
        let one = |(at, (key, does)): (usize, &keymap::Key)| match at < words {
            true => key.len() + 1 + does.len() + 2,
            false => key.len() + 2,
        };
        keys.iter().enumerate().map(one).sum::<usize>() - 2
    };
    let words = (0..=keys.len()).rev().find(|words| taken(*words) <= width).unwrap_or(0);
    let mut x = 0;
    for (at, (key, does)) in keys.iter().enumerate() {
        x = canvas.put(area, x, 0, key, key_style);
        if at < words {
            x = canvas.put(area, x, 0, &format!(" {does}"), quiet);
        }
        x += 2;
    }
}

/// Something that is not here yet, or will never be.
fn empty(canvas: &mut Canvas<'_>, area: Rect, y: u16, said: &str) {
    canvas.line(area, y, said, Tone::Quiet);
}

//! Attempts over time: rows are slots of runners, cells are time, letters are families.

use super::canvas::Canvas;
use super::empty;
use crate::format::{self, count};
use crate::state::{State, Target};
use crate::theme::Tone;
use crate::timeline::Bars;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use std::ops::Range;
use torc_model::status::JobStatus;

/// Columns of an axis label.
const LABEL: usize = 18;

pub fn draw(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(bars) = &state.timeline.bars else {
        return empty(canvas, area, 0, "loading the timeline");
    };
    if bars.bars.is_empty() {
        return empty(canvas, area, 0, "No attempt has started yet.");
    }
    let label = match area.width {
        100.. => 16,
        60.. => 10,
        _ => 6,
    };
    let plot = Rect { x: area.x + label, width: area.width.saturating_sub(label), ..area };
    let mut y = 0;
    if area.height >= 8 {
        density(state, bars, canvas, area, plot);
        y += 1;
    }
    axis(state, bars, canvas, plot, y);
    y += 1;
    let bottom = if area.height >= 8 { went_rows(state, area) } else { 1 };
    let rows = area.height.saturating_sub(y + bottom);
    slots(state, bars, canvas, area, plot, y..y + rows);
    foot(state, bars, canvas, area, area.height.saturating_sub(bottom), bottom);
}

/// How many ran at once.
fn density(state: &State, bars: &Bars, canvas: &mut Canvas<'_>, area: Rect, plot: Rect) {
    let (from, until) = state.span();
    let now = state.timeline_now();
    let values = bars.density(from, until, usize::from(plot.width), now);
    let most = values.iter().copied().max().unwrap_or(0);
    let said = format!("{} at once", format::grouped(most));
    let room = usize::from(area.width - plot.width).saturating_sub(1);
    canvas.put_fit(area, 0, 0, &said, room, canvas.style(Tone::Quiet));
    let style = canvas.style(Tone::Live);
    canvas.spark(plot, 0, &values, style);
}

fn axis(state: &State, bars: &Bars, canvas: &mut Canvas<'_>, plot: Rect, y: u16) {
    let (from, until) = state.span();
    let span = (until - from).max(1);
    let ticks = (usize::from(plot.width) / LABEL).max(1);
    let quiet = canvas.style(Tone::Quiet);
    for tick in 0..ticks {
        let x = tick * usize::from(plot.width) / ticks;
        let at = from + span * x as i64 / i64::from(plot.width.max(1));
        let said = match span {
            ..20_000 => format!("+{:.2} s", at as f64 / 1000.0),
            _ => format::clock(bars.base_ms + at, state.now_ms, &state.settings.zone),
        };
        let sign = if canvas.theme.ascii { "|" } else { "╷" };
        canvas.put_fit(plot, x as u16, y, &format!("{sign}{said}"), LABEL - 1, quiet);
    }
}

fn slots(
    state: &State,
    bars: &Bars,
    canvas: &mut Canvas<'_>,
    area: Rect,
    plot: Rect,
    lines: Range<u16>,
) {
    let (y, rows) = (lines.start, lines.end - lines.start);
    let (from, until) = state.span();
    let span = (until - from).max(1);
    let width = i64::from(plot.width);
    let now = state.timeline_now();
    let top = state.timeline.top.min(bars.hosts.len().saturating_sub(1));
    let room = usize::from(area.width - plot.width).saturating_sub(1);
    for place in 0..rows {
        let row = top + usize::from(place);
        let Some(host) = bars.hosts.get(row) else { break };
        // The first row on the screen names its host although an earlier row has the name.
        let owner = bars.hosts[..=row].iter().rev().find(|host| !host.is_empty());
        let host = if place == 0 { owner.map_or("", String::as_str) } else { host };
        let safe = crate::text::line(host);
        let name = crate::text::fit_middle(&safe, room, canvas.theme.more()).into_owned();
        canvas.put(area, 0, y + place, &name, canvas.style(Tone::Quiet));
        canvas.hit(Rect { y: area.y + y + place, height: 1, ..plot }, Target::Bars(row));
    }
    let place = |ms: i64| ((ms - from).saturating_mul(width) / span).clamp(-1, width);
    // Bars that are narrower than a cell are drawn once per cell.
    let mut drawn: Vec<i64> = vec![-1; usize::from(rows)];
    for (number, bar) in bars.bars.iter().enumerate() {
        let Some(line) = (bar.row as usize).checked_sub(top) else { continue };
        let Some(last) = drawn.get_mut(line) else { continue };
        let stop = bar.end(now);
        if stop < from || bar.start > until {
            continue;
        }
        let is_current = state.timeline.current == Some(number);
        let (begin, end) = (place(bar.start).max(0), place(stop));
        let end = end.max(begin + 1).min(width);
        if end <= *last && !bar.is_bad() && !is_current {
            continue;
        }
        let first = if bar.is_bad() || is_current { begin } else { begin.max(*last) };
        *last = end.max(*last);
        let (sign, style) = look(canvas, bar.family, bar.is_bad());
        let style = if is_current { style.add_modifier(Modifier::REVERSED) } else { style };
        let said = sign.repeat((end - first).max(0) as usize);
        canvas.put(plot, first as u16, y + line as u16, &said, style);
    }
}

/// A family's letter and colour; failed bars are crosses.
fn look(canvas: &Canvas<'_>, family: u16, is_bad: bool) -> (String, Style) {
    if is_bad {
        return (canvas.theme.sign(JobStatus::Failed).to_owned(), canvas.style(Tone::Bad));
    }
    (letter(family), canvas.theme.family(usize::from(family)))
}

fn letter(family: u16) -> String {
    char::from(b'a' + (family % 26) as u8).to_string()
}

/// Rows of the legend and of where the time went.
fn went_rows(state: &State, area: Rect) -> u16 {
    let current = u16::from(state.timeline.current.is_some());
    let rows = if area.height >= 14 { went(state, area.width).len() } else { 0 };
    1 + current + rows as u16
}

/// Where the time went, in lines of a width.
fn went(state: &State, width: u16) -> Vec<String> {
    let Some(path) = &state.timeline.path else { return Vec::new() };
    let cpus = state.overview.families.as_ref().map_or(0, |view| view.cpus.all);
    let bound = match cpus {
        0 => String::new(),
        n => format!(
            ", nor than {} with {}",
            format::duration(path.seconds.max(path.work_cpu_seconds / n as f64)),
            count(n, "CPU")
        ),
    };
    let lost = match path.lost_seconds > 0.5 {
        true => format!(" {} went into attempts that failed.", format::duration(path.lost_seconds)),
        false => String::new(),
    };
    let said = format!(
        "Took {}. It could not be faster than {} with any number of CPUs ({} in a row){bound}.{lost} A job waited {} on average.",
        format::duration(path.elapsed_seconds),
        format::duration(path.seconds),
        count(path.length, "job"),
        format::duration(path.waited_seconds)
    );
    crate::text::wrap(&said, usize::from(width))
}

fn foot(state: &State, bars: &Bars, canvas: &mut Canvas<'_>, area: Rect, y: u16, rows: u16) {
    let now = state.timeline_now();
    let mut at = y;
    let families = state.overview.families.as_ref();
    if let Some(bar) = state.timeline.current.and_then(|number| bars.bars.get(number))
        && rows > 1
    {
        let family = families
            .and_then(|view| view.families.get(usize::from(bar.family)))
            .map_or_else(|| format!("job {}", bar.job), |family| family.name.clone());
        let from = format::clock(bars.base_ms + bar.start, state.now_ms, &state.settings.zone);
        let time = format::duration((bar.end(now) - bar.start) as f64 / 1000.0);
        let said = format!("{family}, job {}: {} {time} from {from}", bar.job, bar.state);
        canvas.line(area, at, &said, Tone::Strong);
        at += 1;
    }
    let mut x = 0;
    let quiet = canvas.style(Tone::Quiet);
    for (number, family) in families.iter().flat_map(|view| &view.families).enumerate().take(26) {
        let style = canvas.theme.family(number);
        x = canvas.put(area, x, at, &letter(number as u16), style);
        let name = format!(" {}  ", crate::text::line(&family.name));
        x = canvas.put_fit(area, x, at, &name, usize::from(area.width.saturating_sub(x)), quiet);
    }
    let sign = canvas.theme.sign(JobStatus::Failed).to_owned();
    x = canvas.put(area, x, at, &sign, canvas.style(Tone::Bad));
    canvas.put(area, x, at, " failed", quiet);
    at += 1;
    for row in went(state, area.width) {
        canvas.line(area, at, &row, Tone::Quiet);
        at += 1;
    }
}

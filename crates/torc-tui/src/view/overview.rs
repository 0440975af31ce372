//! One workflow at a glance: how far, what needs you, which families.

use super::canvas::{Canvas, Cell, TableColumn, layout};
use super::empty;
use crate::format::{self, StatusCounts, count, grouped, kind_title};
use crate::state::{State, Target};
use crate::theme::Tone;
use ratatui::layout::Rect;
use torc_model::api::{FailureGroup, FamiliesView};
use torc_model::status::Adjustable;
use torc_model::status::{JobStatus, RunnerState};

const fn column(
    title: &'static str,
    width: u16,
    is_right: bool,
    rank: u8,
    grows: u16,
) -> TableColumn {
    TableColumn { title, width, is_right, rank, grows }
}

const COLUMNS: [TableColumn; 6] = [
    column("Family", 16, false, 0, 36),
    column("Jobs", 15, true, 1, 4),
    column("", 20, false, 2, 40),
    column("Median time", 12, true, 3, 4),
    column("Memory used / asked", 19, true, 5, 4),
    column("Left", 14, true, 4, 0),
];

pub fn draw(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(view) = &state.overview.families else {
        empty(canvas, area, 0, "loading the workflow");
        return;
    };
    let mut y = 0;
    canvas.bar(area, 0, y, area.width, &state.overview.counts);
    y += 1;
    y += legend(state, view, canvas, area, y);
    let is_wide = area.width >= 100 && area.height >= 20;
    let left = match is_wide {
        true => Rect { width: area.width * 3 / 5, ..area },
        false => area,
    };
    let begin = y;
    y += needs(state, canvas, left, y, area.height);
    if is_wide {
        let x = left.width + 2;
        let right = Rect { x: area.x + x, width: area.width.saturating_sub(x), ..area };
        y = y.max(begin + sparks(state, view, canvas, right, begin));
    }
    let runners = if area.height >= 24 { runner_rows(state) } else { 0 };
    let bottom = area.height.saturating_sub(runners);
    families(state, view, canvas, Rect { height: bottom, ..area }, y);
    if runners > 0 {
        runner_lines(state, canvas, area, bottom, runners);
    }
}

/// The numbers of the bar, in rows as they fit. How many rows.
fn legend(state: &State, view: &FamiliesView, canvas: &mut Canvas<'_>, area: Rect, y: u16) -> u16 {
    let counts = &state.overview.counts;
    let total = count(view.total, "job");
    let mut parts: Vec<(JobStatus, String)> = format::BAR_ORDER
        .into_iter()
        .filter(|status| counts[*status as usize] > 0)
        .map(|status| {
            let (sign, number) = (canvas.theme.sign(status), grouped(counts[status as usize]));
            (status, format!("{sign} {number} {}", format::word(status)))
        })
        .collect();
    let width: usize = parts.iter().map(|(_, said)| crate::text::width(said) + 3).sum();
    // With little room what is bad comes first, because what comes last does not fit.
    if width + total.len() > usize::from(area.width) * 2 - 10 {
        parts.reverse();
    }
    let mut x = canvas.put(area, 0, y, &total, canvas.style(Tone::Strong));
    let mut rows = 1;
    for (status, said) in parts {
        if usize::from(x) + 3 + crate::text::width(&said) > usize::from(area.width) {
            if rows == 2 {
                break;
            }
            (x, rows) = (0, rows + 1);
        }
        let begin = if x == 0 { 0 } else { x + 3 };
        x = canvas.put(area, begin, y + rows - 1, &said, canvas.theme.of(status));
    }
    rows
}

/// Cause groups, five at most. How many rows.
fn needs(state: &State, canvas: &mut Canvas<'_>, area: Rect, y: u16, height: u16) -> u16 {
    let title = "What needs you";
    if height >= 12 {
        canvas.title(area, y, title);
    }
    let begin = y + u16::from(height >= 12);
    let Some(groups) = &state.overview.failures else {
        empty(canvas, area, begin, "loading");
        return begin + 1 - y;
    };
    if groups.is_empty() {
        let said = format!("{} Nothing needs you.", canvas.theme.sign(JobStatus::Completed));
        canvas.line(area, begin, &said, Tone::Good);
        return begin + 1 - y;
    }
    // With little room a group is one line.
    let per_group = if height >= 20 { 2 } else { 1 };
    let mut at = begin;
    for (number, group) in groups.iter().take(state.shown_groups()).enumerate() {
        let bad = canvas.style(Tone::Bad);
        let (plain, quiet, key) =
            (canvas.style(Tone::Plain), canvas.style(Tone::Quiet), canvas.style(Tone::Key));
        let (what, family) = (group_title(canvas, group), format!(" in {}", group.family));
        let blocked = match group.counts.blocked {
            0 => String::new(),
            n => format!("{}{} blocked", canvas.theme.dot(), count(n, "job")),
        };
        let action = format!("  {}", remedy(group));
        let pieces = [
            (what.as_str(), bad),
            (&family, plain),
            (&blocked, quiet),
            ("  R", key),
            (&action[1..], quiet),
        ];
        canvas.pieces(area, 0, at, &pieces);
        if per_group == 2 {
            let inner = Rect { x: area.x + 2, width: area.width.saturating_sub(2), ..area };
            canvas.line(inner, at + 1, &group.diagnosis.summary, Tone::Quiet);
        }
        if state.overview.list.cursor == number {
            canvas.restyle(area, at, canvas.style(Tone::Picked));
        }
        let row = Rect { y: area.y + at, height: per_group, ..area };
        canvas.hit(row, Target::Row(number as i64));
        at += per_group;
    }
    if groups.len() > state.shown_groups() {
        let more = groups.len() - state.shown_groups();
        empty(canvas, area, at, &format!("and {} more (3)", grouped(more as i64)));
        at += 1;
    }
    at - y
}

/// `37 × Out of memory`.
pub fn group_title(canvas: &Canvas<'_>, group: &FailureGroup) -> String {
    format!(
        "{} {} {}",
        grouped(group.counts.jobs),
        canvas.theme.times(),
        kind_title(group.diagnosis.kind)
    )
}

/// What recovery would do, in the words of the page's button.
pub fn remedy(group: &FailureGroup) -> String {
    let jobs = grouped(group.counts.jobs);
    match group.remedy.changes.first() {
        Some(change) if change.field == Adjustable::Memory => {
            format!("more memory: {} MiB, retry {jobs}", grouped(change.to >> 20))
        }
        Some(change) => format!("more time: {}, retry {jobs}", format::duration(change.to as f64)),
        None => format!("retry {jobs}"),
    }
}

/// Three curves. How many rows.
fn sparks(state: &State, view: &FamiliesView, canvas: &mut Canvas<'_>, area: Rect, y: u16) -> u16 {
    let pace = &view.pace;
    let per_minute = |n: &i64| n * 60_000 / pace.slot_ms.max(1);
    let ended: Vec<i64> = pace.ended.iter().map(per_minute).collect();
    // The last slot is not over yet.
    let newest = ended.iter().rev().nth(1).or(ended.first()).copied().unwrap_or(0);
    let failed: i64 = pace.failed.iter().sum();
    let curves = [
        ("Ends per minute", grouped(newest), ended, Tone::Good),
        ("Failed ends", grouped(failed), pace.failed.clone(), Tone::Bad),
        (
            "CPUs busy",
            format!("{} of {}", grouped(view.cpus.busy), grouped(view.cpus.all)),
            state.overview.busy.clone(),
            Tone::Live,
        ),
    ];
    let mut at = y;
    for (title, value, values, tone) in curves {
        canvas.put(area, 0, at, title, canvas.style(Tone::Quiet));
        canvas.right(area, at, &value, canvas.style(Tone::Strong));
        let style = canvas.style(tone);
        canvas.spark(area, at + 1, &values, style);
        at += 2;
    }
    at - y
}

fn families(state: &State, view: &FamiliesView, canvas: &mut Canvas<'_>, area: Rect, y: u16) {
    if y + 1 >= area.height {
        return;
    }
    let places = layout(&COLUMNS, area.width);
    canvas.head(area, y, &COLUMNS, &places);
    let total = state.overview.by_family.len();
    let rows = usize::from(area.height - y - 1);
    let groups = state.shown_groups();
    let cursor = state.overview.list.cursor.checked_sub(groups);
    // The cursor stays in sight; a line says what is below.
    let fits = rows.min(total);
    let shown = if total > rows { rows.saturating_sub(1).max(1) } else { fits };
    let top = cursor.map_or(0, |at| (at + 1).saturating_sub(shown)).min(total - shown.min(total));
    let plain = canvas.style(Tone::Plain);
    for (place, number) in (top..total.min(top + shown)).enumerate() {
        let at = y + 1 + place as u16;
        let Some(family) = view.families.get(number) else { continue };
        let counts = &state.overview.by_family[number];
        let facts = state.overview.resources.iter().find(|row| row.number == family.number);
        let bad = format::bad(counts);
        let name_style = if bad > 0 { canvas.style(Tone::Bad) } else { plain };
        let name = match bad {
            0 => family.name.clone(),
            n => format!("{} {}{}", family.name, canvas.theme.sign(JobStatus::Failed), grouped(n)),
        };
        let done = format!(
            "{} / {}",
            grouped(format::of(counts, JobStatus::Completed)),
            grouped(family.total)
        );
        let dash = canvas.theme.dash().to_owned();
        let median = facts.and_then(|f| f.seconds.median).map(format::duration);
        let memory = facts.and_then(|f| {
            let used = format::bytes(f.memory_max?);
            Some(match f.memory_asked {
                Some(asked) => format!("{used} / {}", format::bytes(asked)),
                None => used,
            })
        });
        let cells = [
            Cell::Name(name, name_style),
            Cell::Text(done, plain),
            Cell::Bar(*counts),
            Cell::Text(median.unwrap_or_else(|| dash.clone()), plain),
            Cell::Text(memory.unwrap_or(dash), plain),
            Cell::Text(left(canvas, view, counts, facts), plain),
        ];
        canvas.row(area, at, &COLUMNS, &places, &cells);
        if cursor == Some(number) {
            canvas.restyle(area, at, canvas.style(Tone::Picked));
        }
        canvas
            .hit(Rect { y: area.y + at, height: 1, ..area }, Target::Row((groups + number) as i64));
    }
    if total > top + shown {
        let more = format!("and {} more", grouped((total - top - shown) as i64));
        empty(canvas, area, y + 1 + shown as u16, &more);
    }
}

/// What is left of a family, by its median time; else how many jobs.
fn left(
    canvas: &Canvas<'_>,
    view: &FamiliesView,
    counts: &StatusCounts,
    facts: Option<&torc_model::api::FamilyResources>,
) -> String {
    let total: i64 = counts.iter().sum();
    let open =
        total - format::of(counts, JobStatus::Completed) - format::of(counts, JobStatus::Disabled);
    if open == 0 {
        return canvas.theme.sign(JobStatus::Completed).to_owned();
    }
    match facts.and_then(|f| Some((f.seconds.median?, f.cpus_asked))) {
        Some((seconds, cpus)) if view.cpus.all > 0 => {
            let work = open as f64 * seconds * cpus as f64 / view.cpus.all as f64;
            format!("{}{}", canvas.theme.about(), format::duration(work))
        }
        _ => grouped(open),
    }
}

fn runner_rows(state: &State) -> u16 {
    let runners = state.nodes.runners.iter().flatten();
    let live = runners.filter(|r| r.state != RunnerState::Ended).count().min(4);
    let waiting = state.nodes.allocations.iter().filter(|a| a.ended_ms.is_none()).count().min(3);
    match live + waiting {
        0 => 0,
        rows => rows as u16 + 1,
    }
}

fn runner_lines(state: &State, canvas: &mut Canvas<'_>, area: Rect, y: u16, rows: u16) {
    canvas.title(area, y, "Runners");
    let dot = canvas.theme.dot();
    let runners = state.nodes.runners.iter().flatten();
    let live = runners.filter(|r| r.state != RunnerState::Ended).take(4).map(|runner| {
        let word = match runner.state {
            RunnerState::LostContact => {
                format!("{} out of contact", canvas.theme.warning())
            }
            other => other.as_str().to_owned(),
        };
        let quarantine = match &runner.quarantine {
            Some(why) => format!("{dot}gets no work: {why}"),
            None => String::new(),
        };
        let (held, cpus) = (grouped(runner.held), count(runner.capacity.num_cpus, "CPU"));
        format!("{} {word}{dot}{held} running{dot}{cpus}{quarantine}", runner.hostname)
    });
    let asked = state.nodes.allocations.iter().filter(|a| a.ended_ms.is_none()).take(3);
    let asked = asked.map(|allocation| super::lists::allocation_line(allocation, dot));
    let lines: Vec<String> = live.chain(asked).collect();
    for (at, said) in lines.iter().take(usize::from(rows)).enumerate() {
        canvas.line(area, y + 1 + at as u16, said, Tone::Quiet);
    }
}

//! Failures by cause: what happened, the evidence, and one key that helps.

use super::canvas::Canvas;
use super::empty;
use super::overview::{group_title, remedy};
use crate::format::{self, count, grouped};
use crate::state::{State, Target};
use crate::text;
use crate::theme::Tone;
use ratatui::layout::Rect;
use torc_model::api::FailureGroup;
use torc_model::status::JobStatus;

/// Lines of output on a card.
const TAIL: usize = 8;

pub fn draw(state: &State, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(groups) = &state.overview.failures else {
        return empty(canvas, area, 0, "loading the failures");
    };
    if groups.is_empty() {
        let said = format!("{} No job has failed.", canvas.theme.sign(JobStatus::Completed));
        canvas.line(area, 0, &said, Tone::Good);
        return;
    }
    let cursor = state.failures.cursor.min(groups.len() - 1);
    let cards: Vec<Vec<(String, Tone)>> = groups
        .iter()
        .enumerate()
        .map(|(at, group)| card(state, canvas, group, at == cursor, area.width))
        .collect();
    // The card of the cursor is whole, with as many before it as fit.
    let mut first = cursor;
    let mut used = cards[cursor].len();
    while first > 0 && used + cards[first - 1].len() < usize::from(area.height) {
        first -= 1;
        used += cards[first].len();
    }
    let mut y = 0;
    for (at, lines) in cards.iter().enumerate().skip(first) {
        let begin = y;
        for (said, tone) in lines {
            canvas.line(area, y, said, *tone);
            y = y.saturating_add(1);
        }
        if at == cursor {
            canvas.restyle(area, begin, canvas.style(Tone::Picked));
        }
        let height = lines.len() as u16;
        canvas.hit(Rect { y: area.y + begin, height, ..area }, Target::Row(at as i64));
        if y >= area.height {
            break;
        }
    }
}

fn card(
    state: &State,
    canvas: &Canvas<'_>,
    group: &FailureGroup,
    is_open: bool,
    width: u16,
) -> Vec<(String, Tone)> {
    let dot = canvas.theme.dot();
    let width = usize::from(width);
    let sure = format!("{:.0}% confidence", group.diagnosis.confidence * 100.0);
    let head = format!("{} in {}{dot}{sure}", group_title(canvas, group), group.family);
    let mut lines = vec![(head, Tone::Bad)];
    if !is_open {
        lines.push((format!("  {}", text::line(&group.diagnosis.summary)), Tone::Quiet));
        return lines;
    }
    let mut add = |said: &str, tone: Tone| {
        let safe = text::line(said);
        let rows = text::wrap(&safe, width.saturating_sub(2));
        lines.extend(rows.into_iter().map(|row| (format!("  {row}"), tone)));
    };
    add(&group.diagnosis.summary, Tone::Strong);
    for proof in group.diagnosis.proof.iter().take(5) {
        add(&format!("{}: {}", proof.source, proof.text), Tone::Plain);
    }
    let mut facts = Vec::new();
    if group.counts.blocked > 0 {
        facts.push(format!("{} canceled behind them", count(group.counts.blocked, "job")));
    }
    if group.counts.waiting > 0 {
        facts.push(format!("{} wait for a verdict", grouped(group.counts.waiting)));
    }
    if !group.nodes.is_empty() {
        let hosts: Vec<String> =
            group.nodes.iter().map(|(host, n)| format!("{host} ({})", grouped(*n))).collect();
        facts.push(format!("on {}", hosts.join(", ")));
    }
    let clock = |ms| format::clock(ms, state.now_ms, &state.settings.zone);
    match (group.first_ms, group.last_ms) {
        (Some(first), Some(last)) if clock(first) != clock(last) => {
            facts.push(format!("{} {} {}", clock(first), canvas.theme.dash(), clock(last)));
        }
        (Some(first), _) => facts.push(clock(first)),
        _ => {}
    }
    if !facts.is_empty() {
        add(&facts.join(dot), Tone::Quiet);
    }
    if let Some((host, n)) = group.nodes.first()
        && group.counts.jobs > 3
        && group.nodes.len() > 1
        && n * 5 > group.counts.jobs * 4
    {
        let (n, all) = (grouped(*n), grouped(group.counts.jobs));
        let sign = canvas.theme.warning();
        add(&format!("{sign} {n} of {all} on {host}: the node may be to blame"), Tone::Warn);
    }
    if !group.sample.tail.is_empty() {
        add(&format!("Last lines of {}:", group.sample.name), Tone::Quiet);
        let tail: Vec<String> = group.sample.tail.lines().map(text::output).collect();
        for line in &tail[tail.len().saturating_sub(TAIL)..] {
            lines.push((
                format!("  {} {line}", if canvas.theme.ascii { "|" } else { "│" }),
                Tone::Plain,
            ));
        }
    }
    let mut add = |said: &str, tone: Tone| {
        let safe = text::line(said);
        let rows = text::wrap(&safe, width.saturating_sub(2));
        lines.extend(rows.into_iter().map(|row| (format!("  {row}"), tone)));
    };
    add(&format!("Recovery would: {}", group.remedy.why), Tone::Quiet);
    let chance = match group.remedy.chance {
        chance if chance > 0.0 => format!(" ({:.0}% chance)", chance * 100.0),
        _ => String::new(),
    };
    add(&format!("R {}{chance}{dot}Enter opens the log{dot}J its jobs", remedy(group)), Tone::Key);
    lines.push((String::new(), Tone::Plain));
    lines
}

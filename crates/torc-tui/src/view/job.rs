//! One job: why it is where it is above, its output below; or one of them, or two attempts compared.

use super::canvas::Canvas;
use super::empty;
use crate::format::{self, kind_title};
use crate::state::{InputFor, JobPlace, Overlay, Part, State};
use crate::text;
use crate::theme::Tone;
use ratatui::layout::Rect;
use torc_model::compare::Line;
use torc_model::status::JobStatus;

/// Rows of the why card when the output is below it.
pub fn why_rows(rows: usize) -> usize {
    match rows {
        0..=3 => 1,
        4..=9 => 2 + rows / 6,
        _ => (rows * 2 / 5).min(16),
    }
}

/// Lines of the whole why card at the width of the screen.
pub fn why_lines(state: &State) -> usize {
    let Some(place) = &state.job else { return 0 };
    why(state, place, state.frame.size.0).len() + 1
}

pub fn draw(state: &State, place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect) {
    title(state, place, canvas, area);
    let below = |y: usize| {
        let y = (y as u16).min(area.height);
        Rect { y: area.y + y, height: area.height - y, ..area }
    };
    match place.part {
        Part::Both => {
            let rows = why_rows(usize::from(area.height));
            let card = Rect { height: (rows as u16).min(area.height), ..area };
            why_card(state, place, canvas, card, 0);
            log(state, place, canvas, below(rows));
        }
        Part::Why => why_card(state, place, canvas, area, place.why_top),
        Part::Log => log(state, place, canvas, area),
        Part::Compare => compared(place, canvas, area),
    }
}

/// Name, status and attempts, on the first row of the body.
fn title(state: &State, place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect) {
    if place.part != Part::Both && place.part != Part::Why {
        return;
    }
    let (strong, quiet) = (canvas.style(Tone::Strong), canvas.style(Tone::Quiet));
    let room = usize::from(area.width) / 2;
    let name = text::line(&place.name);
    let name = text::fit_middle(&name, room, canvas.theme.more()).into_owned();
    let x = canvas.put(area, 0, 0, &name, strong);
    let Some(status) = state.open_status() else { return };
    let word = format!("  {} {}", canvas.theme.sign(status), format::word(status));
    let x = canvas.put(area, x, 0, &word, canvas.theme.of(status));
    let held = place.why.as_ref().is_some_and(|why| why.job.held);
    let x = if held { canvas.put(area, x, 0, " held", quiet) } else { x };
    let dot = canvas.theme.dot();
    let facts = match place.attempt() {
        Some(attempt) => {
            let count = place.attempts.as_ref().map_or(0, Vec::len);
            let run = match attempt.run_id {
                1 => String::new(),
                run => format!("run {run}, "),
            };
            let of = match count {
                1 => String::new(),
                n => format!(" of {n}"),
            };
            let node = attempt.hostname.as_deref().unwrap_or(canvas.theme.dash());
            let time = attempt.exec_seconds.or_else(|| {
                let start = attempt.started_ms.filter(|_| attempt.ended_ms.is_none())?;
                Some((state.now_ms - start) as f64 / 1000.0)
            });
            let time = time.map_or_else(String::new, |s| format!("{dot}{}", format::duration(s)));
            format!("{dot}{run}attempt {}{of}{time}{dot}{node}", attempt.attempt_id)
        }
        None => String::new(),
    };
    canvas.put_fit(area, x, 0, &facts, usize::from(area.width.saturating_sub(x)), quiet);
}

/// The why card as lines of a width.
fn why(state: &State, place: &JobPlace, width: u16) -> Vec<(String, Tone)> {
    let mut lines = Vec::new();
    let Some(why) = &place.why else { return lines };
    let room = usize::from(width);
    let mut add = |said: &str, lead: &str, tone: Tone| {
        let safe = text::line(said);
        let indent = " ".repeat(text::width(lead));
        let rows = text::wrap(&safe, room.saturating_sub(indent.len()));
        for (at, row) in rows.into_iter().enumerate() {
            let lead = if at == 0 { lead } else { &indent };
            lines.push((format!("{lead}{row}"), tone));
        }
    };
    let theme = state.settings.theme;
    let bullet = if theme.ascii { "- " } else { "• " };
    let is_bad = why.job.status.is_bad_end() || why.job.status == JobStatus::PendingFailed;
    add(&why.summary, "", if is_bad { Tone::Bad } else { Tone::Strong });
    if let Some(found) = &why.diagnosis {
        let sure =
            format!("{}, {:.0}% confidence", kind_title(found.kind), found.confidence * 100.0);
        add(&sure, "", Tone::Quiet);
        for proof in found.proof.iter().take(5) {
            add(&format!("{}: {}", proof.source, proof.text), "  ", Tone::Plain);
        }
    }
    for line in &why.details {
        add(line, bullet, Tone::Plain);
    }
    for one in &why.adjustments {
        let to = match one.change.field {
            torc_model::status::Adjustable::Memory => format::bytes(one.change.to),
            torc_model::status::Adjustable::Cpus | torc_model::status::Adjustable::Gpus => {
                one.change.to.to_string()
            }
            _ => format::duration(one.change.to as f64),
        };
        add(&format!("{} raised to {to}: {}", one.change.field, one.why), bullet, Tone::Quiet);
    }
    if let Some(remedy) = &why.remedy {
        let chance = match remedy.chance {
            chance if chance > 0.0 => format!(" ({:.0}% chance)", chance * 100.0),
            _ => String::new(),
        };
        add(&format!("Recovery would: {}{chance}", remedy.reason), "", Tone::Plain);
    }
    for hint in &why.hints {
        add(hint, "", Tone::Quiet);
    }
    let asks = format!(
        "Asks for {}{}{}, priority {}, family {}",
        format::count(why.job.num_cpus, "CPU"),
        why.job.memory.as_ref().map_or_else(String::new, |m| format!(", {m}")),
        why.job.runtime.as_deref().map_or_else(String::new, |t| format!(", {}", plain_time(t))),
        why.job.priority,
        why.job.family
    );
    add(&asks, "", Tone::Quiet);
    if let Some(attempt) = &why.attempt {
        let peak = attempt.peak_memory_bytes.map_or_else(String::new, |peak| {
            let of = attempt
                .memory_bytes
                .map_or_else(String::new, |m| format!(" of {}", format::bytes(m)));
            format!(", peak memory {}{of}", format::bytes(peak))
        });
        let code = match (attempt.signal, attempt.return_code) {
            (Some(signal), _) => format!(", signal {signal}"),
            (None, Some(code)) => format!(", exit {code}"),
            (None, None) => String::new(),
        };
        let said = format!(
            "Attempt {}: CPU time {}{peak}{code}",
            attempt.attempt_id,
            format::maybe_duration(attempt.cpu_seconds)
        );
        add(&said, "", Tone::Quiet);
    }
    let command = if why.job.command.is_empty() { "(steps)" } else { &why.job.command };
    add(command, "$ ", Tone::Plain);
    lines
}

/// `PT2H30M` as `2h30m`.
fn plain_time(text: &str) -> String {
    match text.strip_prefix('P') {
        Some(rest) => rest.replace('T', " ").trim().to_lowercase(),
        None => text.to_owned(),
    }
}

fn why_card(state: &State, place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect, top: usize) {
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if let (None, Some(problem)) = (&place.why, &place.problem) {
        canvas.line(area, 0, problem, Tone::Bad);
        return;
    }
    if place.why.is_none() {
        return empty(canvas, area, 0, "asking why");
    }
    let lines = why(state, place, area.width);
    let rows = usize::from(area.height);
    let is_cut = lines.len() > top + rows;
    for (at, (said, tone)) in lines.iter().skip(top).take(rows).enumerate() {
        canvas.line(area, at as u16, said, *tone);
    }
    if is_cut && place.part == Part::Both && rows > 1 {
        let more = format!(" {} w more ", canvas.theme.more());
        canvas.right(area, area.height - 1, &more, canvas.style(Tone::Key));
    }
}

fn log(state: &State, place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect) {
    if area.height == 0 {
        return;
    }
    log_title(state, place, canvas, area);
    let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let log = &place.log;
    let is_begun = place.attempts.as_ref().map(|attempts| !attempts.is_empty());
    match (is_begun, &log.problem) {
        (None, _) => return empty(canvas, area, 0, "loading"),
        (Some(false), _) => {
            return empty(canvas, area, 0, "It has not started, so there is no output yet.");
        }
        (_, Some(problem)) if log.lines.is_empty() => {
            canvas.line(area, 0, problem, Tone::Bad);
            return;
        }
        _ if !log.is_there => return empty(canvas, area, 0, "loading"),
        _ if log.lines.is_empty() => {
            let said = match place.is_running() {
                true => "Nothing written so far.",
                false => "It wrote nothing here. `s` shows the other stream.",
            };
            return empty(canvas, area, 0, said);
        }
        _ => {}
    }
    let rows = usize::from(area.height);
    let width = usize::from(area.width);
    let marked = log.marked.and_then(|at| log.lines.iter().rposition(|line| line.offset <= at));
    let last_top = log.lines.len().saturating_sub(rows);
    let first = if log.scroll.follows && !log.scroll.wrap {
        last_top
    } else {
        log.scroll.top.min(log.lines.len() - 1)
    };
    // The number of a line, where in it a row begins, and what the row says.
    let mut out: Vec<(usize, usize, &str)> = Vec::new();
    let pieces = |at: usize| -> Vec<(usize, usize, &str)> {
        let said = &log.lines[at].text;
        match log.scroll.wrap {
            true => {
                let begins = |begin: &mut usize, part: &'_ str| {
                    *begin += part.len();
                    Some(*begin - part.len())
                };
                let parts = text::chop(said, width);
                let begins: Vec<usize> = parts.iter().copied().scan(0, begins).collect();
                begins.into_iter().zip(parts).map(|(begin, part)| (at, begin, part)).collect()
            }
            false => {
                let part = text::skip(said, log.scroll.left);
                vec![(at, said.len() - part.len(), part)]
            }
        }
    };
    if log.scroll.follows && log.scroll.wrap {
        // From the end upwards, so that the last line is seen however long it is.
        for at in (0..log.lines.len()).rev() {
            let mut more = pieces(at);
            more.append(&mut out);
            out = more;
            if out.len() >= rows {
                break;
            }
        }
        out.drain(..out.len().saturating_sub(rows));
    } else {
        for at in first..log.lines.len() {
            out.extend(pieces(at));
            if out.len() >= rows {
                break;
            }
        }
    }
    let searched = log.search.as_ref().filter(|search| !search.is_regex);
    for (y, (at, begin, said)) in out.iter().take(rows).enumerate() {
        canvas.line(area, y as u16, said, Tone::Plain);
        paint(canvas, area, y as u16, &log.lines[*at].paints, *begin, said);
        if marked == Some(*at) {
            canvas.restyle(area, y as u16, canvas.style(Tone::Picked));
        } else if let Some(search) = searched
            && said.to_lowercase().contains(&search.text.to_lowercase())
        {
            canvas.restyle(area, y as u16, canvas.style(Tone::Warn));
        }
    }
}

/// Gives a row the colours that the job chose; the row is the part of its line from `begin` on.
fn paint(
    canvas: &mut Canvas<'_>,
    area: Rect,
    y: u16,
    paints: &[text::Paint],
    begin: usize,
    said: &str,
) {
    for (number, (from, look)) in paints.iter().enumerate() {
        let until = paints.get(number + 1).map_or(usize::MAX, |(at, _)| *at);
        let inside = |at: usize| at.saturating_sub(begin).min(said.len());
        let (Some(before), Some(part)) =
            (said.get(..inside(*from)), said.get(inside(*from)..inside(until)))
        else {
            continue;
        };
        let (x, columns) = (text::width(before), text::width(part));
        let style = canvas.theme.job(*look);
        canvas.restyle_part(area, x, y, columns, style);
    }
}

fn log_title(state: &State, place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect) {
    let log = &place.log;
    let dot = canvas.theme.dot();
    if let Some(Overlay::Input(input)) = &state.dialogs.overlay
        && let InputFor::LogSearch { is_regex } = input.what
    {
        let lead = if is_regex { "search (regex): " } else { "search: " };
        let x = canvas.put(area, 0, 0, lead, canvas.style(Tone::Key));
        canvas.editor(area, x, 0, &input.editor);
        return;
    }
    let attempt = place.attempt().map_or_else(String::new, |attempt| {
        let name = match place.part {
            Part::Log => format!("{}, ", text::line(&place.name)),
            _ => String::new(),
        };
        format!("{name}attempt {} ", attempt.attempt_id)
    });
    let size =
        if log.is_there { format!("{dot}{}", format::bytes(log.size)) } else { String::new() };
    let place_in = match (log.is_there, log.scroll.follows) {
        (false, _) => String::new(),
        (true, true) if place.is_running() => format!("{dot}follows"),
        (true, true) => format!("{dot}end"),
        (true, false) => {
            let shown = log.lines.get(log.scroll.top).map_or(log.end, |line| line.offset);
            format!("{dot}{}%", shown * 100 / log.size.max(1))
        }
    };
    let search = match &log.search {
        None => String::new(),
        Some(search) => match &search.hits {
            None => format!("{dot}searching {}", search.text),
            Some(hits) if hits.is_empty() => {
                format!(
                    "{dot}`{}` is not in its {} lines",
                    search.text,
                    format::grouped(search.lines)
                )
            }
            Some(hits) => {
                let line = hits.get(search.at).map_or(0, |hit| hit.line);
                let cut = if search.is_cut { "+" } else { "" };
                format!(
                    "{dot}`{}` {} of {}{cut}, line {}",
                    search.text,
                    format::grouped(search.at as i64 + 1),
                    format::grouped(search.total),
                    format::grouped(line)
                )
            }
        },
    };
    let problem = log.problem.as_ref().filter(|_| !log.lines.is_empty());
    let problem = problem.map_or_else(String::new, |problem| format!("{dot}{problem}"));
    let said = format!("{attempt}{}{size}{place_in}{search}{problem}", place.stream.as_str());
    let safe = text::line(&said);
    let fits = text::fit(&safe, usize::from(area.width), canvas.theme.more()).into_owned();
    canvas.title(area, 0, &fits);
}

fn compared(place: &JobPlace, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(compared) = &place.compared else { return };
    let title = format!(
        "{}: attempt {} (-) against attempt {} (+)",
        compared.later.stream.as_str(),
        compared.earlier.attempt,
        compared.later.attempt
    );
    canvas.title(area, 0, &title);
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let Some(lines) = &compared.lines else {
        return empty(canvas, area, 0, "loading both");
    };
    let is_same = lines.iter().all(|line| matches!(line, Line::Equal(_) | Line::Same(_)));
    if is_same {
        let said = match lines.is_empty() {
            true => "Both wrote nothing here. `s` shows the other stream.",
            false => "They differ in nothing but numbers, times and paths.",
        };
        return empty(canvas, area, 0, said);
    }
    for (y, line) in lines.iter().skip(compared.top).take(usize::from(area.height)).enumerate() {
        let (said, tone) = match line {
            Line::Same(text) => (format!("  {text}"), Tone::Plain),
            Line::Gone(text) => (format!("- {text}"), Tone::Warn),
            Line::New(text) => (format!("+ {text}"), Tone::Bad),
            Line::Equal(n) => {
                let lines = format::count(*n as i64, "equal line");
                (format!("  {} {lines}", canvas.theme.more()), Tone::Quiet)
            }
        };
        canvas.line(area, y as u16, &said, tone);
    }
}

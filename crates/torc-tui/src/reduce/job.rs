//! One job: why it is where it is, its attempts, and its output in pieces.

use crate::message::{Effect, LogOf, Piece, Request};
use crate::state::*;
use crate::text;
use torc_model::api::{AttemptView, LogSearchView, LogView, WhyView};
use torc_model::compare::compare;
use torc_model::ids::JobId;
use torc_model::status::{JobStatus, Stream};

/// Bytes before a hit that are shown with it.
const CONTEXT: i64 = 4 << 10;
/// Lines above a hit.
const ABOVE: usize = 3;
/// Equal lines beside a difference.
const AROUND: usize = 2;

impl State {
    /// Opens a job over the screen.
    pub(crate) fn open_job(&mut self, id: JobId, name: String) -> Vec<Effect> {
        self.job = Some(JobPlace {
            id,
            name,
            part: Part::Both,
            why: None,
            why_top: 0,
            attempts: None,
            shown: 0,
            stream: Stream::Stdout,
            is_chosen: false,
            log: Log::default(),
            compared: None,
            problem: None,
        });
        for feed in [Feed::Why, Feed::Attempts, Feed::Log] {
            self.connection.asked.remove(&feed);
        }
        Vec::new()
    }

    pub(crate) fn on_why(&mut self, id: JobId, why: WhyView) -> Vec<Effect> {
        if let Some(place) = self.job.as_mut().filter(|place| place.id == id) {
            place.name.clone_from(&why.job.name);
            place.why = Some(why);
            place.problem = None;
        }
        Vec::new()
    }

    pub(crate) fn on_attempts(&mut self, id: JobId, rows: Vec<AttemptView>) -> Vec<Effect> {
        let Some(place) = self.job.as_mut().filter(|place| place.id == id) else {
            return Vec::new();
        };
        let begun: Vec<AttemptView> =
            rows.into_iter().filter(|attempt| attempt.started_ms.is_some()).collect();
        let was_running = place.is_running();
        let known = place.attempts.as_ref().map_or(0, Vec::len);
        // A new attempt is shown as long as the newest was.
        let was_newest = known == 0 || place.shown + 1 == known;
        place.attempts = Some(begun);
        let count = place.attempts.as_ref().map_or(0, Vec::len);
        if was_newest && count > known {
            place.shown = count.saturating_sub(1);
            return self.open_log();
        }
        place.shown = place.shown.min(count.saturating_sub(1));
        // What it wrote last.
        if was_running && !place.is_running() && place.log.scroll.follows {
            return self.more_log();
        }
        Vec::new()
    }

    /// The output of the attempt that is shown, at its evidence when it failed, else at its end.
    pub(crate) fn open_log(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let Some(attempt) = place.attempt() else { return Vec::new() };
        let is_bad = attempt.cause.is_some();
        let is_newest =
            place.why.as_ref().and_then(|why| why.attempt.as_ref()).is_some_and(|newest| {
                (newest.run_id, newest.attempt_id) == (attempt.run_id, attempt.attempt_id)
            });
        if !place.is_chosen {
            place.stream = if is_bad { Stream::Stderr } else { Stream::Stdout };
        }
        let proof = place.why.as_ref().and_then(|why| why.diagnosis.as_ref()).filter(|_| is_newest);
        let evidence = proof
            .and_then(|found| found.proof.iter().find_map(|proof| proof.start))
            .filter(|_| place.stream == Stream::Stderr);
        let Some(of) = place.log_of() else { return Vec::new() };
        let scroll = LogScroll { wrap: place.log.scroll.wrap, ..LogScroll::default() };
        place.log = Log { of: Some(of), scroll, is_waiting: true, ..Log::default() };
        let (offset, piece) = match evidence {
            Some(at) => {
                (place.log.target, place.log.marked) = (Some(at), Some(at));
                ((at - CONTEXT).max(0), Piece::Open)
            }
            None => {
                place.log.scroll.follows = true;
                (-PIECE, Piece::End)
            }
        };
        vec![Effect::Fetch(Request::Log { of, offset, limit: PIECE, piece })]
    }

    /// What follows the last line that is here.
    pub(crate) fn more_log(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let Some(of) = place.log.of.filter(|_| !place.log.is_waiting) else { return Vec::new() };
        place.log.is_waiting = true;
        let offset = place.log.end;
        vec![Effect::Fetch(Request::Log { of, offset, limit: PIECE, piece: Piece::After })]
    }

    /// What stands before the first line that is here.
    fn earlier_log(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        let Some(of) = log.of.filter(|_| !log.is_waiting && log.begin > 0) else {
            return Vec::new();
        };
        log.is_waiting = true;
        let offset = (log.begin - PIECE).max(0);
        let limit = log.begin - offset;
        vec![Effect::Fetch(Request::Log { of, offset, limit, piece: Piece::Before })]
    }

    pub(crate) fn on_log(
        &mut self,
        of: &LogOf,
        piece: Piece,
        asked: i64,
        view: &LogView,
    ) -> Vec<Effect> {
        let rows = self.log_rows();
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        if log.of != Some(*of) {
            return Vec::new();
        }
        (log.is_waiting, log.is_there, log.problem) = (false, true, None);
        let had_end = log.end;
        let mut lines = cut(&view.text, view.offset);
        match piece {
            Piece::Open | Piece::End => {
                // The first line is cut off unless the file begins there.
                if view.offset > 0 && lines.len() > 1 {
                    lines.remove(0);
                }
                log.begin = lines.first().map_or(view.offset, |line| line.offset);
                log.end = view.next_offset;
                log.lines = lines;
                log.scroll.top = 0;
            }
            Piece::Before if view.offset == asked => {
                if view.offset > 0 && lines.len() > 1 {
                    lines.remove(0);
                }
                log.begin = lines.first().map_or(view.offset, |line| line.offset);
                log.scroll.top += lines.len();
                lines.append(&mut log.lines);
                log.lines = lines;
                if log.lines.len() > MAX_LINES {
                    log.end = log.lines[MAX_LINES].offset;
                    log.lines.truncate(MAX_LINES);
                    log.scroll.follows = false;
                }
            }
            // The file became shorter or was written anew: what is here is no longer in it.
            Piece::After if view.offset != had_end => {
                let effect =
                    Request::Log { of: *of, offset: -PIECE, limit: PIECE, piece: Piece::End };
                log.is_waiting = true;
                return vec![Effect::Fetch(effect)];
            }
            Piece::After => {
                log.end = view.next_offset;
                // The last line had no end before.
                let is_open = had_end > 0 && log.lines.last().is_some() && !log.ends_with_newline;
                if is_open && !lines.is_empty() {
                    let first = lines.remove(0);
                    if let Some(last) = log.lines.last_mut() {
                        let begin = last.text.len();
                        let paints = first.paints.iter().map(|(at, look)| (begin + at, *look));
                        last.paints.extend(paints);
                        last.text.push_str(&first.text);
                    }
                }
                log.lines.extend(lines);
                let surplus = log.lines.len().saturating_sub(MAX_LINES);
                if surplus > 0 {
                    log.lines.drain(..surplus);
                    log.scroll.top = log.scroll.top.saturating_sub(surplus);
                    log.begin = log.lines.first().map_or(log.begin, |line| line.offset);
                }
            }
            Piece::Before => {}
        }
        log.size = view.size;
        if piece != Piece::Before && !view.text.is_empty() {
            log.ends_with_newline = view.text.ends_with('\n');
        }
        if let Some(target) = log.target.take() {
            let at = log.lines.iter().rposition(|line| line.offset <= target).unwrap_or(0);
            log.scroll.top = at.saturating_sub(ABOVE);
        } else if log.scroll.follows {
            log.scroll.top = log.lines.len().saturating_sub(rows);
        }
        // A piece of few long lines, or of none: the screen has room for more.
        if piece == Piece::Open && log.lines.len() < rows && log.end < log.size {
            return self.more_log();
        }
        Vec::new()
    }

    pub(crate) fn on_log_problem(&mut self, of: &LogOf, message: &str) {
        let Some(log) = self.job.as_mut().map(|place| &mut place.log) else { return };
        if log.of == Some(*of) {
            log.is_waiting = false;
            log.problem = Some(message.to_owned());
            if let Some(search) = &mut log.search
                && search.hits.is_none()
            {
                log.search = None;
            }
        }
    }

    /// Rows of output that are on the screen.
    pub(crate) fn log_rows(&self) -> usize {
        let rows = self.body_rows();
        let is_both = self.job.as_ref().is_some_and(|place| place.part == Part::Both);
        let rows = if is_both { rows - crate::view::why_rows(rows) } else { rows };
        rows.saturating_sub(1).max(1)
    }

    /// Scrolls the output; at its ends more is asked for.
    pub(crate) fn scroll_log(&mut self, by: i64) -> Vec<Effect> {
        let rows = self.log_rows();
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        let last = log.lines.len().saturating_sub(rows);
        let top = (log.scroll.top as i64).saturating_add(by);
        log.scroll.top = usize::try_from(top.max(0)).unwrap_or(0).min(last);
        log.scroll.follows = top >= last as i64 && log.end >= log.size && by >= 0;
        if by < 0 && log.scroll.top < rows && log.begin > 0 {
            return self.earlier_log();
        }
        if by > 0 && log.scroll.top + 2 * rows > log.lines.len() && log.end < log.size {
            return self.more_log();
        }
        Vec::new()
    }

    pub(crate) fn log_to_start(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        log.scroll.follows = false;
        log.scroll.top = 0;
        let Some(of) = log.of.filter(|_| log.begin > 0 && !log.is_waiting) else {
            return Vec::new();
        };
        log.is_waiting = true;
        vec![Effect::Fetch(Request::Log { of, offset: 0, limit: PIECE, piece: Piece::Open })]
    }

    pub(crate) fn log_to_end(&mut self) -> Vec<Effect> {
        let rows = self.log_rows();
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        log.scroll.follows = true;
        log.scroll.top = log.lines.len().saturating_sub(rows);
        let Some(of) = log.of.filter(|_| log.end < log.size && !log.is_waiting) else {
            return Vec::new();
        };
        log.is_waiting = true;
        vec![Effect::Fetch(Request::Log { of, offset: -PIECE, limit: PIECE, piece: Piece::End })]
    }

    /// Another attempt, earlier or later.
    pub(crate) fn step_attempt(&mut self, by: i64) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let count = place.attempts.as_ref().map_or(0, Vec::len);
        let next = (place.shown as i64 + by).clamp(0, count.saturating_sub(1) as i64) as usize;
        if next == place.shown {
            let end = if by < 0 { "first" } else { "last" };
            self.say(format!("this is the {end} attempt"));
            return Vec::new();
        }
        place.shown = next;
        if place.part == Part::Compare {
            return self.compare_attempts();
        }
        self.open_log()
    }

    /// Standard error, standard output, and those of the recovery script where there is one.
    pub(crate) fn next_stream(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let has_script = place.attempt().is_some_and(|attempt| attempt.recovery.is_some());
        place.stream = match (place.stream, has_script) {
            (Stream::Stdout, _) => Stream::Stderr,
            (Stream::Stderr, true) => Stream::ScriptStdout,
            (Stream::ScriptStdout, _) => Stream::ScriptStderr,
            (Stream::Stderr | Stream::ScriptStderr, _) => Stream::Stdout,
        };
        place.is_chosen = true;
        self.open_log()
    }

    /// Asks the server where this text stands in the whole output.
    pub(crate) fn search_log(&mut self, text: String, is_regex: bool) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let log = &mut place.log;
        log.problem = None;
        let Some(of) = log.of.filter(|_| !text.is_empty()) else {
            log.search = None;
            return Vec::new();
        };
        log.search = Some(Search {
            text: text.clone(),
            is_regex,
            hits: None,
            total: 0,
            lines: 0,
            at: 0,
            is_cut: false,
        });
        vec![Effect::Fetch(Request::Search { of, text, is_regex })]
    }

    pub(crate) fn on_search(&mut self, of: &LogOf, text: &str, view: LogSearchView) -> Vec<Effect> {
        let Some(log) = self.job.as_mut().map(|place| &mut place.log) else { return Vec::new() };
        let Some(search) = log.search.as_mut().filter(|search| search.text == text) else {
            return Vec::new();
        };
        if log.of != Some(*of) {
            return Vec::new();
        }
        search.is_cut = view.searched < view.size;
        (search.total, search.lines) = (view.total, view.lines);
        search.at = 0;
        search.hits = Some(view.hits);
        self.show_hit(0)
    }

    /// Goes to the next hit, or to the one before.
    pub(crate) fn show_hit(&mut self, step: i64) -> Vec<Effect> {
        let Some(log) = self.job.as_mut().map(|place| &mut place.log) else { return Vec::new() };
        let Some(search) = &mut log.search else { return Vec::new() };
        let hits = search.hits.as_deref().unwrap_or_default();
        if hits.is_empty() {
            return Vec::new();
        }
        let count = hits.len() as i64;
        search.at = (search.at as i64 + step).rem_euclid(count) as usize;
        let offset = hits[search.at].offset;
        log.scroll.follows = false;
        log.marked = Some(offset);
        if offset >= log.begin && offset < log.end {
            let at = log.lines.iter().rposition(|line| line.offset <= offset).unwrap_or(0);
            log.scroll.top = at.saturating_sub(ABOVE);
            return Vec::new();
        }
        let Some(of) = log.of else { return Vec::new() };
        log.target = Some(offset);
        log.is_waiting = true;
        let from = (offset - CONTEXT).max(0);
        vec![Effect::Fetch(Request::Log { of, offset: from, limit: PIECE, piece: Piece::Open })]
    }

    /// The attempt that is shown against the one before it.
    pub(crate) fn compare_attempts(&mut self) -> Vec<Effect> {
        let Some(place) = &mut self.job else { return Vec::new() };
        let (Some(later), Some(attempts)) = (place.log_of(), &place.attempts) else {
            return Vec::new();
        };
        let Some(before) = place.shown.checked_sub(1).and_then(|at| attempts.get(at)) else {
            self.say("there is no earlier attempt to compare with");
            return Vec::new();
        };
        let earlier = LogOf { run: before.run_id, attempt: before.attempt_id, ..later };
        place.part = Part::Compare;
        place.compared = Some(ComparedAttempts {
            earlier,
            later,
            earlier_text: None,
            later_text: None,
            lines: None,
            top: 0,
        });
        vec![Effect::Fetch(Request::Compared(earlier)), Effect::Fetch(Request::Compared(later))]
    }

    pub(crate) fn on_compared(&mut self, of: &LogOf, text: &str) {
        let compared = self.job.as_mut().and_then(|place| place.compared.as_mut());
        let Some(compared) = compared else { return };
        if compared.earlier == *of {
            compared.earlier_text = Some(text.to_owned());
        } else if compared.later == *of {
            compared.later_text = Some(text.to_owned());
        }
        if let (Some(earlier), Some(later)) = (&compared.earlier_text, &compared.later_text) {
            let lines = |text: &str| text.lines().map(text::output).collect::<Vec<_>>();
            compared.lines = Some(compare(&lines(earlier), &lines(later), AROUND));
        }
    }

    /// Statuses of the job that is open, for the actions that fit.
    pub(crate) fn open_status(&self) -> Option<JobStatus> {
        self.job.as_ref()?.why.as_ref().map(|why| why.job.status)
    }
}

/// Lines of a piece of output, with where they begin.
fn cut(piece: &str, offset: i64) -> Vec<LogLine> {
    let mut at = offset;
    piece
        .split_inclusive('\n')
        .map(|line| {
            let begin = at;
            at += line.len() as i64;
            let (text, paints) = text::colored(line);
            LogLine { offset: begin, text, paints }
        })
        .collect()
}

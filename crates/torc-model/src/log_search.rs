//! Looks for a text in the whole output of an attempt, in pieces and for a bounded time.

use crate::api::{LogHit, LogSearchView};
use regex::bytes::{Regex, RegexBuilder};
use std::io::Read;
use std::time::Instant;

/// Characters of a hit, around the place.
const HIT_TEXT: usize = 400;
/// A line is looked at in parts of this size; a file may be one line of many gigabytes.
const LONGEST_LINE: usize = 1 << 20;
/// A pattern that needs more memory than this is refused.
const MAX_PATTERN: usize = 1 << 20;

/// What is looked for.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Lines that have it.
    Text(Regex),
    /// The line with this number, from 1.
    Line(i64),
}

impl Wanted {
    /// A text as it stands, or a regular expression. The error says what is wrong with it.
    pub fn text(text: &str, is_regex: bool, has_case: bool) -> Result<Self, String> {
        let pattern = if is_regex { text.to_owned() } else { regex::escape(text) };
        let built = RegexBuilder::new(&pattern)
            .case_insensitive(!has_case)
            .unicode(true)
            .size_limit(MAX_PATTERN)
            .build();
        built.map(Self::Text).map_err(|error| {
            let said = error.to_string();
            said.lines().last().unwrap_or("wrong").trim().to_owned()
        })
    }
}

/// Reads to the end, or until `until`, with one line in memory.
pub fn search(
    mut from: impl Read,
    wanted: &Wanted,
    limit: usize,
    until: Instant,
) -> std::io::Result<LogSearchView> {
    let mut view = LogSearchView { total: 0, hits: Vec::new(), lines: 0, size: 0, searched: 0 };
    let mut buffer = vec![0u8; 256 << 10];
    let mut line: Vec<u8> = Vec::new();
    let (mut start, mut number) = (0i64, 1i64);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let piece = &rest[..end.map_or(rest.len(), |end| end + 1)];
            rest = &rest[piece.len()..];
            line.extend_from_slice(piece);
            if end.is_some() || line.len() >= LONGEST_LINE {
                judge(&mut view, wanted, limit, number, start, &line);
                start += line.len() as i64;
                number += i64::from(end.is_some());
                line.clear();
            }
        }
        view.searched += read as i64;
        if Instant::now() >= until {
            break;
        }
    }
    if !line.is_empty() {
        judge(&mut view, wanted, limit, number, start, &line);
        number += 1;
    }
    view.lines = number - 1;
    Ok(view)
}

fn judge(
    view: &mut LogSearchView,
    wanted: &Wanted,
    limit: usize,
    number: i64,
    start: i64,
    line: &[u8],
) {
    let place = match wanted {
        Wanted::Text(regex) => regex.find(line).map(|found| found.start()),
        Wanted::Line(wanted) => (*wanted == number).then_some(0),
    };
    let Some(place) = place else { return };
    view.total += 1;
    if view.hits.len() < limit {
        let from = place.saturating_sub(HIT_TEXT / 4);
        let end = (from + HIT_TEXT).min(line.len());
        let text = String::from_utf8_lossy(&line[from..end]);
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        view.hits.push(LogHit { line: number, offset: start, text });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn found(text: &[u8], wanted: &Wanted) -> LogSearchView {
        search(text, wanted, 2, Instant::now() + Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn every_line_is_counted_and_the_first_ones_are_told_with_their_place() {
        let text = b"one\nTwo error\nthree\nan ERROR here\nerror at the end";
        let plain = |text: &str| Wanted::text(text, false, false).unwrap();
        let view = found(text, &plain("error"));
        assert_eq!((view.total, view.lines, view.searched), (3, 5, text.len() as i64));
        let hit = |line, offset, text: &str| LogHit { line, offset, text: text.into() };
        assert_eq!(view.hits, [hit(2, 4, "Two error"), hit(4, 20, "an ERROR here")]);
        assert_eq!(found(text, &Wanted::text("ERROR", false, true).unwrap()).total, 1);
        assert_eq!(found(text, &Wanted::text("^t", true, false).unwrap()).total, 2);
        assert_eq!(found(text, &Wanted::Line(3)).hits, [hit(3, 14, "three")]);
        assert!(Wanted::text("(", true, false).is_err());
    }

    #[test]
    fn a_file_that_is_one_endless_line_takes_little_memory_and_is_searched() {
        let text = [b"x".repeat(3 << 20), b"needle".to_vec()].concat();
        let view = found(&text, &Wanted::text("needle", false, false).unwrap());
        assert_eq!((view.total, view.lines), (1, 1));
        assert!(view.hits[0].text.len() <= HIT_TEXT && view.hits[0].text.contains("needle"));
    }
}

//! Every screen at five sizes, against text that is kept beside this file.
//!
//! `UPDATE_EXPECTED=1` writes the text anew; then read the difference.

use super::world::{NOW, WORKFLOW, World, pulse};
use crate::message::Event;
use crate::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::fmt::Write as _;
use std::path::PathBuf;

const SIZES: [(u16, u16); 5] = [(200, 60), (120, 40), (80, 24), (60, 15), (40, 10)];

/// The characters of a screen, without blanks at the ends of lines.
pub fn shown(world: &World, (columns, rows): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a screen in memory");
    terminal
        .draw(|frame| {
            view::draw(&world.state, frame.buffer_mut());
        })
        .expect("a screen in memory");
    let cells = terminal.backend().buffer().content();
    let mut text = String::new();
    for row in cells.chunks(usize::from(columns)) {
        let mut line = String::new();
        let mut hidden = 0;
        for cell in row {
            // A wide character covers the cell behind it.
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            line.push_str(cell.symbol());
            hidden = crate::text::width(cell.symbol()).saturating_sub(1);
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn check(name: &str, prepare: impl Fn((u16, u16)) -> World) {
    let mut text = String::new();
    for size in SIZES {
        let mut world = prepare(size);
        world.state.dialogs.notice = None;
        let _ = writeln!(text, "=== {} x {} ===", size.0, size.1);
        text += shown(&world, size).trim_end();
        text += "\n";
    }
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/tests/screens/{name}.txt"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(&file, &text).expect("the text is written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let first = kept.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        kept == text,
        "{name} looks different from {}; the first line that differs: {first:#?}\n\
         UPDATE_EXPECTED=1 writes it anew",
        file.display()
    );
}

fn after(keys: &'static str) -> impl Fn((u16, u16)) -> World {
    move |size| {
        let mut world = World::new(size);
        if !keys.is_empty() {
            world.press(keys);
        }
        world
    }
}

#[test]
fn overview() {
    check("overview", after(""));
}

#[test]
fn overview_before_the_first_answer() {
    check("loading", World::silent);
}

#[test]
fn overview_of_what_is_done() {
    check("done", |size| {
        let mut world = World::new(size);
        world.is_answering = false;
        world.on(Event::Pulse(WORKFLOW, pulse(true)));
        world
    });
}

#[test]
fn jobs() {
    check("jobs", after("2 j v v"));
}

#[test]
fn jobs_with_the_last_lines() {
    check("jobs_peek", after("2 G Space"));
}

#[test]
fn jobs_that_nothing_matches() {
    check("jobs_empty", after("2 / Ctrl-U nothing Enter"));
}

#[test]
fn a_filter_that_is_wrong() {
    check("jobs_wrong_filter", after("2 / Ctrl-U status:faild"));
}

#[test]
fn failures() {
    check("failures", after("3"));
}

#[test]
fn timeline() {
    check("timeline", after("4 Right Right"));
}

#[test]
fn nodes() {
    check("nodes", after("5"));
}

#[test]
fn events() {
    check("events", after("6 j"));
}

#[test]
fn workflows() {
    check("workflows", after("7"));
}

#[test]
fn a_job() {
    check("job", after("2 Enter"));
}

#[test]
fn why() {
    check("why", after("2 w"));
}

#[test]
fn a_log_with_a_search() {
    check("log", after("2 l / needle Enter n"));
}

#[test]
fn attempts_compared() {
    check("compare", after("2 Enter d"));
}

#[test]
fn an_action_before_it_is_done() {
    check("act", after("3 R"));
}

#[test]
fn an_action_with_a_value() {
    check("act_memory", after("3 m Ctrl-U 12g"));
}

#[test]
fn help() {
    check("help", after("2 ?"));
}

#[test]
fn palette() {
    check("palette", after(": tra"));
}

#[test]
fn columns() {
    check("columns", after("2 c j j Space"));
}

#[test]
fn the_server_is_away() {
    check("away", |size| {
        let mut world = World::new(size);
        world.is_answering = false;
        world.state.now_ms = NOW + 34_000;
        world.on(Event::Away(WORKFLOW, "connection refused".into()));
        world
    });
}

#[test]
fn ascii_without_colours() {
    check("ascii", |size| {
        let mut world = World::new(size);
        world.state.settings.theme = crate::theme::Theme { color: false, ascii: true };
        world.press("3");
        let text = shown(&world, size);
        assert!(text.is_ascii(), "{text}");
        world
    });
}

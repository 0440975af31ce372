//! No size of the screen, no name and no output makes the program panic, and nothing of a job
//! reaches the terminal as a command.

use super::world::{World, reply};
use crate::message::{Answer, Effect, Event, Request};
use crate::view;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Every screen, by the keys that lead to it.
const SCREENS: [&str; 19] = [
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "2 Enter",
    "2 w",
    "2 l W",
    "2 Enter d",
    "3 R",
    "3 m",
    "2 ?",
    ": tra",
    "2 c",
    "2 G Space",
    "4 Right + +",
    "2 / x",
];

fn draw(world: &World, columns: u16, rows: u16) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    view::draw(&world.state, &mut buffer);
    buffer
}

/// Every size from 1 x 1 to 200 x 200, up and down in turn. A resize goes through the reducer, so that
/// cursors and windows are moved too. The screen is one of the rich ones: a job with its card and its
/// output.
fn draw_at_every_size(widths: impl Iterator<Item = u16>) {
    let mut world = World::new((80, 24));
    world.press("2 Enter");
    world.is_answering = false;
    let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 200));
    for columns in widths {
        for step in 1..=200 {
            let rows = if columns % 2 == 0 { step } else { 201 - step };
            world.on(Event::Resize(columns, rows));
            world.effects.clear();
            // What the frame before has left does not matter here.
            buffer.resize(Rect::new(0, 0, columns, rows));
            view::draw(&world.state, &mut buffer);
        }
    }
}

#[test]
fn no_height_up_to_200_at_a_width_up_to_130_makes_a_job_panic() {
    draw_at_every_size(1..=130);
}

#[test]
fn no_height_up_to_200_at_a_width_from_131_to_200_makes_a_job_panic() {
    draw_at_every_size(131..=200);
}

/// The other screens: every width at heights where the layout changes, and the other way round.
/// Sizes in between are drawn at random below.
fn draw_at_edges(screens: &[&str]) {
    for keys in screens {
        let mut world = World::new((80, 24));
        world.press(keys);
        for (edge, step) in [(1, 1), (8, 1), (12, 1), (40, 9), (100, 9)] {
            for other in (1..=200).step_by(step) {
                for (columns, rows) in [(edge, other), (other, edge)] {
                    world.state.frame.size = (columns, rows);
                    draw(&world, columns, rows);
                }
            }
        }
        // Between a resize and its event the state believes in another size.
        for (columns, rows) in [(0, 0), (200, 0), (200, 60), (1, 1), (39, 60), (200, 7)] {
            draw(&world, columns, rows);
        }
    }
}

#[test]
fn no_edge_size_makes_a_screen_panic() {
    draw_at_edges(&SCREENS[..SCREENS.len() / 2]);
}

#[test]
fn no_edge_size_makes_a_job_or_a_dialog_panic() {
    draw_at_edges(&SCREENS[SCREENS.len() / 2..]);
}

fn key() -> impl Strategy<Value = Event> {
    let code = prop_oneof![
        20 => prop::char::range(' ', '~').prop_map(KeyCode::Char),
        1 => Just(KeyCode::Char('漢')),
        4 => Just(KeyCode::Enter),
        3 => Just(KeyCode::Esc),
        1 => Just(KeyCode::Tab),
        1 => Just(KeyCode::BackTab),
        2 => Just(KeyCode::Up),
        2 => Just(KeyCode::Down),
        1 => Just(KeyCode::Left),
        1 => Just(KeyCode::Right),
        1 => Just(KeyCode::Home),
        1 => Just(KeyCode::End),
        1 => Just(KeyCode::PageUp),
        1 => Just(KeyCode::PageDown),
        1 => Just(KeyCode::Backspace),
        1 => Just(KeyCode::Delete),
    ];
    (code, prop::bool::weighted(0.05)).prop_map(|(code, is_control)| {
        let modifiers = if is_control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        Event::Key(KeyEvent::new(code, modifiers))
    })
}

fn anything() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => key(),
        1 => (1u16..=200, 1u16..=200).prop_map(|(columns, rows)| Event::Resize(columns, rows)),
        1 => (0u16..200, 0u16..60, 0..3).prop_map(|(column, row, kind)| {
            let kind = match kind {
                0 => MouseEventKind::Down(MouseButton::Left),
                1 => MouseEventKind::ScrollDown,
                _ => MouseEventKind::ScrollUp,
            };
            Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        }),
        1 => Just(Event::Paste("status:failed\x1b[2J\n".into())),
        1 => Just(Event::Tick),
        1 => Just(Event::Away(super::world::WORKFLOW, "gone".into())),
        1 => Just(Event::Pulse(super::world::WORKFLOW, super::world::pulse(false))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is pressed, clicked and resized, in whatever order the answers come.
    #[test]
    fn no_sequence_of_events_makes_it_panic(
        size in (1u16..=200, 1u16..=200),
        events in prop::collection::vec((anything(), any::<bool>()), 1..80),
    ) {
        let mut world = World::new(size);
        for (event, is_answered) in events {
            world.is_answering = is_answered;
            if let Event::Resize(columns, rows) = event {
                world.state.frame.size = (columns, rows);
            }
            world.on(event);
            world.effects.retain(|effect| *effect != Effect::Quit);
            let (columns, rows) = world.state.frame.size;
            let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
            world.state.frame.hits = view::draw(&world.state, &mut buffer).hits;
        }
    }

    /// Names, output and messages of any characters: no cell holds one that a terminal obeys.
    #[test]
    fn no_cell_holds_a_control_character(
        said in "(\\PC|\u{1b}\\[[0-9;]*m|[\u{0}-\u{1f}\u{7f}-\u{9f}\u{202a}-\u{202e}\u{300}-\u{36f}漢]){0,60}",
        screen in 0..SCREENS.len(),
    ) {
        let mut world = World::new((100, 30));
        world.press(SCREENS[screen]);
        // Every answer again, with the text in the places that jobs and users fill.
        for request in requests(&mut world) {
            let Ok(answer) = reply(&request) else { continue };
            let answer = hostile(answer, &said);
            let now = world.state.now_ms;
            world.state.on(Event::Answer(request, Ok(answer)), now);
        }
        let buffer = draw(&world, 100, 30);
        for cell in buffer.content() {
            let is_bad = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            prop_assert!(!cell.symbol().contains(is_bad), "{:?}", cell.symbol());
        }
    }
}

/// The questions of the screen, once more.
fn requests(world: &mut World) -> Vec<Request> {
    world.is_answering = false;
    world.effects.clear();
    world.state.connection.asked.clear();
    world.wait(20_000);
    world.asked()
}

fn hostile(answer: Answer, said: &str) -> Answer {
    match answer {
        Answer::Families(mut view) => {
            view.name = said.into();
            view.families.iter_mut().for_each(|family| family.name = said.into());
            Answer::Families(view)
        }
        Answer::Failures(mut groups) => {
            for group in &mut groups {
                group.diagnosis.summary = said.into();
                group.sample.tail = said.into();
                group.family = said.into();
                group.sample.name = said.into();
            }
            Answer::Failures(groups)
        }
        Answer::Jobs(mut page) => {
            for job in &mut page.items {
                job.name = said.into();
                job.family = said.into();
            }
            Answer::Jobs(page)
        }
        Answer::Runners(mut rows) => {
            rows.iter_mut().for_each(|runner| runner.hostname = said.into());
            Answer::Runners(rows)
        }
        Answer::Events(mut rows) => {
            for event in &mut rows {
                event.job_name = Some(said.into());
                event.data = serde_json::json!({ "error": said });
            }
            Answer::Events(rows)
        }
        Answer::Workflows(mut page) => {
            page.items.iter_mut().for_each(|workflow| workflow.name = said.into());
            Answer::Workflows(page)
        }
        Answer::Why(mut why) => {
            why.summary = said.into();
            why.job.command = said.into();
            why.job.name = said.into();
            Answer::Why(why)
        }
        Answer::Log(mut log) => {
            log.text = said.into();
            Answer::Log(log)
        }
        other => other,
    }
}

//! Key by key: what the reducer does, without a terminal and without a server.

use super::world::{NOW, TOTAL, WORKFLOW, World, pulse};
use crate::message::{Answer, AskProblem, Effect, Event, JobsWindow, Piece, Request};
use crate::state::{Link, Overlay, Part, View};
use torc_model::api::ActWord;
use torc_model::ids::JobId;
use torc_model::status::Stream;

fn world() -> World {
    World::new((120, 40))
}

#[test]
fn digits_and_tab_go_through_the_screens_and_escape_comes_back() {
    let mut world = world();
    for (key, view) in ["1", "2", "3", "4", "5", "6", "7"].into_iter().zip(View::ALL) {
        assert_eq!(world.press(key).state.route.view, view);
    }
    assert_eq!(world.press("Tab").state.route.view, View::Overview);
    assert_eq!(world.press("Esc").state.route.view, View::Workflows, "where Tab was pressed");
    world.press("Esc Esc Esc Esc Esc Esc Esc");
    assert!(!world.effects.contains(&Effect::Quit), "Esc never quits");
    world.press("q");
    assert!(world.effects.contains(&Effect::Quit), "q quits where nothing is left to go back to");
}

#[test]
fn control_c_and_capital_q_quit_from_anywhere() {
    for keys in ["Ctrl-C", "Q", "2 / x Ctrl-C", "3 R Ctrl-C", ": Ctrl-C", "2 Enter Q"] {
        let mut world = world();
        world.press(keys);
        assert!(world.effects.contains(&Effect::Quit), "{keys}");
    }
}

#[test]
fn control_z_suspends_from_anywhere() {
    for keys in ["Ctrl-Z", "2 / x Ctrl-Z", "3 R Ctrl-Z", ": Ctrl-Z", "2 Enter Ctrl-Z"] {
        let mut world = world();
        world.press(keys);
        assert!(world.effects.contains(&Effect::Suspend), "{keys}");
    }
}

#[test]
fn output_goes_to_the_pager_and_the_command_to_the_editor() {
    let mut world = world();
    world.press("2 Enter s o");
    let of = world.state.job.as_ref().unwrap().log_of().unwrap();
    assert_eq!((of.attempt, of.stream), (2, Stream::Stdout), "what is on the screen");
    assert!(world.effects.contains(&Effect::Pager(of)), "{:?}", world.effects);
    world.press("e");
    let command = &world.state.job.as_ref().unwrap().why.as_ref().unwrap().job.command;
    let edited = world.effects.iter().any(|e| matches!(e, Effect::Editor(t) if t == command));
    assert!(edited && !command.is_empty(), "{:?}", world.effects);
}

#[test]
fn names_and_commands_are_copied() {
    let mut world = world();
    let copied = |world: &mut World, keys: &str| {
        world.effects.clear();
        world.press(keys);
        world.effects.iter().find_map(|effect| match effect {
            Effect::Copy(text) => Some(text.clone()),
            _ => None,
        })
    };
    assert_eq!(copied(&mut world, "2 y").as_deref(), Some("train_0.001_1"));
    assert_eq!(
        copied(&mut world, "Enter [ s y").as_deref(),
        Some("torc logs 1 --attempt 1 --stdout")
    );
}

#[test]
fn what_failed_is_proposed_and_a_filter_of_ones_own_is_kept() {
    let mut world = world();
    assert_eq!(world.press("2").state.jobs.filter, "-status:completed");
    world.press("/ Ctrl-U train Enter 1 2");
    assert_eq!(world.state.jobs.filter, "train");
    world.press("/ Ctrl-U Enter 1 2");
    assert_eq!(world.state.jobs.filter, "", "the user wants all");
}

#[test]
fn a_filter_holds_while_it_is_typed_and_escape_brings_the_old_one_back() {
    let mut world = world();
    world.press("2 / Ctrl-U status:failed");
    assert_eq!(world.state.jobs.filter, "status:failed");
    world.press("Esc");
    assert_eq!(world.state.jobs.filter, "-status:completed");
    world.press("/ Ctrl-U status:faild");
    assert_ne!(world.state.jobs.filter, "status:faild", "what cannot be read is not asked");
    let Some(Overlay::Input(input)) = &world.state.dialogs.overlay else { panic!("still typing") };
    assert!(input.problem.as_ref().is_some_and(|text| text.contains("failed")), "{input:?}");
}

fn windows(requests: Vec<Request>) -> Vec<JobsWindow> {
    let jobs = |request| match request {
        Request::Jobs(window) => Some(window),
        _ => None,
    };
    requests.into_iter().filter_map(jobs).collect()
}

#[test]
fn only_windows_on_the_screen_are_asked_for_and_neighbours_by_their_cursor() {
    let mut world = world();
    world.press("2");
    assert_eq!(world.state.jobs.total, Some(TOTAL));
    assert_eq!(world.state.jobs.windows.keys().copied().collect::<Vec<_>>(), [0]);
    world.is_answering = false;
    world.press("PgDn PgDn PgDn");
    let asked = windows(world.asked());
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].window, asked[0].after), (1, Some(JobId(100))), "keyset paging");
    world.press("G");
    let asked = windows(world.asked());
    assert_eq!((asked[0].window, asked[0].after), (12, None), "the end is found by its offset");
    assert_eq!(world.state.jobs.cursor, TOTAL - 1);
}

#[test]
fn few_windows_are_kept_however_far_one_goes() {
    let mut world = world();
    world.press("2");
    for _ in 0..60 {
        world.press("PgDn");
    }
    assert!(world.state.jobs.windows.len() <= crate::state::MAX_WINDOWS);
    assert!(world.state.current_job().is_some());
}

#[test]
fn answers_to_an_earlier_filter_are_dropped() {
    let mut world = world();
    world.press("2");
    world.is_answering = false;
    world.press("s");
    let old = windows(world.asked());
    world.press("s");
    let new = windows(world.asked());
    let answer = super::world::reply(&Request::Jobs(old[0].clone()));
    world.on(Event::Answer(Request::Jobs(old[0].clone()), answer));
    assert!(world.state.jobs.is_old, "not the answer to this question");
    assert!(world.state.current_job().is_none(), "rows of another order are not for acting");
    let answer = super::world::reply(&Request::Jobs(new[0].clone()));
    world.on(Event::Answer(Request::Jobs(new[0].clone()), answer));
    assert!(!world.state.jobs.is_old);
    assert_eq!(world.state.jobs.total, Some(TOTAL));
    assert_eq!(new[0].sort, "status");
}

#[test]
fn a_row_that_is_opened_before_the_answer_opens_with_it() {
    let mut world = world();
    world.press("2");
    world.is_answering = false;
    world.press("s");
    let asked = windows(world.asked());
    world.press("Enter");
    assert!(world.state.job.is_none(), "the rows are those of another order");
    let answer = super::world::reply(&Request::Jobs(asked[0].clone()));
    world.on(Event::Answer(Request::Jobs(asked[0].clone()), answer));
    assert!(world.state.job.is_some());

    // Another key takes it back.
    world.press("Esc");
    world.press("s");
    let asked = windows(world.asked());
    world.press("Enter");
    world.press("v");
    let answer = super::world::reply(&Request::Jobs(asked[0].clone()));
    world.on(Event::Answer(Request::Jobs(asked[0].clone()), answer));
    assert!(world.state.job.is_none());
}

#[test]
fn an_action_is_shown_before_it_is_done() {
    let mut world = world();
    world.press("2");
    world.is_answering = false;
    world.press("v v R");
    let asked = world.asked();
    let Some(Request::Act(plan, turn)) = asked.last() else { panic!("{asked:?}") };
    assert!(plan.dry_run && plan.action == ActWord::Recover && plan.filter == "id:1,2");
    world.press("Enter");
    assert!(world.asked().is_empty(), "nothing is done before its plan is on the screen");
    let answer = super::world::reply(&Request::Act(plan.clone(), *turn));
    world.on(Event::Answer(Request::Act(plan.clone(), *turn), answer));
    world.press("y");
    let copied = world.effects.iter().any(|effect| {
        matches!(effect, Effect::Copy(command) if command.starts_with("torc jobs act recover"))
    });
    assert!(copied, "{:?}", world.effects);
    world.press("Enter");
    let asked = world.asked();
    let Some(Request::Act(deed, _)) = asked.last() else { panic!("{asked:?}") };
    assert!(!deed.dry_run && deed.filter == "id:1,2");
    world.press("Enter");
    assert!(world.asked().is_empty(), "once");
}

#[test]
fn all_that_match_are_named_by_the_filter_and_not_one_by_one() {
    let mut world = world();
    world.press("2 V");
    world.is_answering = false;
    world.press("x");
    let asked = world.asked();
    let Some(Request::Act(plan, _)) = asked.last() else { panic!("{asked:?}") };
    assert_eq!((plan.action, plan.filter.as_str()), (ActWord::Cancel, "-status:completed"));
}

#[test]
fn a_value_is_planned_again_with_every_letter() {
    let mut world = world();
    world.press("3");
    world.is_answering = false;
    world.press("m Ctrl-U 12g");
    let values: Vec<String> = world
        .asked()
        .into_iter()
        .filter_map(|request| match request {
            Request::Act(plan, _) => plan.value,
            _ => None,
        })
        .collect();
    assert_eq!(values, ["8g", "", "1", "12", "12g"]);
}

#[test]
fn a_refusal_stays_in_the_dialog() {
    let mut world = world();
    world.press("3");
    world.is_answering = false;
    world.press("m");
    let asked = world.asked();
    let Some(request @ Request::Act(..)) = asked.last().cloned() else { panic!("{asked:?}") };
    let problem = AskProblem { message: "`8x` is no amount".into(), is_away: false };
    world.on(Event::Answer(request, Err(problem)));
    let Some(Overlay::Act(dialog)) = &world.state.dialogs.overlay else {
        panic!("the dialog is open")
    };
    assert_eq!(dialog.problem.as_deref(), Some("`8x` is no amount"));
    assert_eq!(world.state.connection.link, Link::Connected);
}

#[test]
fn a_job_opens_at_its_newest_attempt_and_brackets_step_through_them() {
    let mut world = world();
    world.press("2 Enter");
    let place = world.state.job.as_ref().unwrap();
    assert_eq!((place.shown, place.stream), (1, Stream::Stderr), "what went wrong");
    world.press("[");
    assert_eq!(world.state.job.as_ref().unwrap().shown, 0);
    world.press("[ ] s");
    let place = world.state.job.as_ref().unwrap();
    assert_eq!((place.shown, place.stream), (1, Stream::Stdout));
    world.press("l");
    assert_eq!(world.state.job.as_ref().unwrap().part, Part::Log);
    world.press("Esc");
    assert_eq!(world.state.job.as_ref().unwrap().part, Part::Both);
    assert!(world.press("Esc").state.job.is_none());
    assert_eq!(world.state.route.view, View::Jobs);
}

#[test]
fn a_search_asks_the_server_and_n_goes_from_hit_to_hit() {
    let mut world = world();
    world.press("2 l");
    world.is_answering = false;
    world.press("/ needle Ctrl-R Enter");
    let asked = world.asked();
    let Some(request @ Request::Search { .. }) = asked.last().cloned() else { panic!("{asked:?}") };
    assert!(matches!(&request, Request::Search { text, is_regex: true, .. } if text == "needle"));
    let answer = super::world::reply(&request);
    world.on(Event::Answer(request, answer));
    let log = &world.state.job.as_ref().unwrap().log;
    assert_eq!(log.marked, Some(300));
    assert!(!log.scroll.follows);
    assert_eq!(log.lines[log.scroll.top].offset, 300 - 3 * 25, "with lines above it");
    world.press("n");
    assert_eq!(world.state.job.as_ref().unwrap().log.marked, Some(1_200));
    world.press("n");
    assert_eq!(world.state.job.as_ref().unwrap().log.marked, Some(300), "and round");
}

#[test]
fn the_output_grows_at_its_end_and_a_line_in_two_pieces_is_one_line() {
    let mut world = world();
    world.press("2 l");
    world.is_answering = false;
    let of = world.state.job.as_ref().unwrap().log_of().unwrap();
    let before = world.state.job.as_ref().unwrap().log.lines.len();
    for (text, offset) in [("half a ", 5_000), ("line\nnext\n", 5_007)] {
        world.state.more_log();
        let request = Request::Log { of, offset, limit: 1, piece: Piece::After };
        let view = serde_json::from_value(serde_json::json!({
            "job_id": 40, "run_id": 1, "attempt_id": 2, "stream": "stderr", "path": "/x", "offset": offset,
            "next_offset": offset + text.len() as i64, "size": offset + text.len() as i64, "text": text,
        }));
        world.on(Event::Answer(request, Ok(Answer::Log(view.unwrap()))));
    }
    let log = &world.state.job.as_ref().unwrap().log;
    let last: Vec<&str> = log.lines[before..].iter().map(|line| line.text.as_str()).collect();
    assert_eq!(last, ["half a line", "next"]);
    assert!(log.scroll.follows);
}

#[test]
fn attempts_are_compared_with_the_one_before() {
    let mut world = world();
    world.press("2 Enter d");
    let place = world.state.job.as_ref().unwrap();
    assert_eq!(place.part, Part::Compare);
    let lines = place.compared.as_ref().unwrap().lines.as_ref().unwrap();
    let text = format!("{lines:?}");
    assert!(text.contains("MemoryError") && text.contains("Equal"), "{text}");
    world.press("Esc [ d");
    assert!(
        world.state.dialogs.notice.as_ref().is_some_and(|n| n.text.contains("no earlier attempt"))
    );
}

#[test]
fn the_palette_goes_to_screens_jobs_and_filters() {
    let mut world = world();
    assert_eq!(world.press(": nod Enter").state.route.view, View::Nodes);
    world.press(": jobs Space status:failed Enter");
    assert_eq!(
        (world.state.route.view, world.state.jobs.filter.as_str()),
        (View::Jobs, "status:failed")
    );
    world.press(": zzz Down Enter");
    assert_eq!(
        world.state.job.as_ref().map(|place| place.id),
        Some(JobId(40)),
        "found by the server"
    );
}

#[test]
fn frames_ask_again_for_what_is_on_the_screen_and_not_too_often() {
    let mut world = world();
    world.press("3");
    world.is_answering = false;
    world.effects.clear();
    world.on(Event::Pulse(WORKFLOW, pulse(false)));
    assert_eq!(world.asked(), [], "nothing has changed");
    world.on(Event::Pulse(WORKFLOW, pulse(true)));
    assert_eq!(world.asked(), [], "asked for a moment ago");
    assert_eq!(world.state.wake_at(), Some(NOW + 1_000), "but soon");
    world.wait(2_000);
    assert_eq!(world.asked(), [Request::Families(WORKFLOW), Request::Failures(WORKFLOW)]);
    world.wait(60_000);
    assert_eq!(world.asked(), [], "on their way");
}

#[test]
fn nothing_is_asked_and_nothing_moves_when_all_is_done() {
    let mut world = world();
    world.on(Event::Pulse(WORKFLOW, pulse(true)));
    world.wait(20_000);
    world.on(Event::Pulse(WORKFLOW, pulse(true)));
    // The sample of the server still says that it runs; this one does not.
    world.state.overview.families.as_mut().unwrap().is_complete = true;
    world.state.connection.asked.values_mut().for_each(|asked| asked.is_stale = false);
    assert_eq!(world.state.wake_at(), None, "no timer runs at rest");
}

#[test]
fn a_server_that_is_away_leaves_everything_usable_and_is_asked_again_when_it_is_back() {
    let mut world = world();
    world.press("2");
    world.is_answering = false;
    world.effects.clear();
    world.on(Event::Away(WORKFLOW, "connection refused".into()));
    assert!(matches!(world.state.connection.link, Link::Away { .. }));
    world.press("j j j");
    assert_eq!(world.state.jobs.cursor, 3);
    world.wait(60_000);
    assert_eq!(world.asked(), [], "no server, no questions");
    world.on(Event::Pulse(WORKFLOW, pulse(false)));
    assert_eq!(world.state.connection.link, Link::Connected);
    assert!(!world.asked().is_empty());
}

#[test]
fn the_timeline_zooms_around_its_middle_and_pans_within_its_ends() {
    let mut world = world();
    world.press("4");
    let (from, until) = world.state.span();
    assert_eq!(from, 0);
    world.press("+");
    let (begin, end) = world.state.span();
    assert!(begin > 0 && end < until, "{begin}..{end} of {until}");
    for _ in 0..20 {
        world.press("l");
    }
    assert!(world.state.span().1 <= until);
    for _ in 0..20 {
        world.press("h");
    }
    assert_eq!(world.state.span().0, 0);
    world.press("0 Right Right Enter");
    assert_eq!(world.state.job.as_ref().map(|place| place.id), Some(JobId(2)));
}

#[test]
fn events_keep_their_place_when_new_ones_come() {
    let mut world = world();
    world.press("6 j j");
    let id = world.state.events.shown()[2].id;
    let event = |id: i64| serde_json::json!({"id": id, "workflow_id": 7, "timestamp_ms": NOW, "kind": "job_failed", "data": {}});
    let rows = serde_json::from_value(serde_json::json!([event(41), event(42)])).unwrap();
    let request = Request::Events(WORKFLOW, Some(40));
    world.on(Event::Answer(request, Ok(Answer::Events(rows))));
    let shown = world.state.events.shown();
    assert_eq!(shown[0].id, 42);
    assert_eq!(shown[world.state.events.list.cursor].id, id);
}

#[test]
fn columns_can_be_hidden_but_not_the_name() {
    let mut world = world();
    world.press("2 c Space Down Space Esc");
    assert!(world.state.jobs.hidden.contains(&crate::state::Column::Status));
    assert!(!world.state.jobs.hidden.contains(&crate::state::Column::Name));
    assert!(world.state.dialogs.overlay.is_none());
}

#[test]
fn a_workflow_that_was_deleted_leads_back_to_the_list() {
    let mut world = world();
    world.press("2 Enter");
    world.is_answering = false;
    world.effects.clear();
    world.on(Event::Refused(WORKFLOW, "workflow 7 was not found".into()));
    assert_eq!((world.state.route.view, world.state.workflow), (View::Workflows, None));
    assert!(world.state.job.is_none());
    assert_eq!(world.asked(), [Request::Workflows]);
    assert!(
        world.state.dialogs.notice.as_ref().is_some_and(|notice| notice.text.contains("not found"))
    );
}

#[test]
fn the_mouse_chooses_tabs_rows_heads_and_bars() {
    use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
    let click = |world: &mut World, column, row| {
        let (columns, rows) = world.state.frame.size;
        let area = ratatui::layout::Rect::new(0, 0, columns, rows);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        world.state.frame.hits = crate::view::draw(&world.state, &mut buffer).hits;
        let kind = MouseEventKind::Down(MouseButton::Left);
        let modifiers = KeyModifiers::NONE;
        world.on(Event::Mouse(MouseEvent { kind, column, row, modifiers }));
    };
    let mut world = world();
    click(&mut world, 13, 1);
    assert_eq!(world.state.route.view, View::Jobs);
    click(&mut world, 5, 6);
    assert_eq!(world.state.jobs.cursor, 2);
    click(&mut world, 5, 6);
    assert!(world.state.job.is_some(), "the second click opens");
    world.press("Esc");
    click(&mut world, 3, 3);
    assert_eq!(world.state.jobs.order.sort, "name");
    world.press("4");
    click(&mut world, 17, 4);
    assert_eq!(world.state.timeline.current, Some(0), "the first bar of the first row");
    world.on(Event::Mouse(MouseEvent {
        kind: MouseEventKind::ScrollUp,
        column: 0,
        row: 0,
        modifiers: KeyModifiers::NONE,
    }));
    assert!(world.state.timeline.span.is_some(), "the wheel zooms");
}

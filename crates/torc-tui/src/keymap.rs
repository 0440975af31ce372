//! The keys of every screen: what the bottom line and `?` show. The first six are the most useful.

use crate::state::{Overlay, Part, State, View};

/// A key and what it does, in two or three words.
pub type Key = (&'static str, &'static str);

const OVERVIEW: &[Key] = &[
    ("Enter", "open"),
    ("R", "recover"),
    ("2", "jobs"),
    ("3", "failures"),
    (":", "go to"),
    ("?", "keys"),
    ("r", "retry as they are"),
    ("x", "cancel"),
    ("h H", "hold, release"),
    ("p m t", "priority, memory, time"),
    ("f", "fail for good"),
];
const JOBS: &[Key] = &[
    ("Enter", "open"),
    ("/", "filter"),
    ("v", "mark"),
    ("R", "recover"),
    ("Space", "peek"),
    ("?", "keys"),
    ("V", "mark all that match"),
    ("u", "take all marks back"),
    ("r", "retry as they are"),
    ("x", "cancel"),
    ("h H", "hold, release"),
    ("p m t", "priority, memory, time"),
    ("f", "fail for good (verdict)"),
    ("s S", "order by the next column, from the other end"),
    ("c", "choose columns"),
    ("l w", "log, why"),
    ("y", "copy the name"),
];
const FAILURES: &[Key] = &[
    ("R", "recover"),
    ("Enter", "open log"),
    ("j", "next"),
    ("J", "its jobs"),
    (":", "go to"),
    ("?", "keys"),
    ("r", "retry as they are"),
    ("m t", "memory, time"),
    ("f", "fail for good (verdict)"),
    ("x", "cancel"),
];
const TIMELINE: &[Key] = &[
    ("+ -", "zoom"),
    ("h l", "pan"),
    ("0", "all"),
    ("Left Right", "bar"),
    ("Enter", "open"),
    ("?", "keys"),
    ("Up Down", "scroll rows"),
];
const NODES: &[Key] = &[
    ("j k", "move"),
    ("1", "overview"),
    ("2", "jobs"),
    ("Enter", "its jobs"),
    (":", "go to"),
    ("?", "keys"),
];
const EVENTS: &[Key] = &[
    ("Enter", "open job"),
    ("/", "filter"),
    ("j k", "move"),
    ("g", "newest"),
    (":", "go to"),
    ("?", "keys"),
];
const WORKFLOWS: &[Key] = &[
    ("Enter", "open"),
    ("j k", "move"),
    ("g G", "ends"),
    (":", "go to"),
    ("Q", "quit"),
    ("?", "keys"),
];
const JOB: &[Key] = &[
    ("l", "log"),
    ("w", "why"),
    ("[ ]", "attempts"),
    ("R", "recover"),
    ("Esc", "back"),
    ("?", "keys"),
    ("d", "compare with the attempt before"),
    ("s", "standard output or error"),
    ("/ n N", "search the whole output"),
    ("r", "retry as it is"),
    ("x", "cancel"),
    ("h H", "hold, release"),
    ("p m t", "priority, memory, time"),
    ("f", "fail for good (verdict)"),
    ("o", "output in $PAGER"),
    ("e", "command in $EDITOR (a copy)"),
    ("y", "copy `torc logs ...`"),
];
const LOG: &[Key] = &[
    ("/", "search"),
    ("n N", "hits"),
    ("s", "stream"),
    ("[ ]", "attempts"),
    ("d", "compare"),
    ("?", "keys"),
    ("G", "end, and follow"),
    ("g", "beginning"),
    ("W", "wrap lines"),
    ("Left Right", "move long lines"),
    ("o", "output in $PAGER"),
    ("e", "command in $EDITOR (a copy)"),
    ("y", "copy `torc logs ...`"),
    ("Esc", "back"),
];
const COMPARE: &[Key] = &[
    ("j k", "scroll"),
    ("[ ]", "attempts"),
    ("s", "stream"),
    ("l", "log"),
    ("Esc", "back"),
    ("?", "keys"),
];
const ACT: &[Key] = &[
    ("Enter", "do it"),
    ("y", "copy"),
    ("Esc", "leave it"),
    ("Ctrl-Y", "copy"),
    ("Ctrl-U", "clear"),
    ("Ctrl-C", "quit"),
];
const TYPING: &[Key] = &[
    ("Enter", "keep"),
    ("Esc", "as before"),
    ("Ctrl-U", "clear"),
    ("Ctrl-W", "word"),
    ("Ctrl-R", "regex"),
    ("Ctrl-C", "quit"),
];
const CHOOSING: &[Key] = &[
    ("Up Down", "choose"),
    ("Enter", "go"),
    ("Esc", "close"),
    ("Ctrl-U", "clear"),
    ("Ctrl-W", "word"),
    ("Ctrl-C", "quit"),
];
const HELP: &[Key] = &[
    ("j k", "scroll"),
    ("Esc", "close"),
    ("1-7", "screens"),
    (":", "go to"),
    ("q", "close"),
    ("Q", "quit"),
];

/// Keys that hold on every screen.
pub const EVERYWHERE: &[Key] = &[
    ("1-7 Tab", "screens: Overview, Jobs, Failures, Timeline, Nodes, Events, Workflows"),
    (":", "go to a screen, workflow or job, or act"),
    ("j k Up Down", "move"),
    ("PgUp PgDn", "a page"),
    ("g G Home End", "first, last"),
    ("q Esc", "back"),
    ("Q Ctrl-C", "quit; the terminal is left as it was"),
    ("Ctrl-L", "redraw everything"),
    ("Ctrl-Z", "back to the shell; `fg` returns here"),
];

/// The keys of what is on the screen.
pub fn keys(state: &State) -> &'static [Key] {
    match &state.dialogs.overlay {
        Some(Overlay::Help { .. }) => HELP,
        Some(Overlay::Palette(_) | Overlay::Columns { .. }) => CHOOSING,
        Some(Overlay::Act(_)) => ACT,
        Some(Overlay::Input(_)) => TYPING,
        None => of_screen(state),
    }
}

/// The keys of the screen itself, for the help over it.
pub fn of_screen(state: &State) -> &'static [Key] {
    match (&state.job, state.route.view) {
        (Some(place), _) => match place.part {
            Part::Both | Part::Why => JOB,
            Part::Log => LOG,
            Part::Compare => COMPARE,
        },
        (None, View::Overview) => OVERVIEW,
        (None, View::Jobs) => JOBS,
        (None, View::Failures) => FAILURES,
        (None, View::Timeline) => TIMELINE,
        (None, View::Nodes) => NODES,
        (None, View::Events) => EVENTS,
        (None, View::Workflows) => WORKFLOWS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_screen_has_six_keys_that_fit_into_eighty_columns() {
        let all = [
            OVERVIEW, JOBS, FAILURES, TIMELINE, NODES, EVENTS, WORKFLOWS, JOB, LOG, COMPARE, ACT,
            TYPING, CHOOSING, HELP,
        ];
        for keys in all {
            assert!(keys.len() >= 6, "{keys:?}");
            let width: usize = keys[..6].iter().map(|(key, does)| key.len() + does.len() + 3).sum();
            assert!(width <= 82, "{width}: {keys:?}");
        }
    }
}

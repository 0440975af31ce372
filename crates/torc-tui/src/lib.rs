//! `torc tui`: the page's screens in a terminal.
//!
//! Three parts, so that each can be tested alone: the reducer (`State::on`) is a function of state
//! and event to state and effects, the view (`view::draw`) a function of state to cells, and the
//! loop ([`run`]) waits for what happens. Only the loop knows a terminal, a clock and a server.
//!
//! Names and output of jobs are hostile: the view puts no character on the screen that a terminal
//! would obey.

mod app;
mod feeds;
mod fetch;
mod format;
mod keymap;
mod message;
mod reduce;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod timeline;
mod view;

pub use app::{Options, run};
pub use state::Settings;
pub use theme::Theme;

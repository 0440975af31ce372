//! The mouse: click a tab, a row or the head of a column; the wheel scrolls.

use crate::message::Effect;
use crate::state::*;
use crossterm::event::{KeyCode, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// Rows that the wheel moves at once.
const WHEEL: i64 = 3;

impl State {
    pub(crate) fn on_mouse(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        match mouse.kind {
            MouseEventKind::ScrollDown => self.wheel(WHEEL),
            MouseEventKind::ScrollUp => self.wheel(-WHEEL),
            MouseEventKind::Down(MouseButton::Left) => {
                let spot = Position::new(mouse.column, mouse.row);
                // The frame put what lies on top last.
                let hit = self.frame.hits.iter().rev().find(|hit| hit.area.contains(spot)).copied();
                hit.map(|hit| self.click(hit, mouse.column)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    fn wheel(&mut self, by: i64) -> Vec<Effect> {
        if let Some(Overlay::Help { top }) = &mut self.dialogs.overlay {
            *top = (*top as i64 + by).max(0) as usize;
            return Vec::new();
        }
        if self.dialogs.overlay.is_some() {
            return Vec::new();
        }
        if let Some(part) = self.job.as_ref().map(|place| place.part) {
            return self.scroll_job(part, KeyCode::Null, by);
        }
        match self.route.view {
            View::Jobs => self.move_in_table(by),
            View::Timeline => {
                self.zoom(if by > 0 { 1.2 } else { 1.0 / 1.2 });
                Vec::new()
            }
            _ => self.move_in_list(by),
        }
    }

    fn click(&mut self, hit: Hit, column: u16) -> Vec<Effect> {
        if self.dialogs.overlay.is_some() {
            return Vec::new();
        }
        match hit.target {
            Target::Tab(view) => self.go(view),
            Target::Head(column) => match column.sort() {
                Some(sort) => self.sort_by(sort),
                None => Vec::new(),
            },
            Target::Row(index) => match self.route.view {
                // A second click opens.
                View::Jobs if self.jobs.cursor == index => {
                    self.on_key(crossterm::event::KeyEvent::from(KeyCode::Enter))
                }
                View::Jobs => self.move_in_table(index - self.jobs.cursor),
                view => {
                    let cursor = self.list_of(view).map_or(0, |list| list.cursor as i64);
                    match cursor == index {
                        true => self.on_key(crossterm::event::KeyEvent::from(KeyCode::Enter)),
                        false => self.move_in_list(index - cursor),
                    }
                }
            },
            Target::Bars(row) => {
                let now = self.timeline_now();
                let (from, until) = self.span();
                let x = i64::from(column.saturating_sub(hit.area.x));
                let at = from + (until - from) * x / i64::from(hit.area.width.max(1));
                let found = self.timeline.bars.as_ref().and_then(|bars| {
                    let near = |bar: &crate::timeline::TimelineBar| {
                        (bar.start - at).abs().min((bar.end(now) - at).abs())
                    };
                    let on_row =
                        bars.bars.iter().enumerate().filter(|(_, b)| b.row as usize == row);
                    on_row
                        .min_by_key(|(_, bar)| match bar.start <= at && at <= bar.end(now) {
                            true => 0,
                            false => near(bar),
                        })
                        .map(|(at, _)| at)
                });
                if let Some(at) = found {
                    self.choose_bar(at);
                }
                Vec::new()
            }
            Target::Body => Vec::new(),
        }
    }
}

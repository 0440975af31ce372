//! Which data a screen needs, and when to ask for it again: when a frame of the pulse says that
//! something has changed, and not more often than a feed is worth.

use crate::message::{Effect, Piece, Request};
use crate::state::{Asked, Feed, Link, PIECE, Part, State, View, WINDOW};

impl Feed {
    const ALL: [Self; 13] = [
        Self::Families,
        Self::Resources,
        Self::Failures,
        Self::Runners,
        Self::Allocations,
        Self::Timeline,
        Self::CriticalPath,
        Self::Events,
        Self::Jobs,
        Self::Workflows,
        Self::Why,
        Self::Attempts,
        Self::Log,
    ];

    /// The least time between two questions, in ms.
    const fn gap(self) -> i64 {
        match self {
            Self::Families | Self::Jobs | Self::Events | Self::Why | Self::Attempts => 1_000,
            Self::Log => 1_000,
            Self::Failures | Self::Timeline => 2_000,
            Self::Workflows => 3_000,
            Self::Resources | Self::Runners | Self::Allocations => 5_000,
            Self::CriticalPath => 10_000,
        }
    }

    /// Nothing tells when it changes, so it is asked for again as long as it is on the screen:
    /// other workflows have pulses of their own, and output of a job is no event.
    const fn is_asked_by_time(self) -> bool {
        matches!(self, Self::Workflows | Self::Log)
    }
}

impl State {
    /// The feeds of what is on the screen.
    fn needed(&self) -> Vec<Feed> {
        let mut feeds = Vec::new();
        if self.workflow.is_some() {
            feeds.push(Feed::Families);
        }
        if let Some(place) = &self.job {
            feeds.extend([Feed::Why, Feed::Attempts]);
            if place.is_running() && place.log.scroll.follows && place.part != Part::Why {
                feeds.push(Feed::Log);
            }
            return feeds;
        }
        match self.route.view {
            View::Overview => {
                feeds.extend([Feed::Resources, Feed::Failures, Feed::Runners, Feed::Allocations])
            }
            View::Jobs => feeds.push(Feed::Jobs),
            View::Failures => feeds.push(Feed::Failures),
            View::Timeline => feeds.extend([Feed::Timeline, Feed::CriticalPath]),
            View::Nodes => feeds.extend([Feed::Runners, Feed::Allocations]),
            View::Events => feeds.push(Feed::Events),
            View::Workflows => feeds.push(Feed::Workflows),
        }
        if self.workflow.is_none() {
            feeds.retain(|feed| *feed == Feed::Workflows);
        }
        feeds
    }

    /// Something has changed: everything is to be asked for again when it is needed.
    pub(crate) fn mark_stale(&mut self) {
        for feed in Feed::ALL {
            self.connection.asked.entry(feed).or_default().is_stale = true;
        }
    }

    pub(crate) fn mark_answered(&mut self, feed: Feed) {
        self.connection.asked.entry(feed).or_default().is_waiting = false;
    }

    /// When a feed is due: `None` if it is fresh, or has been asked for.
    fn due(&self, feed: Feed) -> Option<i64> {
        let asked = self.connection.asked.get(&feed).copied().unwrap_or_default();
        match asked {
            Asked { is_waiting: true, .. } => None,
            Asked { at_ms: None, .. } => Some(self.now_ms),
            Asked { at_ms: Some(at), is_stale, .. } => {
                (is_stale || feed.is_asked_by_time()).then_some(at + feed.gap())
            }
        }
    }

    /// No answer is to be had, and the pulse tells when that changes. The list of workflows has no
    /// pulse: it is asked for again.
    fn is_mute(&self, feed: Feed) -> bool {
        let has_pulse = self.workflow.is_some();
        matches!(self.connection.link, Link::Away { .. }) && (has_pulse || feed != Feed::Workflows)
    }

    /// The questions that are due. No server, no questions: the pulse tells when it is back.
    pub(crate) fn refresh(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for feed in self.needed() {
            if self.is_mute(feed) {
                continue;
            }
            if self.due(feed).is_some_and(|due| due <= self.now_ms) {
                let requests = self.requests(feed);
                let asked = Asked {
                    at_ms: Some(self.now_ms),
                    is_waiting: !requests.is_empty(),
                    is_stale: false,
                };
                self.connection.asked.insert(feed, asked);
                effects.extend(requests.into_iter().map(Effect::Fetch));
            }
        }
        effects
    }

    /// When [`crate::Event::Tick`] is wanted: a feed is due, a notice ends, or a time on the screen
    /// moves on.
    pub fn wake_at(&self) -> Option<i64> {
        let is_away = matches!(self.connection.link, Link::Away { .. });
        let feeds = self.needed().into_iter().filter(|f| !self.is_mute(*f));
        let feeds = feeds.filter_map(|feed| self.due(feed));
        let notice = self.dialogs.notice.as_ref().map(|notice| notice.until_ms);
        // A second, so that ages and times of running jobs are true; what has ended stands still.
        let second = (is_away || self.is_moving()).then_some(self.now_ms / 1000 * 1000 + 1000);
        feeds.chain(notice).chain(second).min()
    }

    /// Times on the screen pass.
    fn is_moving(&self) -> bool {
        let is_running = |view: &torc_model::api::FamiliesView| {
            !view.is_complete && view.started_ms.is_some() && !view.is_canceled
        };
        match self.route.view {
            View::Workflows => self.workflows.families.values().any(is_running),
            _ => self.overview.families.as_ref().is_some_and(is_running),
        }
    }

    fn requests(&mut self, feed: Feed) -> Vec<Request> {
        if feed == Feed::Workflows {
            return vec![Request::Workflows];
        }
        if let (Some(place), Feed::Why | Feed::Attempts | Feed::Log) = (&self.job, feed) {
            return match (feed, place.log_of()) {
                (Feed::Why, _) => vec![Request::Why(place.id)],
                (Feed::Attempts, _) => vec![Request::Attempts(place.id)],
                (_, Some(of)) if !place.log.is_waiting && place.log.is_there => {
                    let (offset, piece) = (place.log.end, Piece::After);
                    vec![Request::Log { of, offset, limit: PIECE, piece }]
                }
                _ => Vec::new(),
            };
        }
        let Some(id) = self.workflow else { return Vec::new() };
        match feed {
            Feed::Families => vec![Request::Families(id)],
            Feed::Resources => vec![Request::Resources(id)],
            Feed::Failures => vec![Request::Failures(id)],
            Feed::Runners => vec![Request::Runners(id)],
            Feed::Allocations => vec![Request::Allocations(id)],
            Feed::Timeline => vec![Request::Timeline(id)],
            Feed::CriticalPath => vec![Request::CriticalPath(id)],
            Feed::Events => {
                let newest = self.events.rows.as_ref().and_then(|rows| rows.first());
                vec![Request::Events(id, newest.map(|event| event.id))]
            }
            Feed::Jobs => {
                let visible = self.visible_windows();
                let ask = |window: &i64| Request::Jobs(self.jobs.window(id, *window));
                let requests = visible.iter().map(ask).collect();
                // What is not on the screen may be wrong by now; it is asked for when it is.
                self.jobs.windows.retain(|window, _| visible.contains(window));
                self.jobs.pending.extend(visible);
                requests
            }
            Feed::Workflows | Feed::Why | Feed::Attempts | Feed::Log => Vec::new(),
        }
    }

    /// Windows of the table that are on the screen.
    pub(crate) fn visible_windows(&self) -> Vec<i64> {
        let first = self.jobs.top.max(0);
        let rows = i64::from(self.frame.size.1).max(1);
        let last = (first + rows).min(self.jobs.total.unwrap_or(WINDOW).max(1) - 1).max(first);
        (first / WINDOW..=last / WINDOW).collect()
    }
}

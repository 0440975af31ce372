//! Actions on jobs: first what would happen, with the command that does the same, then the deed.

use crate::format::{count, quoted};
use crate::message::{Effect, Request};
use crate::state::*;
use torc_model::api::{ActRequest, ActView, ActWord};

/// The page's words for the actions.
pub const fn title(action: ActWord) -> &'static str {
    match action {
        ActWord::Retry => "Retry as they are",
        ActWord::Recover => "Recover",
        ActWord::Cancel => "Cancel",
        ActWord::Hold => "Hold",
        ActWord::Release => "Release",
        ActWord::Fail => "Fail for good",
        ActWord::Priority => "Change priority",
        ActWord::Memory => "Change memory",
        ActWord::Runtime => "Change time",
    }
}

/// What a value is called, and a first one, for actions that need it.
pub const fn value(action: ActWord) -> Option<(&'static str, &'static str)> {
    match action {
        ActWord::Priority => Some(("New priority", "10")),
        ActWord::Memory => Some(("Memory for the next attempts", "8g")),
        ActWord::Runtime => Some(("Time for the next attempts", "2h")),
        ActWord::Retry
        | ActWord::Recover
        | ActWord::Cancel
        | ActWord::Hold
        | ActWord::Release
        | ActWord::Fail => None,
    }
}

impl State {
    /// The jobs that an action is for: the open job, the marked ones, the cause group, the family
    /// or the row under the cursor.
    fn chosen(&self) -> Option<String> {
        if let Some(place) = &self.job {
            return Some(format!("id:{}", place.id));
        }
        match self.route.view {
            View::Jobs if self.jobs.marks.all => Some(self.jobs.filter.clone()),
            View::Jobs if !self.jobs.marks.jobs.is_empty() => {
                let ids: Vec<String> =
                    self.jobs.marks.jobs.iter().map(ToString::to_string).collect();
                Some(format!("id:{}", ids.join(",")))
            }
            View::Jobs => self.current_job().map(|job| format!("id:{}", job.id)),
            View::Failures => {
                let groups = self.overview.failures.as_ref()?;
                groups.get(self.failures.cursor).map(|group| group.filter.clone())
            }
            View::Overview => {
                let at = self.overview.list.cursor;
                match at.checked_sub(self.shown_groups()) {
                    None => Some(self.overview.failures.as_ref()?.get(at)?.filter.clone()),
                    Some(at) => {
                        let family = self.overview.families.as_ref()?.families.get(at)?;
                        Some(format!("family:{}", quoted(&family.name)))
                    }
                }
            }
            View::Timeline => {
                let bars = self.timeline.bars.as_ref()?;
                bars.bars.get(self.timeline.current?).map(|bar| format!("id:{}", bar.job))
            }
            View::Nodes | View::Events | View::Workflows => None,
        }
    }

    /// Asks what an action would do.
    pub(crate) fn propose(&mut self, action: ActWord) -> Vec<Effect> {
        let (Some(workflow), Some(filter)) = (self.workflow, self.chosen()) else {
            self.say("no job is chosen here");
            return Vec::new();
        };
        let value = value(action).map(|(_, first)| Editor::new(first));
        self.dialogs.overlay = Some(Overlay::Act(ActDialog {
            workflow,
            action,
            filter,
            value,
            plan: None,
            problem: None,
            is_going: false,
            turn: 0,
        }));
        self.plan_again()
    }

    /// The same after the value has changed.
    pub(crate) fn plan_again(&mut self) -> Vec<Effect> {
        self.dialogs.turn += 1;
        let (turn, by) = (self.dialogs.turn, self.settings.author.clone());
        let Some(Overlay::Act(dialog)) = &mut self.dialogs.overlay else { return Vec::new() };
        dialog.turn = turn;
        (dialog.plan, dialog.problem) = (None, None);
        vec![Effect::Fetch(Request::Act(request(dialog, true, by), turn))]
    }

    /// Does it.
    pub(crate) fn carry_out(&mut self) -> Vec<Effect> {
        self.dialogs.turn += 1;
        let (turn, by) = (self.dialogs.turn, self.settings.author.clone());
        let Some(Overlay::Act(dialog)) = &mut self.dialogs.overlay else { return Vec::new() };
        let has_work = dialog.plan.as_ref().is_some_and(|plan| plan.done > 0);
        if !has_work || dialog.is_going {
            return Vec::new();
        }
        (dialog.turn, dialog.is_going) = (turn, true);
        vec![Effect::Fetch(Request::Act(request(dialog, false, by), turn))]
    }

    pub(crate) fn on_acted(&mut self, asked: &ActRequest, turn: u64, view: ActView) -> Vec<Effect> {
        if asked.dry_run {
            if let Some(Overlay::Act(dialog)) = &mut self.dialogs.overlay
                && dialog.turn == turn
            {
                dialog.plan = Some(view);
            }
            return Vec::new();
        }
        if matches!(&self.dialogs.overlay, Some(Overlay::Act(dialog)) if dialog.turn == turn) {
            self.dialogs.overlay = None;
        }
        self.say(format!("{}: done with {}", title(asked.action), count(view.done, "job")));
        self.jobs.marks.clear();
        self.mark_stale();
        // The user wants to see what it did.
        self.connection.asked.clear();
        Vec::new()
    }

    pub(crate) fn on_act_problem(&mut self, turn: u64, message: &str) {
        match &mut self.dialogs.overlay {
            Some(Overlay::Act(dialog)) if dialog.turn == turn => {
                dialog.problem = Some(message.to_owned());
                dialog.is_going = false;
            }
            _ => self.say_bad(message.to_owned()),
        }
    }
}

fn request(dialog: &ActDialog, dry_run: bool, by: String) -> ActRequest {
    ActRequest {
        workflow_id: dialog.workflow,
        filter: dialog.filter.clone(),
        action: dialog.action,
        value: dialog.value.as_ref().map(|value| value.text.trim().to_owned()),
        dry_run,
        by: Some(by),
    }
}

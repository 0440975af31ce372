//! One action: its commands, one after the other, until one fails.

use crate::attempt::AttemptContext;
use crate::long::{self, Files};
use crate::process::{OrderRest, ProcessOrder, Sink};
use crate::supervisor::{How, ProcessExit};
use crate::sys;
use crate::token_files::TokenFile;
use torc_model::api::ActionPacket;
use torc_model::files;
use torc_model::ids::ActionId;
use torc_model::plan::ActionKind;
use torc_model::token::Grant;

/// An action that is being executed.
#[derive(Debug)]
pub struct Action {
    id: ActionId,
    commands: Vec<String>,
    next: usize,
    token: TokenFile,
}

/// How an action went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionResult {
    /// Id of the action.
    pub id: ActionId,
    /// Return code of its last command.
    pub return_code: i64,
    /// What a person should read.
    pub error: Option<String>,
}

/// What follows.
#[derive(Debug)]
pub enum AfterAction {
    /// Another command.
    Run(Box<ProcessOrder>),
    /// Nothing more.
    Done(ActionResult),
}

impl Action {
    /// Begins an action; its first process would be numbered `id`.
    pub fn begin(
        packet: ActionPacket,
        context: &AttemptContext,
        id: u64,
    ) -> (Option<Self>, AfterAction) {
        match packet.what {
            ActionKind::RunCommands { commands } => {
                let token = context.tokens.issue(&Grant::Action {
                    workflow: context.workflow_id,
                    runner: context.runner_id,
                    action: packet.id,
                });
                let mut action = Self { id: packet.id, commands, next: 0, token };
                let next = action.advance(context, id);
                (matches!(next, AfterAction::Run(_)).then_some(action), next)
            }
            ActionKind::ScheduleNodes { .. } => {
                let error = Some("this runner cannot schedule nodes".into());
                (None, AfterAction::Done(ActionResult { id: packet.id, return_code: 1, error }))
            }
        }
    }

    /// Its process has ended; a next one would be numbered `id`, unless it was told to stop.
    pub fn on_exit(
        &mut self,
        context: &AttemptContext,
        exit: &ProcessExit,
        is_stopped: bool,
        id: u64,
    ) -> AfterAction {
        let command =
            self.next.checked_sub(1).and_then(|n| self.commands.get(n)).map_or("", String::as_str);
        let failure = match &exit.how {
            How::Code(0) if !is_stopped => return self.advance(context, id),
            How::Code(0) => (i64::from(128 + libc::SIGTERM), "the runner was told to stop".into()),
            How::Code(code) => (i64::from(*code), format!("exit code {code}")),
            How::Signal(signal) => {
                (i64::from(128 + signal), format!("killed by {}", sys::signal_name(*signal)))
            }
            How::NotStarted(error) => (i64::from(error.return_code), error.message.clone()),
        };
        let (return_code, why) = failure;
        let error = Some(format!("command `{command}`: {why}"));
        AfterAction::Done(ActionResult { id: self.id, return_code, error })
    }

    fn advance(&mut self, context: &AttemptContext, id: u64) -> AfterAction {
        let Some(command) = self.commands.get(self.next) else {
            return AfterAction::Done(ActionResult { id: self.id, return_code: 0, error: None });
        };
        let path = |ending| {
            let stem = files::action_stem(context.workflow_id, self.id);
            context.output_dir.join(files::ACTIONS).join(stem + ending)
        };
        let env: Vec<(String, String)> =
            context.env.clone().into_iter().chain(context.common_env(&self.token)).collect();
        let dir = long::is_long(command, &env).then(|| path("_long"));
        let rest = OrderRest { files: Files { lists: Vec::new(), dir }, ..OrderRest::default() };
        let sink = |path| if self.next == 0 { Sink::Create(path) } else { Sink::Append(path) };
        let order = ProcessOrder {
            id,
            tag: context.tag(id),
            text: command.clone(),
            argv: Vec::new(),
            dir: None,
            stdin: None,
            env,
            stdout: sink(path(".o")),
            stderr: sink(path(".e")),
            time_limit: None,
            memory_limit: None,
            shell: context.execution.shell,
            rest: rest.boxed(),
        };
        self.next += 1;
        AfterAction::Run(Box::new(order))
    }
}

//! Notifications: messages to people when a workflow ends, fails or waits for them.

use crate::ids::WorkflowId;
use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

words! {
    /// How people are told.
    NotifyKind {
        /// An incoming webhook of Slack, or of what speaks its format (Mattermost, Rocket.Chat).
        Slack = "slack",
        /// A workflow webhook of Microsoft Teams.
        Teams = "teams",
        /// A topic of ntfy.
        Ntfy = "ntfy",
        /// Mail, through a relay without a password.
        Mail = "mail",
        /// A program on the server's machine.
        Command = "command",
    }
}

words! {
    /// What people are told of.
    NotifyEvent {
        /// Every job of a workflow has ended.
        End = "end",
        /// The first job of a run failed for good.
        Failure = "failure",
        /// A failure waits for a verdict.
        Verdict = "verdict",
    }
}

/// Asks for messages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNotification {
    /// The channel.
    pub kind: NotifyKind,
    /// Where: a URL; `mailto:TO[,TO...]?smtp=HOST:PORT&from=FROM`; or a program with its arguments as a
    /// JSON list.
    pub target: String,
    /// Of what; empty: of everything.
    #[serde(default)]
    pub events: Vec<NotifyEvent>,
    /// Only of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Loopback and private addresses, and plain http, are allowed.
    #[serde(default)]
    pub allow_private: bool,
}

/// Who is told of what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NotificationView {
    /// Id of the notification.
    pub id: i64,
    /// The channel.
    pub kind: NotifyKind,
    /// Where, without the part of a URL that is a secret.
    pub target: String,
    /// Of what; empty: of everything.
    pub events: Vec<NotifyEvent>,
    /// Only of this workflow.
    pub workflow_id: Option<WorkflowId>,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// Messages that wait.
    pub pending: i64,
    /// Messages that were given up.
    pub dead: i64,
    /// Why the last one that failed did.
    pub last_error: Option<String>,
}

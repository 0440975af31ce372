//! Running the service: reservations, limits, recovery, webhooks, health.

use crate::ids::WorkflowId;
use crate::status::{DeliveryState, ReservationStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The server's own state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `recovering` while claims are not yet served.
    pub status: String,
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: i64,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Workflows held in memory.
    pub active_workflows: i64,
}

/// Content of `server.json` in the state directory: how to reach the server that owns it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFile {
    /// Scheme, address and port, without the base path.
    pub url: String,
    /// Good for everything.
    pub token: String,
    /// Certificates that clients on this machine trust when the address is encrypted, instead of
    /// the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<std::path::PathBuf>,
    /// It lives inside a `torc run` and ends with it; another one may then take its place.
    #[serde(default)]
    pub embedded: bool,
    /// Process id.
    pub pid: i64,
    /// Host name.
    pub hostname: String,
    /// Since when, ms since 1970.
    pub started_ms: i64,
    /// Version of the program.
    pub version: String,
}

impl std::fmt::Debug for ServerFile {
    /// Without the token, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerFile")
            .field("url", &self.url)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// Asks for a pause of claims.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateReservation {
    /// `all`, `workflow:ID` or `limit:NAME`.
    #[serde(default = "all_scope")]
    pub scope: String,
    /// Who asks, for people to read.
    pub reserved_by: String,
    /// It ends by itself after this long; 600 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
}

fn all_scope() -> String {
    "all".into()
}

/// Ends a reservation before its time.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReleaseReservation {
    /// Given when it was made, so that a holder ends its own and no other. Without it the
    /// reservation is ended for its holder: for a token that is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Proves the right to renew a reservation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservationToken {
    /// Given when it was made.
    pub token: String,
    /// It ends this long from now; 600 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
}

/// A reservation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReservationView {
    /// Id of the reservation.
    pub id: i64,
    /// `all`, `workflow:ID` or `limit:NAME`.
    pub scope: String,
    /// Who holds it.
    pub reserved_by: String,
    /// Since when, ms since 1970.
    pub reserved_ms: i64,
    /// Until when at most.
    pub expires_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Where it stands.
    pub status: ReservationStatus,
    /// To renew or release it; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Attempts that still run in its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_running: Option<i64>,
}

/// A named limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// At most this many at once.
    pub max: i64,
    /// Taken now.
    pub used: i64,
}

/// Sets a named limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SetLimit {
    /// At most this many at once.
    pub max: i64,
}

/// What a recovery did or would do.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RecoveryView {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Runners found dead.
    pub runners_ended: i64,
    /// Attempts ended because their runner is gone.
    pub running_jobs_recovered: i64,
    /// Jobs that got a new attempt.
    pub retries_created: i64,
    /// Jobs whose rows did not fit together.
    pub jobs_repaired: i64,
    /// Reservations that ended.
    pub reservations_expired: i64,
    /// Runners out of contact to which nothing was done.
    pub runners_silent: i64,
    /// One line per job or runner.
    pub details: Vec<String>,
}

/// A new endpoint for webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CreateWebhook {
    /// Where to post to, `https://...`.
    pub url: String,
    /// Signs each delivery (`whsec_` and base64, or any text); generated unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Which events; empty: all. `job.run.completed`, `job.run.failed`, `job.run.skipped`,
    /// `job.pending_failed`, `job.classification_held`, `workflow.completed`.
    #[serde(default)]
    pub events: Vec<String>,
    /// Only of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Loopback and private addresses are allowed, and so is `http://`.
    #[serde(default)]
    pub allow_private: bool,
}

/// An endpoint for webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    /// Id of the webhook.
    pub id: i64,
    /// Where to.
    pub url: String,
    /// Which events; empty: all.
    pub events: Vec<String>,
    /// Only of this workflow.
    pub workflow_id: Option<WorkflowId>,
    /// Loopback and private addresses are allowed.
    pub allow_private: bool,
    /// Since when, ms since 1970.
    pub created_ms: i64,
    /// Deliveries that wait.
    pub pending: i64,
    /// Deliveries that were given up.
    pub dead: i64,
    /// To verify signatures; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A delivery to an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeliveryView {
    /// Id; `webhook-id` of every try of it is `msg_ID`.
    pub id: i64,
    /// The endpoint.
    pub webhook_id: i64,
    /// The event.
    pub event: String,
    /// The body.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// Where it stands.
    pub state: DeliveryState,
    /// How often it was tried.
    pub tries: i64,
    /// When it is tried next, ms since 1970.
    pub next_try_ms: Option<i64>,
    /// Why the last try failed.
    pub last_error: Option<String>,
    /// Since when.
    pub created_ms: i64,
    /// Delivered at.
    pub delivered_ms: Option<i64>,
}

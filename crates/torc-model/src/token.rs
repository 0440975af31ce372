//! Tokens that a server can check without a table: their content, and an HMAC over it.
//!
//! The server has one key. It gives each runner a key that is derived from it, from which the
//! runner makes a token for each attempt by itself: neither a request nor a row is needed for it.
//! What a token says is proved by the HMAC; whether its attempt is still alive is for the server to
//! look up.

use crate::ids::{ActionId, AttemptId, JobId, RunnerId, WorkflowId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt::{self, Write as _};

/// Signs tokens. On the wire it is hexadecimal text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        hex(&key.0)
    }
}

impl TryFrom<String> for Key {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mut bytes = [0; 32];
        let is_key = text.len() == 64 && text.is_ascii();
        for (n, byte) in bytes.iter_mut().enumerate().filter(|_| is_key) {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).map_err(|_| "not a key")?;
        }
        if is_key { Ok(Self(bytes)) } else { Err("not a key") }
    }
}

impl Key {
    /// The key of a server: from its owner's token and the id of its database, so that neither a
    /// new token nor a new database knows the tokens of the one before.
    pub fn of_server(owner_token: &str, database: &str) -> Self {
        Self(mac(owner_token.as_bytes(), &format!("tokens of {database}")))
    }

    /// The key with which a runner makes tokens for what it executes.
    pub fn of_runner(&self, runner: RunnerId) -> Self {
        Self(mac(&self.0, &format!("jobs of runner {runner}")))
    }

    /// The token that says this.
    pub fn sign(&self, grant: &Grant) -> String {
        let text = grant.to_string();
        let proof = hex(&mac(&self.0, &text));
        format!("{text}.{proof}")
    }

    /// What a token of a server with this key says, if the server or one of its runners made it.
    pub fn read(&self, token: &str) -> Option<Grant> {
        let (text, proof) = token.rsplit_once('.')?;
        let grant = Grant::parse(text)?;
        let key = match &grant {
            Grant::Runner { .. } => self.clone(),
            Grant::Job { runner, .. } | Grant::Action { runner, .. } => self.of_runner(*runner),
        };
        let expected = hex(&mac(&key.0, text));
        is_equal(expected.as_bytes(), proof.as_bytes()).then_some(grant)
    }
}

/// What a token is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Grant {
    /// Runners of a workflow, in allocations of this name.
    Runner {
        /// Whose jobs they may claim.
        workflow: WorkflowId,
        /// Name of the allocations in the batch system.
        allocation: String,
    },
    /// The processes of one attempt.
    Job {
        /// What they may read.
        workflow: WorkflowId,
        /// Who executes it.
        runner: RunnerId,
        /// Whose user data they may write.
        job: JobId,
        /// While this lives.
        attempt: AttemptId,
    },
    /// The commands of an action.
    Action {
        /// What they may read.
        workflow: WorkflowId,
        /// Who executes it.
        runner: RunnerId,
        /// While this is being executed.
        action: ActionId,
    },
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runner { workflow, allocation } => write!(f, "runner.{workflow}.{allocation}"),
            Self::Job { workflow, runner, job, attempt } => {
                write!(f, "job.{workflow}.{runner}.{job}.{attempt}")
            }
            Self::Action { workflow, runner, action } => {
                write!(f, "action.{workflow}.{runner}.{action}")
            }
        }
    }
}

impl Grant {
    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let numbers =
            || -> Option<Vec<i64>> { rest.split('.').map(|word| word.parse().ok()).collect() };
        match kind {
            "runner" => {
                let (workflow, allocation) = rest.split_once('.')?;
                let workflow = WorkflowId(workflow.parse().ok()?);
                Some(Self::Runner { workflow, allocation: allocation.into() })
            }
            "job" => match numbers()?[..] {
                [workflow, runner, job, attempt] => Some(Self::Job {
                    workflow: WorkflowId(workflow),
                    runner: RunnerId(runner),
                    job: JobId(job),
                    attempt: AttemptId(attempt),
                }),
                _ => None,
            },
            "action" => match numbers()?[..] {
                [workflow, runner, action] => Some(Self::Action {
                    workflow: WorkflowId(workflow),
                    runner: RunnerId(runner),
                    action: ActionId(action),
                }),
                _ => None,
            },
            _ => None,
        }
    }
}

fn mac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Takes the same time wherever the first difference is.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(attempt: i64) -> Grant {
        Grant::Job {
            workflow: WorkflowId(1),
            runner: RunnerId(2),
            job: JobId(3),
            attempt: AttemptId(attempt),
        }
    }

    #[test]
    fn a_server_reads_its_own_tokens_and_those_of_its_runners() {
        let server = Key::of_server("owner", "db");
        let runner = Grant::Runner { workflow: WorkflowId(7), allocation: "a.b-c".into() };
        assert_eq!(server.read(&server.sign(&runner)), Some(runner));
        let own = server.of_runner(RunnerId(2));
        assert_eq!(server.read(&own.sign(&job(4))), Some(job(4)));
        let action =
            Grant::Action { workflow: WorkflowId(1), runner: RunnerId(2), action: ActionId(9) };
        assert_eq!(server.read(&own.sign(&action)), Some(action));
    }

    #[test]
    fn a_token_of_another_runner_server_database_or_content_is_not_read() {
        let server = Key::of_server("owner", "db");
        let good = server.of_runner(RunnerId(2)).sign(&job(4));
        assert!(server.read(&good).is_some());
        let forged = [
            server.of_runner(RunnerId(5)).sign(&job(4)),
            server.sign(&job(4)),
            server
                .of_runner(RunnerId(2))
                .sign(&Grant::Runner { workflow: WorkflowId(1), allocation: String::new() }),
            good.replace(".4.", ".5."),
            good.replace("job.", "action."),
            good[..good.len() - 1].to_owned(),
            good.to_uppercase(),
            String::new(),
            ".".into(),
            "job....".into(),
        ];
        for token in forged {
            assert_eq!(server.read(&token), None, "{token}");
        }
        for other in [Key::of_server("owner", "db2"), Key::of_server("other", "db")] {
            assert_eq!(other.read(&good), None);
        }
    }

    #[test]
    fn a_key_travels_as_text_and_is_not_printed() {
        let key = Key::of_server("owner", "db");
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<Key>(&text).unwrap(), key);
        assert!(serde_json::from_str::<Key>("\"abc\"").is_err());
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}

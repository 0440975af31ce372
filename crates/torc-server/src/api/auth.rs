//! Who is asking: one check before every route, closed unless it opens.
//!
//! A token is good for everything, or for the calls that one workflow's runners and jobs make.
//! Which calls those are is said by each route itself, in its `security`; see `openapi.rs`.

use super::App;
use super::error::ApiError;
use super::openapi::{Access, Rules};
use crate::secret::{self, Hash};
use crate::store::read::{Reader, TokenScope};
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use torc_model::ids::{ActionId, RunnerId, WorkflowId};

/// Beyond this many remembered answers the memory is emptied; asking the database again is cheap.
const MAX_REMEMBERED: usize = 10_000;

/// Knows the tokens.
pub struct Auth {
    master: Hash,
    reader: Reader,
    /// Scopes of tokens and workflows of runners never change, so they are looked up once.
    tokens: Mutex<HashMap<Hash, TokenScope>>,
    runners: Mutex<HashMap<RunnerId, WorkflowId>>,
    /// Unknown tokens are looked up one at a time: strangers must not keep the readers busy.
    strangers: Semaphore,
}

/// Who is asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// Nobody known; only where a route is open.
    Stranger,
    /// Somebody with a token.
    Known(TokenScope),
}

impl Auth {
    /// `master` is the hash of the token that is good for everything.
    pub fn new(master: Hash, reader: Reader) -> Self {
        Self {
            master,
            reader,
            tokens: Mutex::default(),
            runners: Mutex::default(),
            strangers: Semaphore::new(1),
        }
    }

    async fn scope(&self, token: &str) -> Result<Option<TokenScope>, ApiError> {
        let hash = secret::hash(token);
        if let Some(scope) = self.remembered(&hash) {
            return Ok(Some(scope));
        }
        let _turn = self.strangers.acquire().await;
        let found = self.reader.find_token(hash).await?;
        if let Some(scope) = found {
            remember(&self.tokens, hash, scope);
        }
        Ok(found)
    }

    fn remembered(&self, hash: &Hash) -> Option<TokenScope> {
        match bool::from(hash.ct_eq(&self.master)) {
            true => Some(TokenScope::All),
            false => recall(&self.tokens, hash),
        }
    }

    /// What the token of a request is good for, if that is in memory.
    pub(super) fn known(&self, headers: &HeaderMap) -> Option<TokenScope> {
        self.remembered(&secret::hash(bearer(headers).ok()?))
    }

    async fn workflow_of_runner(&self, runner: RunnerId) -> Result<WorkflowId, ApiError> {
        if let Some(workflow) = recall(&self.runners, &runner) {
            return Ok(workflow);
        }
        let workflow = self.reader.workflow_of_runner(runner).await?;
        remember(&self.runners, runner, workflow);
        Ok(workflow)
    }
}

fn recall<K: std::hash::Hash + Eq, V: Copy>(memory: &Mutex<HashMap<K, V>>, key: &K) -> Option<V> {
    memory.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
}

fn remember<K: std::hash::Hash + Eq, V>(memory: &Mutex<HashMap<K, V>>, key: K, value: V) {
    let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
    if memory.len() >= MAX_REMEMBERED {
        memory.clear();
    }
    memory.insert(key, value);
}

/// Who makes this request, if they may; otherwise 401 or 403.
pub async fn identify(auth: &Auth, rules: &Rules, head: &Parts) -> Result<Caller, ApiError> {
    let access = access(rules, head);
    let caller = match bearer(&head.headers) {
        Ok(token) => auth.scope(token).await?.map(Caller::Known).ok_or("the token is not known"),
        Err(problem) => Err(problem),
    };
    let caller = match (caller, access) {
        (Ok(caller), _) => caller,
        (Err(_), Access::Open) => Caller::Stranger,
        (Err(problem), Access::Workflow | Access::All) => {
            return Err(ApiError::unauthorized(problem));
        }
    };
    match (caller, access) {
        (Caller::Known(TokenScope::Workflow(id)), Access::All) => Err(ApiError::forbidden(
            format!("this token is good for runners and jobs of workflow {id} only"),
        )
        .hint("use the token of the server's owner")),
        _ => Ok(caller),
    }
}

/// Unknown routes are as closed as the most closed one.
fn access(rules: &Rules, head: &Parts) -> Access {
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match head.extensions.get::<MatchedPath>() {
        Some(path) => rules.access(method, path.as_str()),
        None => Access::All,
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value,
        (None, _) => return Err("a token is needed"),
        (Some(_), Some(_)) => return Err("there is more than one `Authorization`"),
    };
    let text = value.to_str().map_err(|_| "the token is not text")?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err("`Authorization` is not `Bearer TOKEN`"),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Without the layer nobody is known.
        Ok(parts.extensions.get().copied().unwrap_or(Self::Stranger))
    }
}

impl Caller {
    /// May speak about this workflow.
    pub fn check(self, workflow: WorkflowId) -> Result<(), ApiError> {
        match self {
            Self::Known(TokenScope::All) => Ok(()),
            Self::Known(TokenScope::Workflow(own)) if own == workflow => Ok(()),
            Self::Known(TokenScope::Workflow(own)) => {
                Err(ApiError::forbidden(format!("this token is good for workflow {own} only")))
            }
            Self::Stranger => Err(ApiError::unauthorized("a token is needed")),
        }
    }

    /// The filter of a list: what was asked for, if allowed; a workflow token sees its own workflow
    /// only.
    pub fn narrow(self, asked: Option<i64>) -> Result<Option<i64>, ApiError> {
        match (self, asked) {
            (Self::Known(TokenScope::Workflow(own)), None) => Ok(Some(own.0)),
            (_, Some(id)) => self.check(WorkflowId(id)).map(|()| asked),
            (Self::Known(TokenScope::All), None) => Ok(None),
            (Self::Stranger, None) => Err(ApiError::unauthorized("a token is needed")),
        }
    }

    /// May speak about everything, so that nothing needs to be looked up.
    fn is_owner(self) -> bool {
        self == Self::Known(TokenScope::All)
    }
}

impl App {
    /// The caller may speak for this runner.
    pub(super) async fn check_runner(
        &self,
        caller: Caller,
        runner: RunnerId,
    ) -> Result<(), ApiError> {
        match caller.is_owner() {
            true => Ok(()),
            false => caller.check(self.inner.auth.workflow_of_runner(runner).await?),
        }
    }

    /// The caller may speak about this action.
    pub(super) async fn check_action(
        &self,
        caller: Caller,
        action: ActionId,
    ) -> Result<(), ApiError> {
        match caller.is_owner() {
            true => Ok(()),
            false => caller.check(self.reader().get_action(action).await?.workflow_id),
        }
    }
}

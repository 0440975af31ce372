//! Who is asking: one check before every route, closed unless it opens.
//!
//! The owner's token is good for everything. Every other token says what it is for and proves it by
//! an HMAC (see `torc_model::token`); it counts while what it is for lives. Which routes those are
//! is said by each route itself, in its `security`; see `openapi.rs`.

use super::App;
use super::error::ApiError;
use super::openapi::{Access, Rules};
use super::page_access::page_may;
use super::roles::About;
use super::sessions::Sessions;
use super::tokens::{Person, TokenScope, Tokens};
use crate::audit::Actor;
use crate::clock::now_ms;
use crate::secret::{self, Hash};
use crate::store::read::{Reader, Thing};
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;
use torc_model::api::{ErrorCode, PageScope, Role};
use torc_model::ids::{ActionId, JobId, RunnerId, WorkflowId};
use torc_model::token::{Grant, Key};

/// Beyond this many remembered answers the memory is emptied; asking the database again is cheap.
const MAX_REMEMBERED: usize = 10_000;
/// So long a runner's token counts as good without another look whether its workflow and allocation
/// are still there. Runners ask many times a second.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// Knows the tokens.
pub struct Auth {
    owner: Hash,
    key: Key,
    reader: Reader,
    /// Tokens of runners that were looked up lately, and until when that counts.
    recent: Mutex<HashMap<Hash, (WorkflowId, Instant)>>,
    /// Workflows of runners never change, so they are looked up once.
    runners: Mutex<HashMap<RunnerId, WorkflowId>>,
    /// Sessions of the page, and codes for them.
    pub(super) sessions: Sessions,
    /// Tokens of people.
    pub(super) tokens: Tokens,
}

/// What a token is good for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The owner of the server: may do everything.
    Owner,
    /// What the runners of a workflow do.
    Runner(WorkflowId),
    /// To read a workflow, and to write the user data that this job declares.
    Job(WorkflowId, JobId),
    /// To read a workflow, and to write its user data.
    Action(WorkflowId),
    /// What a page in a browser does; where, is said by the token it was made with. None: the owner's.
    Page(PageScope, Option<Person>),
    /// What the role of a person's token allows, on their side of the walls.
    Person(Person),
}

impl Scope {
    /// The one workflow it is limited to.
    fn workflow(&self) -> Option<WorkflowId> {
        match self {
            Self::Owner | Self::Page(_, None) => None,
            Self::Runner(id) | Self::Job(id, _) | Self::Action(id) => Some(*id),
            Self::Page(_, Some(person)) | Self::Person(person) => match person.scope {
                TokenScope::Workflow(id) => Some(id),
                TokenScope::User | TokenScope::Group(_) => None,
            },
        }
    }

    /// In the words of a refusal.
    fn whose(&self) -> &'static str {
        match self {
            Self::Owner => "the server's owner",
            Self::Runner(_) => "runners",
            Self::Job(..) => "a job",
            Self::Action(_) => "an action",
            Self::Page(..) => "a page",
            Self::Person(_) => "a person",
        }
    }
}

/// Travels with a request, and is told when it has shown a good token. Not with the answer: that of a
/// claim may take half a minute, and for so long its connection would count as a stranger's.
#[derive(Clone)]
pub struct Acquaintance(Arc<dyn Fn() + Send + Sync>);

impl Acquaintance {
    /// Calls this.
    pub fn new(is_known: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_known))
    }

    /// The caller of this request is known.
    pub(super) fn tell(head: &Parts) {
        if let Some(Self(is_known)) = head.extensions.get() {
            is_known();
        }
    }
}

/// Who is asking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// No token; only on routes that need none.
    Anonymous,
    /// A caller with a token.
    Known(Scope),
}

impl Auth {
    /// `owner_token` is good for everything; the others are derived from it and the id of the
    /// database.
    pub fn new(owner_token: &str, database: &str, reader: Reader) -> Self {
        Self {
            owner: secret::hash(owner_token),
            key: Key::of_server(owner_token, database),
            reader,
            recent: Mutex::default(),
            runners: Mutex::default(),
            sessions: Sessions::default(),
            tokens: Tokens::default(),
        }
    }

    /// Gives runners their keys and allocations their tokens.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// What a token is good for now. The database is asked only about tokens with a good HMAC:
    /// strangers cannot keep its readers busy.
    async fn scope(&self, token: &str) -> Result<Option<Scope>, ApiError> {
        let hash = secret::hash(token);
        if let Some(scope) = self.remembered(&hash) {
            return Ok(Some(scope));
        }
        if let Some(person) = self.tokens.find(&self.reader, &hash).await? {
            return Ok(Some(Scope::Person(person)));
        }
        if let Some((scope, made_with)) = self.sessions.scope(&self.reader, &hash).await? {
            let Some(token) = made_with else { return Ok(Some(Scope::Page(scope, None))) };
            // A session is good while the token is that it was made with.
            let person = self.tokens.by_id(&self.reader, token).await?;
            return Ok(person.map(|person| Scope::Page(scope, Some(person))));
        }
        let Some(grant) = self.key.read(token) else { return Ok(None) };
        if !self.reader.is_good(grant.clone(), now_ms()).await? {
            return Ok(None);
        }
        Ok(Some(match grant {
            Grant::Runner { workflow, .. } => {
                remember(&self.recent, hash, (workflow, Instant::now() + GOOD_FOR));
                Scope::Runner(workflow)
            }
            Grant::Job { workflow, job, .. } => Scope::Job(workflow, job),
            Grant::Action { workflow, .. } => Scope::Action(workflow),
        }))
    }

    fn remembered(&self, hash: &Hash) -> Option<Scope> {
        if bool::from(hash.ct_eq(&self.owner)) {
            return Some(Scope::Owner);
        }
        if let Some((workflow, until)) = recall(&self.recent, hash) {
            return (Instant::now() < until).then_some(Scope::Runner(workflow));
        }
        self.tokens.known(hash).map(Scope::Person)
    }

    /// What the token of a request is good for, if that is in memory.
    pub(super) fn known(&self, headers: &HeaderMap) -> Option<Scope> {
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
pub async fn identify(app: &App, rules: &Rules, head: &Parts) -> Result<Caller, ApiError> {
    let access = access(rules, head);
    let scope = match bearer(&head.headers) {
        Ok(token) => app.inner.auth.scope(token).await?.ok_or("invalid or expired token"),
        Err(problem) => Err(problem),
    };
    let (scope, runner, job, rule) = match (scope, access) {
        (Ok(scope), Access::Open) => return Ok(Caller::Known(scope)),
        (Err(_), Access::Open) => return Ok(Caller::Anonymous),
        (Err(problem), Access::Roles { .. }) => return Err(ApiError::unauthorized(problem)),
        (Ok(scope), Access::Roles { runner, job, person }) => (scope, runner, job, person),
    };
    let is_allowed = match &scope {
        Scope::Owner => true,
        Scope::Runner(_) => runner,
        Scope::Job(..) | Scope::Action(_) => job,
        Scope::Page(page, _) => {
            let path = head.extensions.get::<MatchedPath>().map_or("", |path| path.as_str());
            page_may(*page, &head.method, path)?;
            true
        }
        Scope::Person(person) => {
            person_may(person, rule.map(|rule| rule.least))?;
            true
        }
    };
    if is_allowed {
        let caller = Caller::Known(scope);
        if let (Some(person), Some(rule)) = (caller.walled(), rule) {
            check_wall(app, person, rule.about, head).await?;
        }
        return Ok(caller);
    }
    let message = format!("the token of {} is not good for this", scope.whose());
    let hint = if runner {
        "use the token of a runner or of the server's owner"
    } else {
        "use the token of the server's owner"
    };
    Err(ApiError::forbidden(message).hint(hint))
}

/// The wall before what the path names. Bodies and lists are looked at by their handlers.
async fn check_wall(
    app: &App,
    person: &Person,
    about: About,
    head: &Parts,
) -> Result<(), ApiError> {
    let (thing, only_own) = match about {
        About::Path(thing) => (thing, false),
        About::Own(thing) => (thing, true),
        About::Server | About::Named | About::List | About::Groups => return Ok(()),
    };
    app.check_path(person, thing, path_id(head)?, only_own).await
}

/// The `{id}` of the path, as plain digits: another spelling of a number must not be a way around.
fn path_id(head: &Parts) -> Result<i64, ApiError> {
    let template = head.extensions.get::<MatchedPath>().map_or("", |path| path.as_str());
    let at = template.split('/').position(|part| part == "{id}");
    let text = at.and_then(|at| head.uri.path().split('/').nth(at)).unwrap_or_default();
    text.parse().map_err(|_| {
        let message = format!("`{text}` is not an id");
        ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidPath, message)
    })
}

fn person_may(person: &Person, least: Option<Role>) -> Result<(), ApiError> {
    match least {
        Some(least) if person.role >= least => Ok(()),
        // The owner's word reaches further than a role only on paths that do not exist.
        Some(least) => {
            let message =
                format!("this needs the role `{least}`; your token has the role `{}`", person.role);
            Err(ApiError::forbidden(message).hint("ask an admin of the server for another token"))
        }
        None if person.role == Role::Admin => Ok(()),
        None => Err(ApiError::forbidden("a token of a person is not good for this")),
    }
}

/// Unknown routes are as closed as the most closed one.
fn access(rules: &Rules, head: &Parts) -> Access {
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    match head.extensions.get::<MatchedPath>() {
        Some(path) => rules.access(method, path.as_str()),
        None => Access::OWNER,
    }
}

/// The header of the page: proxies of Open OnDemand and JupyterHub use `Authorization` themselves.
const PAGE_HEADER: &str = "x-torc-token";

fn bearer(headers: &HeaderMap) -> Result<&str, &'static str> {
    if let Some(value) = headers.get(PAGE_HEADER) {
        return value.to_str().map(str::trim).map_err(|_| "the token is not text");
    }
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
        // Without the layer there is no identity.
        Ok(parts.extensions.get().cloned().unwrap_or(Self::Anonymous))
    }
}

impl Caller {
    fn scope(&self) -> Result<&Scope, ApiError> {
        match self {
            Self::Known(scope) => Ok(scope),
            Self::Anonymous => Err(ApiError::unauthorized("a token is needed")),
        }
    }

    /// May speak about this workflow.
    pub fn check(&self, workflow: WorkflowId) -> Result<(), ApiError> {
        match self.scope()?.workflow() {
            Some(own) if own != workflow => {
                Err(ApiError::forbidden(format!("this token is good for workflow {own} only")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// May have to do with pool runners, which serve many workflows.
    pub fn check_pools(&self) -> Result<(), ApiError> {
        match self.scope()?.workflow() {
            Some(own) => {
                let message = format!("this token is good for workflow {own} only");
                Err(ApiError::forbidden(message).hint(format!("use `torc runner {own}`")))
            }
            None => Ok(()),
        }
    }

    /// A page in a browser is asking.
    pub fn is_page(&self) -> bool {
        matches!(self, Self::Known(Scope::Page(..)))
    }

    /// The job whose attempt is asking.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Known(Scope::Job(_, job)) => Some(*job),
            Self::Known(
                Scope::Owner
                | Scope::Runner(_)
                | Scope::Action(_)
                | Scope::Page(..)
                | Scope::Person(_),
            )
            | Self::Anonymous => None,
        }
    }

    /// May add jobs in the name of this job; whether it is the job itself that asks.
    pub fn adds_for(&self, job: JobId) -> Result<bool, ApiError> {
        match self.scope()? {
            Scope::Owner | Scope::Person(_) => Ok(false),
            Scope::Job(_, own) if *own == job => Ok(true),
            Scope::Job(_, own) => {
                Err(ApiError::forbidden(format!("this token adds jobs for job {own} only")))
            }
            scope @ (Scope::Runner(_) | Scope::Action(_) | Scope::Page(..)) => {
                Err(ApiError::forbidden(format!("the token of {} adds no jobs", scope.whose())))
            }
        }
    }

    /// The filter of a list: what was asked for, if allowed; other tokens than the owner's see
    /// their own workflow only.
    pub fn narrow(&self, asked: Option<i64>) -> Result<Option<i64>, ApiError> {
        match (self.scope()?.workflow(), asked) {
            (Some(own), None) => Ok(Some(own.0)),
            (_, Some(id)) => self.check(WorkflowId(id)).map(|()| asked),
            (None, None) => Ok(None),
        }
    }

    /// May speak about everything, so that nothing needs to be looked up.
    fn is_owner(&self) -> bool {
        match self {
            Self::Known(Scope::Owner) => true,
            Self::Known(Scope::Person(person)) => person.role == Role::Admin,
            Self::Known(_) | Self::Anonymous => false,
        }
    }
}

impl App {
    /// Who changes something, for the audit log: people, the server's owner, and pages.
    pub(super) fn actor(&self, caller: &Caller, head: &Parts) -> Option<Actor> {
        if !Actor::is_of_people(head) {
            return None;
        }
        let (user, token) = match caller {
            Caller::Known(Scope::Person(person) | Scope::Page(_, Some(person))) => {
                (person.user.to_string(), Some(person.token))
            }
            Caller::Known(Scope::Owner) => ("owner".to_owned(), None),
            Caller::Known(Scope::Page(_, None)) => ("page".to_owned(), None),
            Caller::Known(Scope::Runner(_) | Scope::Job(..) | Scope::Action(_))
            | Caller::Anonymous => return None,
        };
        Some(Actor::new(head, user, token))
    }

    /// The caller may speak for this runner.
    pub(super) async fn check_runner(
        &self,
        caller: &Caller,
        runner: RunnerId,
    ) -> Result<(), ApiError> {
        if caller.is_owner() {
            return Ok(());
        }
        let workflow = self.inner.auth.workflow_of_runner(runner).await?;
        match self.check(caller, workflow).await {
            Err(_) if caller.walled().is_some() => Err(Thing::Runner.not_found(runner.0).into()),
            checked => checked,
        }
    }

    /// The caller may speak about this action.
    pub(super) async fn check_action(
        &self,
        caller: &Caller,
        action: ActionId,
    ) -> Result<(), ApiError> {
        match caller.is_owner() {
            true => Ok(()),
            false => caller.check(self.reader().get_action(action).await?.workflow_id),
        }
    }
}

/// The hash of the token of a request.
pub(super) fn token_hash(headers: &HeaderMap) -> Option<Hash> {
    Some(secret::hash(bearer(headers).ok()?))
}

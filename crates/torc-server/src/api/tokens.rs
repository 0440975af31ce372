//! Tokens of people: made, listed, given another secret and ended while the server runs.
//!
//! The server is the only writer of the table, so what it has in memory is what counts.

use super::Json;
use super::error::{ApiError, check_paging};
use super::extract::{Body, Path, Query};
use super::openapi::Refusals;
use super::{Answer, App, to_the_end};
use crate::clock::now_ms;
use crate::secret::{self, Hash};
use crate::store::read::Reader;
use axum::extract::State;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::RwLock;
use torc_model::api::{AuditView, CreateToken, Page, Role, TokenCreated, TokenView};
use torc_model::ids::WorkflowId;
use utoipa::IntoParams;

/// The tokens by the hash of their secret; read from the database at the first question.
#[derive(Default)]
pub struct Tokens {
    live: RwLock<Option<HashMap<String, Arc<Known>>>>,
}

/// A token that the server knows.
#[derive(Debug)]
struct Known {
    view: TokenView,
    user: Arc<str>,
    /// When it was last used; 0: not since the start.
    used_ms: AtomicI64,
    /// What the database knows of that.
    noted_ms: AtomicI64,
}

/// Whose token a request has. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    /// The token's id.
    pub token: i64,
    /// The user.
    pub user: Arc<str>,
    /// What it is good for.
    pub role: Role,
    /// The workflows that the token is good for.
    pub scope: TokenScope,
}

/// In which workflows a token is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenScope {
    /// In all that its user may see.
    User,
    /// In this one, of any owner.
    Workflow(WorkflowId),
    /// In those of this group, of any owner.
    Group(i64),
}

impl Known {
    fn new(view: TokenView) -> Arc<Self> {
        let user = view.user.as_str().into();
        Arc::new(Self { view, user, used_ms: AtomicI64::new(0), noted_ms: AtomicI64::new(0) })
    }

    fn is_good(&self, now: i64) -> bool {
        self.view.expires_ms.is_none_or(|expires| expires > now)
    }

    fn person(&self, now: i64) -> Option<Person> {
        let TokenView { id, role, workflow_id, access_group_id, .. } = self.view;
        let scope = match (workflow_id, access_group_id) {
            (Some(workflow), _) => TokenScope::Workflow(workflow),
            (None, Some(group)) => TokenScope::Group(group),
            (None, None) => TokenScope::User,
        };
        self.is_good(now).then(|| Person { token: id, user: self.user.clone(), role, scope })
    }

    fn view(&self) -> TokenView {
        let used = Some(self.used_ms.load(Ordering::Relaxed)).filter(|used| *used > 0);
        TokenView { last_used_ms: self.view.last_used_ms.max(used), ..self.view.clone() }
    }
}

impl Tokens {
    /// Whose token it is, while it is good.
    pub async fn find(&self, reader: &Reader, hash: &Hash) -> Result<Option<Person>, ApiError> {
        if let Some(live) = &*self.live.read().await {
            return Ok(found(live, hash));
        }
        self.load(reader).await?;
        Ok(self.live.read().await.as_ref().and_then(|live| found(live, hash)))
    }

    async fn load(&self, reader: &Reader) -> Result<(), ApiError> {
        if self.live.read().await.is_some() {
            return Ok(());
        }
        // The lock is held while the rows are read: a token that is made meanwhile comes after.
        let mut live = self.live.write().await;
        if live.is_none() {
            let rows = reader.tokens().await?.into_iter();
            *live = Some(rows.map(|(hash, view)| (hash, Known::new(view))).collect());
        }
        Ok(())
    }

    /// The same without waiting, if the tokens are in memory.
    pub fn known(&self, hash: &Hash) -> Option<Person> {
        found(self.live.try_read().ok()?.as_ref()?, hash)
    }

    /// Whose token this is, while it is good.
    pub async fn by_id(&self, reader: &Reader, id: i64) -> Result<Option<Person>, ApiError> {
        self.load(reader).await?;
        let live = self.live.read().await;
        let mut all = live.iter().flat_map(HashMap::values);
        Ok(all.find(|known| known.view.id == id).and_then(|known| known.person(now_ms())))
    }

    /// Whether a token that was found before is still good.
    pub async fn is_good(&self, id: i64) -> bool {
        let live = self.live.read().await;
        let now = now_ms();
        let mut all = live.iter().flat_map(HashMap::values);
        all.any(|known| known.view.id == id && known.is_good(now))
    }

    /// A group is gone, and with it the tokens that were good for it only.
    pub async fn reload(&self) {
        *self.live.write().await = None;
    }

    /// Tokens that were used since this was last asked, and when.
    pub async fn take_uses(&self) -> Vec<(i64, i64)> {
        let live = self.live.read().await;
        let is_new = |known: &&Arc<Known>| {
            let used = known.used_ms.load(Ordering::Relaxed);
            known.noted_ms.swap(used, Ordering::Relaxed) != used
        };
        let all = live.iter().flat_map(HashMap::values).filter(is_new);
        all.map(|known| (known.view.id, known.used_ms.load(Ordering::Relaxed))).collect()
    }

    async fn put(&self, hash: &Hash, view: TokenView) {
        if let Some(live) = &mut *self.live.write().await {
            live.retain(|_, known| known.view.id != view.id);
            live.insert(secret::hex(hash), Known::new(view));
        }
    }

    async fn remove(&self, id: i64) {
        if let Some(live) = &mut *self.live.write().await {
            live.retain(|_, known| known.view.id != id);
        }
    }
}

fn found(live: &HashMap<String, Arc<Known>>, hash: &Hash) -> Option<Person> {
    if live.is_empty() {
        return None;
    }
    let known = live.get(&secret::hex(hash))?;
    let now = now_ms();
    let person = known.person(now)?;
    known.used_ms.store(now, Ordering::Relaxed);
    Some(person)
}

fn new_secret() -> Result<(String, Hash), ApiError> {
    let token = secret::new_token().map_err(|error| {
        tracing::error!(%error, "no randomness");
        ApiError::internal()
    })?;
    let hash = secret::hash(&token);
    Ok((token, hash))
}

/// Makes a token. Its secret is in this answer and nowhere else.
#[utoipa::path(
    post,
    path = "/tokens",
    operation_id = "create_token",
    tag = "tokens",
    request_body = CreateToken,
    responses((status = 200, description = "The token with its secret.", body = TokenCreated), Refusals)
)]
pub async fn create_token(
    State(app): State<App>,
    Body(request): Body<CreateToken>,
) -> Answer<TokenCreated> {
    let (token, hash) = new_secret()?;
    let view = app.store().create_token(request, hash).await?;
    app.inner.auth.tokens.put(&hash, view.clone()).await;
    Ok(Json(TokenCreated { token, view }))
}

/// Lists the tokens, without secrets.
#[utoipa::path(
    get,
    path = "/tokens",
    operation_id = "list_tokens",
    tag = "tokens",
    responses((status = 200, description = "Every token that was not revoked.", body = Page<TokenView>), Refusals)
)]
pub async fn list_tokens(State(app): State<App>) -> Answer<Page<TokenView>> {
    let mut all: Vec<TokenView> =
        app.reader().tokens().await?.into_iter().map(|(_, view)| view).collect();
    if let Some(live) = &*app.inner.auth.tokens.live.read().await {
        for view in &mut all {
            if let Some(known) = live.values().find(|known| known.view.id == view.id) {
                *view = known.view();
            }
        }
    }
    Ok(Json(Page::whole(all)))
}

/// Gives a token another secret; the old one ends at once.
#[utoipa::path(
    post,
    path = "/tokens/{id}/rotate",
    operation_id = "rotate_token",
    tag = "tokens",
    params(("id" = i64, Path, description = "The token.")),
    responses((status = 200, description = "The token with its new secret.", body = TokenCreated), Refusals)
)]
pub async fn rotate_token(State(app): State<App>, Path(id): Path<i64>) -> Answer<TokenCreated> {
    to_the_end(async move {
        let (token, hash) = new_secret()?;
        let view = app.store().rotate_token(id, hash).await?;
        app.inner.auth.tokens.put(&hash, view.clone()).await;
        app.inner.auth.sessions.end_those_of(id).await;
        Ok(Json(TokenCreated { token, view }))
    })
    .await
}

/// Ends a token at once.
#[utoipa::path(
    delete,
    path = "/tokens/{id}",
    operation_id = "revoke_token",
    tag = "tokens",
    params(("id" = i64, Path, description = "The token.")),
    responses((status = 200, description = "The token that ended.", body = TokenView), Refusals)
)]
pub async fn revoke_token(State(app): State<App>, Path(id): Path<i64>) -> Answer<TokenView> {
    to_the_end(async move {
        let view = app.store().revoke_token(id).await?;
        app.inner.auth.tokens.remove(id).await;
        Ok(Json(view))
    })
    .await
}

/// Which entries of the audit log.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only of this user.
    pub user: Option<String>,
    /// Only those before this one.
    pub before: Option<i64>,
    /// How many at most; 1000 unless given.
    pub limit: Option<i64>,
}

/// Who changed what, the newest first.
#[utoipa::path(
    get,
    path = "/server/audit",
    operation_id = "list_audit",
    tag = "server",
    params(AuditQuery),
    responses((status = 200, description = "Changes that people made.", body = Page<AuditView>), Refusals)
)]
pub async fn list_audit(
    State(app): State<App>,
    Query(query): Query<AuditQuery>,
) -> Answer<Page<AuditView>> {
    let (_, limit) = check_paging(None, query.limit)?;
    Ok(Json(Page::whole(app.reader().audit(query.user, query.before, limit).await?)))
}

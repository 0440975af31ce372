//! Sessions of the page: a code that is good once is exchanged for a token that only the page has.
//!
//! The code travels in the fragment of a link, which browsers never send. It is kept in memory
//! only: a restart makes it void, and `torc ui` makes another.

use super::Json;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Body, Path};
use super::openapi::Refusals;
use super::{Answer, App};
use crate::clock::now_ms;
use crate::secret::{self, Hash};
use crate::store::read::Reader;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::RwLock;
use torc_model::api::{
    CreateUiCode, CreateUiSession, ErrorCode, Page, PageScope, UiCode, UiSessionCreated,
    UiSessionView,
};

/// A code is good this long.
const CODE_MS: i64 = 10 * 60 * 1000;
/// Codes that wait at most; the oldest go first.
const MAX_CODES: usize = 100;
const SESSION_SECONDS: i64 = 12 * 3600;
const REMEMBERED_SECONDS: i64 = 7 * 24 * 3600;

/// Codes that wait, and the sessions.
#[derive(Default)]
pub struct Sessions {
    codes: Mutex<Vec<(Hash, Code)>>,
    /// By the hash of their token; read from the database at the first question.
    live: RwLock<Option<HashMap<String, CachedSession>>>,
}

/// A session, and the person's token that it was made with; None: the owner's.
type CachedSession = (UiSessionView, Option<i64>);

#[derive(Clone)]
struct Code {
    expires_ms: i64,
    scope: PageScope,
    label: Option<String>,
    made_with: Option<i64>,
}

impl Sessions {
    /// What the session with this token may do, and with which person's token it was made.
    pub async fn scope(
        &self,
        reader: &Reader,
        hash: &Hash,
    ) -> Result<Option<(PageScope, Option<i64>)>, ApiError> {
        Ok(self.find(reader, hash).await?.map(|(session, made_with)| (session.scope, made_with)))
    }

    async fn find(&self, reader: &Reader, hash: &Hash) -> Result<Option<CachedSession>, ApiError> {
        let now = now_ms();
        let is_good = |session: &&CachedSession| session.0.expires_ms > now;
        if let Some(live) = &*self.live.read().await {
            return Ok(live.get(&secret::hex(hash)).filter(is_good).cloned());
        }
        let mut live = self.live.write().await;
        let all = live.get_or_insert(reader.page_sessions(now).await?.into_iter().collect());
        Ok(all.get(&secret::hex(hash)).filter(is_good).cloned())
    }

    /// Whether the session with this token is not over.
    pub async fn is_live(&self, reader: &Reader, hash: &Hash) -> bool {
        matches!(self.find(reader, hash).await, Ok(Some(_)))
    }

    /// Ends the sessions and voids the codes that a person's token made; their rows are gone.
    pub async fn end_those_of(&self, token: i64) {
        self.void_codes_of(token);
        if let Some(live) = &mut *self.live.write().await {
            live.retain(|_, (_, made_with)| *made_with != Some(token));
        }
    }

    fn void_codes_of(&self, token: i64) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, code)| code.made_with != Some(token));
    }

    fn add_code(&self, hash: Hash, code: Code) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, code)| code.expires_ms > now_ms());
        if codes.len() >= MAX_CODES {
            codes.remove(0);
        }
        codes.push((hash, code));
    }

    /// The code is gone whether it was good or not.
    fn take_code(&self, hash: &Hash) -> Option<Code> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = codes.iter().position(|(known, _)| known == hash)?;
        let (_, code) = codes.remove(at);
        (code.expires_ms > now_ms()).then_some(code)
    }
}

fn no_randomness(error: getrandom::Error) -> ApiError {
    tracing::error!(%error, "no randomness");
    ApiError::internal()
}

/// Makes a code that opens the page once.
#[utoipa::path(
    post,
    path = "/ui_codes",
    operation_id = "create_ui_code",
    tag = "page",
    request_body = CreateUiCode,
    responses((status = 200, description = "The code.", body = UiCode), Refusals)
)]
pub async fn create_code(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<CreateUiCode>,
) -> Answer<UiCode> {
    let code = secret::new_token().map_err(no_randomness)?;
    let expires_ms = now_ms() + CODE_MS;
    let waiting = Code {
        expires_ms,
        scope: request.scope,
        label: request.label,
        made_with: caller.person().map(|person| person.token),
    };
    app.inner.auth.sessions.add_code(secret::hash(&code), waiting);
    let socket = app.inner.socket.as_ref().map(|path| path.display().to_string());
    Ok(Json(UiCode { code, expires_ms, socket }))
}

/// Exchanges a code for a session.
#[utoipa::path(
    post,
    path = "/ui_sessions",
    operation_id = "create_ui_session",
    tag = "page",
    request_body = CreateUiSession,
    responses((status = 200, description = "The session and its token.", body = UiSessionCreated), Refusals),
    security(())
)]
pub async fn create_session(
    State(app): State<App>,
    Body(request): Body<CreateUiSession>,
) -> Answer<UiSessionCreated> {
    let sessions = &app.inner.auth.sessions;
    let code = sessions.take_code(&secret::hash(&request.code)).ok_or_else(|| {
        ApiError::new(
            StatusCode::UNAUTHORIZED,
            ErrorCode::CodeUsed,
            "this link was used, or is too old",
        )
        .hint("`torc ui` makes another")
    })?;
    let token = secret::new_token().map_err(no_randomness)?;
    let hash = secret::hash(&token);
    let seconds = if request.remember { REMEMBERED_SECONDS } else { SESSION_SECONDS };
    let Code { scope, label, made_with, .. } = code;
    if let Some(token) = made_with
        && !app.inner.auth.tokens.is_good(token).await
    {
        let message = "the token that this link was made with has ended";
        return Err(ApiError::unauthorized(message));
    }
    let session = app.store().create_page_session(hash, scope, label, seconds, made_with).await?;
    let mut live = sessions.live.write().await;
    if let Some(live) = &mut *live {
        live.insert(secret::hex(&hash), (session.clone(), made_with));
    }
    Ok(Json(UiSessionCreated { token, session }))
}

/// Lists the sessions of the page.
#[utoipa::path(
    get,
    path = "/ui_sessions",
    operation_id = "list_ui_sessions",
    tag = "page",
    responses((status = 200, description = "Every session that is not over.", body = Page<UiSessionView>), Refusals)
)]
pub async fn list_sessions(State(app): State<App>) -> Answer<Page<UiSessionView>> {
    let all = app.reader().page_sessions(now_ms()).await?;
    Ok(Json(Page::whole(all.into_iter().map(|(_, (session, _))| session).collect())))
}

/// Ends a session of the page.
#[utoipa::path(
    delete,
    path = "/ui_sessions/{id}",
    operation_id = "delete_ui_session",
    tag = "page",
    params(("id" = i64, Path, description = "The session.")),
    responses((status = 200, description = "It is over.", body = Object), Refusals)
)]
pub async fn delete_session(
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Answer<serde_json::Value> {
    app.store().delete_page_session(id).await?;
    let mut live = app.inner.auth.sessions.live.write().await;
    if let Some(live) = &mut *live {
        live.retain(|_, (session, _)| session.id != id);
    }
    Ok(Json(serde_json::json!({})))
}

async fn current(
    app: &App,
    caller: Caller,
    headers: &HeaderMap,
) -> Result<UiSessionView, ApiError> {
    let none = || ApiError::not_found("this token is not a session of the page");
    let Caller::Known(super::auth::Scope::Page(..)) = caller else {
        return Err(none());
    };
    let hash = super::auth::token_hash(headers).ok_or_else(none)?;
    app.inner
        .auth
        .sessions
        .find(app.reader(), &hash)
        .await?
        .map(|(session, _)| session)
        .ok_or_else(none)
}

/// The session that asks.
#[utoipa::path(
    get,
    path = "/ui_sessions/current",
    operation_id = "get_current_ui_session",
    tag = "page",
    responses((status = 200, description = "The session.", body = UiSessionView), Refusals)
)]
pub async fn get_current_session(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
) -> Answer<UiSessionView> {
    Ok(Json(current(&app, caller, &headers).await?))
}

/// Ends the session that asks.
#[utoipa::path(
    delete,
    path = "/ui_sessions/current",
    operation_id = "delete_current_ui_session",
    tag = "page",
    responses((status = 200, description = "It is over.", body = Object), Refusals)
)]
pub async fn delete_current_session(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
) -> Answer<serde_json::Value> {
    let id = current(&app, caller, &headers).await?.id;
    delete_session(State(app), Path(id)).await
}

//! What handlers take from a request, with refusals in our own form.

use super::error::ApiError;
use super::json_place::field_at;
use crate::blocking::blocking;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use torc_model::api::ErrorCode;

/// Largest body of most requests.
pub const SMALL: usize = 8 << 20;
/// Largest body with a whole workflow.
pub const LARGE: usize = 256 << 20;
/// Parsing more than this would keep other requests waiting, so it goes to a thread of its own.
const PARSE_INLINE: usize = 256 << 10;
/// A body that is too large is read on for this long, so that its sender gets to see the answer.
const DRAIN: usize = 64 << 20;

/// The body as JSON, at most `MAX` bytes.
pub struct Body<T, const MAX: usize = SMALL>(pub T);

impl<S, T, const MAX: usize> FromRequest<S> for Body<T, MAX>
where
    S: Send + Sync,
    T: DeserializeOwned + Send + 'static,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        check_content_type(request.headers())?;
        let bytes = read_body(request, MAX).await?;
        parse(bytes).await.map(Self)
    }
}

/// The body as JSON; nothing or `null` stands for the defaults.
pub struct OptionalBody<T>(pub T);

impl<S, T> FromRequest<S> for OptionalBody<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Default + Send + 'static,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let typed = check_content_type(request.headers());
        let bytes = read_body(request, SMALL).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        typed?;
        match bytes.trim_ascii() {
            b"null" => Ok(Self(T::default())),
            _ => parse(bytes).await.map(Self),
        }
    }
}

async fn read_body(request: Request, max: usize) -> Result<Vec<u8>, ApiError> {
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let mut stream = request.into_body().into_data_stream();
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0usize).min(SMALL));
    let mut seen = 0usize;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            ApiError::new(
                StatusCode::BAD_REQUEST,
                ErrorCode::IncompleteBody,
                "the body broke off before its end",
            )
        })?;
        seen += chunk.len();
        if seen <= max {
            bytes.extend_from_slice(&chunk);
        } else if seen > max + DRAIN {
            break;
        }
    }
    if seen > max {
        let message = format!("the body is larger than {} MiB", max >> 20);
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BodyTooLarge, message)
            .hint("send the same in several requests"));
    }
    Ok(bytes)
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let essence = value
        .to_str()
        .ok()
        .and_then(|v| v.split(';').next())
        .map(|v| v.trim().to_ascii_lowercase());
    match essence.as_deref() {
        Some("application/json") => Ok(()),
        Some(other) if other.starts_with("application/") && other.ends_with("+json") => Ok(()),
        _ => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorCode::UnsupportedMediaType,
            "the body is not JSON",
        )
        .hint("send `Content-Type: application/json`")),
    }
}

async fn parse<T: DeserializeOwned + Send + 'static>(bytes: Vec<u8>) -> Result<T, ApiError> {
    if bytes.len() <= PARSE_INLINE {
        return parse_now(&bytes);
    }
    blocking(move || parse_now(&bytes)).await.unwrap_or_else(|_| Err(ApiError::internal()))
}

fn parse_now<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let invalid = |error| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            ErrorCode::InvalidJson,
            format!("the body is not valid JSON: {error}"),
        )
    };
    // The library would take a list for an object, field by field.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        serde_json::from_slice::<serde_json::Value>(bytes).map_err(invalid)?;
        return Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCode::InvalidBody,
            "the body is not a JSON object",
        ));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => wrong_field(bytes, &error),
        _ => invalid(error),
    })
}

fn wrong_field(bytes: &[u8], error: &serde_json::Error) -> ApiError {
    let refusal = ApiError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::InvalidField,
        format!("wrong body: {error}"),
    );
    match field_at(bytes, error.line(), error.column()) {
        Some(field) => refusal.field(field),
        None => refusal,
    }
}

/// The query string. Repeated keys make a list; unknown keys are refused.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let text = parts.uri.query().unwrap_or_default();
        refuse_empty(text)?;
        read(text).map(Self).map_err(|message| {
            let is_wrong = |part: &str| read::<T>(part).is_err_and(|said| said == message);
            let refusal = ApiError::new(
                StatusCode::BAD_REQUEST,
                ErrorCode::InvalidQuery,
                match message.as_str() {
                    "invalid digit found in string" => "expected a whole number",
                    said => said,
                },
            );
            // The library does not say where it was; a pair that is wrong is so by itself.
            match text.split('&').find(|pair| is_wrong(pair)) {
                Some(pair) if !is_wrong("") => {
                    refusal.field(pair.split('=').next().unwrap_or_default())
                }
                _ => refusal,
            }
        })
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, String> {
    serde_html_form::from_str(query).map_err(|error| error.to_string())
}

/// `?limit=` says nothing: it is refused instead of being taken for a filter that was not given.
fn refuse_empty(query: &str) -> Result<(), ApiError> {
    let empty = query
        .split('&')
        .find(|pair| !pair.is_empty() && !pair.contains('=') || pair.ends_with('='));
    match empty.map(|pair| pair.trim_end_matches('=')) {
        Some(name) => Err(ApiError::bad_query(name, format!("`{name}` has no value"))
            .hint("leave it out, or give it a value")),
        None => Ok(()),
    }
}

/// Numbers in the path.
pub struct Path<T>(pub T);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(error) => {
                let message = format!("the path is wrong: {}", error.body_text());
                Err(ApiError::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidPath, message)
                    .hint("ids are whole numbers"))
            }
        }
    }
}

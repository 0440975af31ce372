//! The OpenAPI document, made from the handlers, and what it says about who may call what.
//!
//! A route's `security` in the document is not only text: `Access` is read from it.

use super::roles;
use super::router::{self, Route};
use axum::http::{Method, header};
use axum::response::IntoResponse;
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};
use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr};
use utoipa::{IntoResponses, Modify, OpenApi as _};

/// The name of our security scheme; also used by the `security` of each route.
const SCHEME: &str = "token";
/// The roles in `security` of tokens other than the owner's.
const RUNNER_ROLE: &str = "runner";
const JOB_ROLE: &str = "job";

/// Who may call a route. The owner may call every route. That a runner's or job's token is of the
/// right workflow is for the handler to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// No token is needed.
    Open,
    /// The owner, and tokens with one of these roles.
    Roles {
        /// Tokens of runners.
        runner: bool,
        /// Tokens of attempts and actions.
        job: bool,
        /// What tokens of people need; None: no person's is good.
        person: Option<roles::Rule>,
    },
}

impl Access {
    /// Only the owner.
    pub const OWNER: Self = Self::Roles { runner: false, job: false, person: None };
}

/// Who may call what.
pub struct Rules {
    by_path: HashMap<String, Vec<(Method, Rule)>>,
}

/// What the document says of a handler, and who may call it: found out when it is called first,
/// because a server that answers a few calls only must not put the whole document together for
/// them.
struct Rule {
    operation: fn() -> Operation,
    access: OnceLock<Access>,
}

impl Rules {
    /// As the handlers of these routes say.
    pub fn of(table: &[Route]) -> Self {
        let rule = |operation| Rule { operation, access: OnceLock::new() };
        let rules = |route: &Route| {
            route
                .operations
                .iter()
                .map(|(method, operation)| (method_of(method), rule(*operation)))
                .collect()
        };
        Self { by_path: table.iter().map(|route| (route.full_path(), rules(route))).collect() }
    }

    /// Who may call this; what is not in the document is closed.
    pub fn access(&self, method: &Method, path: &str) -> Access {
        let rule =
            self.by_path.get(path).and_then(|rules| rules.iter().find(|(of, _)| of == method));
        let Some((_, rule)) = rule else { return Access::OWNER };
        *rule.access.get_or_init(|| {
            // The document's own structs keep their content private; their JSON does not.
            let operation = (rule.operation)();
            let person = operation.operation_id.as_deref().and_then(roles::rule);
            let security = serde_json::to_value(operation.security).unwrap_or_default();
            access_of(&security, person)
        })
    }
}

fn method_of(method: &HttpMethod) -> Method {
    match method {
        HttpMethod::Get => Method::GET,
        HttpMethod::Post => Method::POST,
        HttpMethod::Put => Method::PUT,
        HttpMethod::Delete => Method::DELETE,
        HttpMethod::Options => Method::OPTIONS,
        HttpMethod::Head => Method::HEAD,
        HttpMethod::Patch => Method::PATCH,
        HttpMethod::Trace => Method::TRACE,
    }
}

/// `[]` or `[{}]`: open. A list of roles: those too. Everything else: the owner, and people.
fn access_of(security: &serde_json::Value, person: Option<roles::Rule>) -> Access {
    let Some(requirements) = security.as_array() else {
        return Access::Roles { runner: false, job: false, person };
    };
    if requirements.iter().all(|r| r.as_object().is_some_and(serde_json::Map::is_empty)) {
        return Access::Open;
    }
    let has_role = |role: &str| {
        requirements
            .iter()
            .all(|r| r[SCHEME].as_array().is_some_and(|roles| roles.contains(&role.into())))
    };
    Access::Roles { runner: has_role(RUNNER_ROLE), job: has_role(JOB_ROLE), person }
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Torc", description = "Runs workflows of shell jobs and recovers them by itself."),
    security(("token" = [])),
    components(schemas(torc_model::api::ErrorBody)),
    modifiers(&TokenScheme)
)]
pub(super) struct Base;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut OpenApi) {
        let text = "The owner's token, which is in `server.json` and good for every route, or one \
                    that is limited to a workflow. Routes that runners may call have the role \
                    `runner`; those that jobs and actions may call while they run, `job`.";
        let scheme =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(text)).build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
    }
}

/// The answers that every route may give beside its own.
pub(super) struct Refusals;

impl IntoResponses for Refusals {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Response>> {
        let body = |text: &str| -> RefOr<Response> {
            let content =
                ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
            ResponseBuilder::new()
                .description(text)
                .content("application/json", content)
                .build()
                .into()
        };
        [
            ("401".into(), body("No token, or an invalid one.")),
            ("403".into(), body("The token is not good for this.")),
            ("default".into(), body("Refused; the body says why.")),
        ]
        .into()
    }
}

/// The whole document.
pub fn document() -> OpenApi {
    router::documented().into_openapi()
}

static TEXT: LazyLock<String> = LazyLock::new(|| {
    // A document of plain maps and texts cannot fail to become JSON.
    document().to_pretty_json().unwrap_or_default()
});

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "get_openapi",
    tag = "server",
    responses((status = 200, description = "This document.", body = Object), Refusals),
    security(("token" = ["runner", "job"]))
)]
pub async fn get_openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// The document without routes, for the table to add to.
pub(super) fn base() -> OpenApi {
    Base::openapi()
}

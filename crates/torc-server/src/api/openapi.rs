//! The OpenAPI document, and what it says about who may call what.
//!
//! It is made from the handlers by [`document`], which only tests call: the program has the text of `docs/openapi.json`, which
//! they compare with it. A route's `security` in the document is not only text: [`Access`] is read from it. What is not in
//! the document yet is for the owner alone.

use super::roles;
use super::router;
use axum::http::{Method, header};
use axum::response::IntoResponse;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, OnceLock};
use utoipa::openapi::OpenApi;
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};
use utoipa::{IntoResponses, Modify, OpenApi as _};

/// The name of our security scheme; also used by the `security` of each route and by `build.rs`.
const SCHEME: &str = "token";
/// What a reference to a schema begins with.
const SCHEMAS: &str = "#/components/schemas/";
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

/// Which tokens the document names for an operation.
enum TokenNeed {
    /// It is open.
    None,
    /// Nothing is said: the owner's, and those of people.
    Owner,
    /// Those too that have one of these roles.
    Also(&'static [&'static str]),
}

/// Method, path, id and tokens of every operation in the document.
const OPERATIONS: &[(&str, &str, &str, TokenNeed)] =
    include!(concat!(env!("OUT_DIR"), "/operations.rs"));

/// Who may call what.
pub struct Rules {
    by_path: HashMap<&'static str, Vec<Rule>>,
}

/// An operation, and who may call it: found out when it is called first.
struct Rule {
    method: &'static str,
    id: &'static str,
    tokens: &'static TokenNeed,
    access: OnceLock<Access>,
}

impl Rules {
    /// As the document says.
    pub fn new() -> Self {
        let mut by_path: HashMap<_, Vec<Rule>> = HashMap::new();
        for (method, path, id, tokens) in OPERATIONS {
            let rule = Rule { method, id, tokens, access: OnceLock::new() };
            by_path.entry(*path).or_default().push(rule);
        }
        Self { by_path }
    }

    /// Who may call this; what is not in the document is closed.
    pub fn access(&self, method: &Method, path: &str) -> Access {
        let rule =
            self.by_path.get(path).and_then(|rules| rules.iter().find(|r| method == r.method));
        let Some(rule) = rule else { return Access::OWNER };
        *rule.access.get_or_init(|| {
            let has = |role| matches!(rule.tokens, TokenNeed::Also(roles) if roles.contains(&role));
            match rule.tokens {
                TokenNeed::None => Access::Open,
                TokenNeed::Owner | TokenNeed::Also(_) => Access::Roles {
                    runner: has(RUNNER_ROLE),
                    job: has(JOB_ROLE),
                    person: roles::rule(rule.id),
                },
            }
        })
    }
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

/// The whole document, as the handlers have it. A type that is made of parts (`serde(flatten)`) is one
/// object on the wire, and so it is here: clients that are generated from the document get one type
/// with all fields.
pub fn document() -> Value {
    // It has no maps with keys other than strings.
    let mut document =
        serde_json::to_value(router::documented().into_openapi()).unwrap_or_default();
    let schemas = document["components"]["schemas"].clone();
    let mut parts = BTreeSet::new();
    merge_parts(&mut document, &schemas, &mut parts);
    let text = document.to_string();
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.retain(|name, _| {
            !parts.contains(name) || text.contains(&format!("\"{SCHEMAS}{name}\""))
        });
    }
    document
}

/// Replaces every `allOf` of objects by one object. `parts` gets the names of the schemas that went
/// into others.
fn merge_parts(value: &mut Value, schemas: &Value, parts: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(all) = map.get("allOf")
                && let Some(object) = merged(all, map.get("description"), schemas, parts)
            {
                *map = object;
            }
            map.values_mut().for_each(|inner| merge_parts(inner, schemas, parts));
        }
        Value::Array(list) => {
            list.iter_mut().for_each(|inner| merge_parts(inner, schemas, parts));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// None if one of them is not an object with known fields.
fn merged(
    all: &Value,
    description: Option<&Value>,
    schemas: &Value,
    parts: &mut BTreeSet<String>,
) -> Option<Map<String, Value>> {
    let (mut required, mut properties) = (Vec::new(), Map::new());
    let mut names = Vec::new();
    for part in all.as_array()? {
        let name = part["$ref"].as_str().and_then(|target| target.strip_prefix(SCHEMAS));
        let part = name.map_or(part, |name| &schemas[name]);
        names.extend(name.map(str::to_owned));
        properties.extend(part["properties"].as_object()?.clone());
        required.extend(part["required"].as_array().into_iter().flatten().cloned());
    }
    parts.extend(names);
    // In the order of types that have no parts.
    let mut merged = Map::from_iter([("type".to_owned(), Value::from("object"))]);
    merged.extend(description.map(|text| ("description".to_owned(), text.clone())));
    if !required.is_empty() {
        merged.insert("required".into(), required.into());
    }
    properties.sort_keys();
    merged.insert("properties".into(), properties.into());
    Some(merged)
}

static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.deflated"));
    // `build.rs` has packed it.
    miniz_oxide::inflate::decompress_to_vec(packed).unwrap_or_default()
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
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_slice())
}

/// The document without routes, for the table to add to.
pub(super) fn base() -> OpenApi {
    Base::openapi()
}

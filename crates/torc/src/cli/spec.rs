//! Reads a spec file and checks all of it before anything is sent or created.

use super::Context;
use crate::error::{Error, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use torc_model::api::ErrorCode;
use torc_spec::{Diagnostics, Parsed, Source, Spec};

/// With more jobs than this, a spec is planned by the server alone, and here only if that refuses
/// it.
const MAX_PLANNED: usize = 20_000;

/// A spec that has been checked, in the canonical form in which it is sent, stored and compared.
pub struct Checked {
    /// The spec.
    pub spec: Spec,
    is_planned: bool,
    /// What the user has been warned of already.
    pub warnings: Vec<String>,
    /// Limits that jobs take and that the spec leaves to the server.
    pub unset_limits: BTreeSet<String>,
    /// The file that it was read from, from the root; none: standard input, or made in memory.
    pub path: Option<String>,
}

impl Checked {
    /// The workflow's name.
    pub fn name(&self) -> &str {
        self.spec.name()
    }

    /// The canonical form.
    pub fn value(&self) -> Value {
        self.spec.to_value()
    }

    /// The user has been warned of this already, with its place in the file.
    pub fn has_warned(&self, message: &str) -> bool {
        self.warnings.iter().any(|warning| warning == message)
    }

    /// What the server refused, with its place in the file. The error itself, if it is about
    /// something else.
    pub fn explain(&self, error: torc_client::Error) -> Error {
        if self.is_planned || error.code() != Some(ErrorCode::InvalidSpec) {
            return error.into();
        }
        self.spec.plan().err().map_or_else(|| error.into(), |errors| wrong(&errors))
    }
}

/// The first thing that users of other tools try, and whose mistakes in YAML would say nothing.
pub fn refuse_toml(path: &Path) -> Result<()> {
    match path.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml")) {
        true => Err(Error::usage_hint(
            format!("`{}` is TOML, which is not a format of specs", path.display()),
            "the formats are YAML, JSON, JSON5 and KDL",
        )),
        false => Ok(()),
    }
}

/// Reads and checks a file (`-`: standard input); warnings go to the user.
pub fn load(context: &Context, path: &Path) -> Result<Checked> {
    refuse_toml(path)?;
    let parsed = Source::read(path).and_then(Source::parse);
    let mut checked = check(context, parsed)?;
    if path != Path::new("-") {
        let whole = std::fs::canonicalize(path).map_err(Error::io("find", path))?;
        checked.path = Some(whole.display().to_string());
    }
    Ok(checked)
}

/// Checks a spec that was made in memory.
pub fn from_value(context: &Context, value: Value) -> Result<Checked> {
    check(context, Spec::from_value(value))
}

fn check(context: &Context, parsed: std::result::Result<Parsed, Diagnostics>) -> Result<Checked> {
    let Parsed { spec, mut warnings } = parsed.map_err(|errors| wrong(&errors))?;
    // The server plans again; doing it here first gives every mistake its place in the file.
    let is_planned = !spec.has_more_jobs_than(MAX_PLANNED);
    let mut unset_limits = BTreeSet::new();
    if is_planned {
        let (plan, more) = spec.plan_and_doubts().map_err(|errors| wrong(&errors))?;
        warnings.extend(more);
        // A spec with limits of its own has been warned of others.
        if plan.limits.is_empty() {
            unset_limits.extend(plan.jobs.into_iter().flat_map(|job| job.extra.uses.clone()));
        }
    }
    if !warnings.is_empty() {
        context.output.talk(warnings.render(console::colors_enabled_stderr()).trim_end());
    }
    let warnings = warnings.iter().map(|warning| warning.message.clone()).collect();
    Ok(Checked { spec, is_planned, warnings, unset_limits, path: None })
}

/// What is wrong with a spec, for the user.
pub fn wrong(errors: &Diagnostics) -> Error {
    Error::Spec { rendered: errors.render(console::colors_enabled_stderr()) }
}

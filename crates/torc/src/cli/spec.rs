//! Reads a spec file and checks all of it before anything is sent or created.

use super::Context;
use crate::error::{Error, Result};
use serde_json::Value;
use std::path::Path;
use torc_spec::{Diagnostics, Parsed, Source, Spec};

/// A spec that has been checked, in the canonical form in which it is sent, stored and compared.
pub struct Checked {
    /// The workflow's name.
    pub name: String,
    /// The canonical form.
    pub value: Value,
}

/// Reads and checks a file (`-`: standard input); warnings go to the user.
pub fn load(context: &Context, path: &Path) -> Result<Checked> {
    let parsed = Source::read(path).and_then(|source| torc_spec::parse(&source));
    check(context, parsed)
}

/// Checks a spec that was made in memory.
pub fn from_value(context: &Context, value: Value) -> Result<Checked> {
    check(context, Spec::from_value(value))
}

fn check(context: &Context, parsed: std::result::Result<Parsed, Diagnostics>) -> Result<Checked> {
    let Parsed { spec, mut warnings } = parsed.map_err(|errors| wrong(&errors))?;
    // The server plans again; doing it here first gives every mistake its place in the file.
    let (_, more) = spec.plan().map_err(|errors| wrong(&errors))?;
    warnings.extend(more);
    if !warnings.is_empty() {
        context.output.talk(warnings.render(console::colors_enabled_stderr()).trim_end());
    }
    Ok(Checked { name: spec.name().to_string(), value: spec.to_value() })
}

fn wrong(errors: &Diagnostics) -> Error {
    Error::Spec { rendered: errors.render(console::colors_enabled_stderr()) }
}

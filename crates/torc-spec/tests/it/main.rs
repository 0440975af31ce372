//! Tests of the whole crate through its public API.

mod drawing;
mod errors;
mod examples;
mod formats;
mod fuzz;
mod golden;
mod limits;
mod lint;
mod long;
mod reference;
mod short;
mod steps;

use torc_model::plan::Plan;
use torc_spec::{Diagnostics, Source, Spec, SpecFormat};

/// Reads and plans a text; panics with the rendered errors if it is wrong.
pub fn plan(text: &str, format: SpecFormat) -> Plan {
    plan_with_warnings(text, format).0
}

/// The same, with the warnings of both stages.
pub fn plan_with_warnings(text: &str, format: SpecFormat) -> (Plan, Diagnostics) {
    match try_plan(text, format) {
        Ok(planned) => planned,
        Err(errors) => panic!("{errors}"),
    }
}

/// Reads and plans a text.
pub fn try_plan(text: &str, format: SpecFormat) -> Result<(Plan, Diagnostics), Diagnostics> {
    let parsed = torc_spec::parse(&Source::new(format!("test.{format}"), text, format))?;
    let mut warnings = parsed.warnings;
    let (plan, more) = parsed.spec.plan()?;
    warnings.extend(more);
    Ok((plan, warnings))
}

/// Reads a text.
pub fn spec(text: &str, format: SpecFormat) -> Spec {
    match torc_spec::parse(&Source::new(format!("test.{format}"), text, format)) {
        Ok(parsed) => parsed.spec,
        Err(errors) => panic!("{errors}"),
    }
}

/// The names of the jobs that a job depends on.
pub fn parents(plan: &Plan, job: &str) -> Vec<String> {
    let job = plan.jobs.iter().find(|j| j.name == job).unwrap_or_else(|| panic!("no job {job}"));
    job.depends_on.iter().map(|i| plan.jobs[*i].name.clone()).collect()
}

/// The names of all jobs, in order.
pub fn names(plan: &Plan) -> Vec<&str> {
    plan.jobs.iter().map(|job| job.name.as_str()).collect()
}

//! Specs: their plans, and workflows made of them.

use super::MOST_ROWS;
use crate::tools::{ToolCall, ToolError, to_value};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use torc_model::api::CreateWorkflow;
use torc_model::ids::WorkflowId;
use torc_model::plan::Plan;

/// A spec's plan, or its mistakes.
fn plan_of(spec: Value) -> Result<(Plan, Vec<String>), ToolError> {
    let wrong = |errors: torc_spec::Diagnostics| ToolError::Arguments(errors.render(false));
    let parsed = torc_spec::Spec::from_value(spec).map_err(wrong)?;
    let (plan, warnings) = parsed.spec.plan().map_err(wrong)?;
    Ok((plan, warnings.iter().map(|warning| warning.message.clone()).collect()))
}

fn parsed(text: &str) -> Result<Value, ToolError> {
    serde_json::from_str(text)
        .map_err(|error| ToolError::Arguments(format!("the spec is not JSON: {error}")))
}

/// The stages of a workflow or a spec.
pub async fn execution_plan(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        workflow_id: Option<WorkflowId>,
        spec: Option<Map<String, Value>>,
        spec_or_id: Option<String>,
    }
    let Arguments { mut workflow_id, spec, spec_or_id } = call.arguments()?;
    let mut spec = spec.map(Value::Object);
    match spec_or_id.map(|text| (text.trim().parse::<i64>(), text)) {
        Some((Ok(id), _)) if workflow_id.is_none() => workflow_id = Some(WorkflowId(id)),
        Some((Err(_), text)) if spec.is_none() => spec = Some(parsed(&text)?),
        Some(_) => return Err(ToolError::Arguments("give `spec_or_id` alone".into())),
        None => {}
    }
    match (workflow_id, spec) {
        (None, Some(spec)) => Ok(stages(&plan_of(spec)?.0)),
        (Some(id), None) => {
            call.check(id)?;
            call.ask(move |client| async move {
                let spec: Value = client.get(&format!("/workflows/{id}/spec")).await?;
                Ok(stages(&plan_of(spec)?.0))
            })
            .await
        }
        (Some(_), Some(_)) | (None, None) => {
            Err(ToolError::Arguments("give either `workflow_id` or `spec`".into()))
        }
    }
}

/// Jobs by how many others must run before them.
fn stages(plan: &Plan) -> Value {
    let mut depth = vec![0_usize; plan.jobs.len()];
    // Jobs may stand in any order; each pass settles one more stage.
    loop {
        let mut moved = false;
        for (at, job) in plan.jobs.iter().enumerate() {
            let own = job.depends_on.iter().map(|parent| depth[*parent] + 1).max().unwrap_or(0);
            if own > depth[at] {
                depth[at] = own;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let mut stages: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (job, depth) in plan.jobs.iter().zip(&depth) {
        stages.entry(*depth).or_default().push(&job.name);
    }
    let stages: Vec<Value> = stages
        .into_iter()
        .map(|(stage, names)| {
            json!({"stage": stage, "job_count": names.len(),
                   "jobs": names.iter().take(MOST_ROWS as usize).collect::<Vec<_>>()})
        })
        .collect();
    json!({"workflow_name": plan.name, "total_jobs": plan.jobs.len(), "stages": stages})
}

/// Checks a spec, or makes a workflow of it.
pub async fn create(call: ToolCall) -> Result<Value, ToolError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Action {
        Validate,
        CreateWorkflow,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Arguments {
        spec: Option<Map<String, Value>>,
        spec_json: Option<String>,
        action: Option<Action>,
    }
    let Arguments { spec, spec_json, action } = call.arguments()?;
    let spec = match (spec, spec_json) {
        (Some(spec), None) => Value::Object(spec),
        (None, Some(text)) => parsed(&text)?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(ToolError::Arguments("give either `spec` or `spec_json`".into()));
        }
    };
    let (plan, warnings) = plan_of(spec.clone())?;
    match action.unwrap_or(Action::Validate) {
        Action::Validate => Ok(json!({"valid": true, "warnings": warnings, "plan": stages(&plan)})),
        Action::CreateWorkflow => {
            if let Some(bound) = call.settings.workflow {
                return Err(ToolError::OtherWorkflow { bound });
            }
            let directory = std::env::current_dir().ok().map(|dir| dir.display().to_string());
            let request = CreateWorkflow {
                spec,
                user: None,
                initialize: true,
                force: false,
                key: None,
                directory,
                spec_path: None,
            };
            call.ask(
                move |client| async move { to_value(&client.create_workflow(&request).await?) },
            )
            .await
        }
    }
}

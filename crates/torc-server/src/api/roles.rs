//! What role a person's token needs for each operation: the one table of it. What does not stand here is
//! for the server's owner alone, and a test refuses operations that stand nowhere.

use torc_model::api::Role;

/// To look, at everything but secrets.
const READ: &[&str] = &[
    "delete_current_ui_session",
    "get_attempt",
    "get_classification",
    "get_compute_node",
    "get_critical_path",
    "get_current_ui_session",
    "get_failure_handler",
    "get_families",
    "get_file",
    "get_forecast",
    "get_graph",
    "get_job",
    "get_job_logs",
    "get_job_why",
    "get_knowledge",
    "get_known_failure",
    "get_metrics",
    "get_openapi",
    "get_reservation",
    "get_resource_requirements",
    "get_scheduled_compute_node",
    "get_slurm_scheduler",
    "get_timeline",
    "get_user_data",
    "get_workflow",
    "get_workflow_spec",
    "get_workflow_status",
    "get_workflow_why",
    "is_workflow_complete",
    "list_actions",
    "list_adjustments",
    "list_classifications",
    "list_compute_nodes",
    "list_events",
    "list_failure_handlers",
    "list_failures",
    "list_family_resources",
    "list_files",
    "list_items",
    "list_job_attempts",
    "list_jobs",
    "list_limits",
    "list_pending_failures",
    "list_reservations",
    "list_resource_requirements",
    "list_results",
    "list_revisions",
    "list_scheduled_compute_nodes",
    "list_slurm_schedulers",
    "list_user_data",
    "list_workflows",
    "search_job_logs",
    "stream_events",
    "stream_pulse",
];
/// To create, run, change and delete workflows, and to take part in them as a runner.
const OPERATE: &[&str] = &[
    "accept_classification",
    "act_on_jobs",
    "apply_spec",
    "begin_submission",
    "cancel_jobs",
    "cancel_workflow",
    "claim",
    "classify_failures",
    "classify_from_memory",
    "complete_action",
    "complete_attempts",
    "create_failure_handler",
    "create_reservation",
    "create_scheduled_compute_nodes",
    "create_ui_code",
    "create_workflow",
    "delete_failure_handler",
    "delete_workflow",
    "drop_items",
    "goodbye",
    "heartbeat",
    "initialize_workflow",
    "observe_scheduled_compute_nodes",
    "recover_workflow",
    "regenerate",
    "register_compute_node",
    "reinitialize_workflow",
    "reject_classification",
    "release_reservation",
    "renew_reservation",
    "report_submission",
    "reset_workflow_status",
    "retry_items",
    "retry_job",
    "retry_jobs",
    "spawn_jobs",
    "start_attempts",
    "sync_status",
    "update_failure_handler",
    "update_job",
    "update_user_data",
    "update_workflow",
];
/// What concerns the server and all of its users.
const ADMIN: &[&str] = &[
    "create_token",
    "create_webhook",
    "delete_limit",
    "delete_ui_session",
    "delete_webhook",
    "forget_knowledge",
    "forget_known_failure",
    "get_usage",
    "get_webhook",
    "list_audit",
    "list_deliveries",
    "list_tokens",
    "list_ui_sessions",
    "list_webhooks",
    "prune_workflows",
    "redeliver",
    "revoke_token",
    "rotate_token",
    "set_limit",
    "take_knowledge",
    "vacuum_database",
];

/// The least role for an operation; None: no person's token is good for it.
pub fn least(operation: &str) -> Option<Role> {
    [(READ, Role::Read), (OPERATE, Role::Operate), (ADMIN, Role::Admin)]
        .into_iter()
        .find_map(|(operations, role)| operations.contains(&operation).then_some(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_needs_a_token_stands_in_one_list() {
        let document = serde_json::to_value(super::super::openapi::document()).unwrap();
        let mut seen = Vec::new();
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                if operation["security"] == serde_json::json!([{}]) {
                    assert_eq!(least(&id), None, "{id} is open to all");
                    continue;
                }
                let lists = [READ, OPERATE, ADMIN];
                let count = lists.iter().filter(|list| list.contains(&id.as_str())).count();
                assert_eq!(count, 1, "{id}: decide who may do it");
                seen.push(id);
            }
        }
        for id in [READ, OPERATE, ADMIN].concat() {
            assert!(seen.iter().any(|known| known == id), "there is no {id}");
        }
    }
}

//! What a person's token needs for each operation: the one table of it. What does not stand here is
//! for the server's owner alone, and a test refuses operations that stand nowhere.
//!
//! A role says what a person may do; walls say in which workflows: one's own and those of one's groups.
//! Admins have no walls. The walls before what a path names are checked in one place, before the
//! handler (see `auth.rs`); what a body names and what a list shows is checked by its handler, and a
//! test calls every operation on both sides of the wall.

use crate::store::read::Thing;
use torc_model::api::Role;

use About::{Groups, List, Named, Own, Path, Server};
use Role::{Admin, Operate, Read};
use Thing::{
    Action, Allocation, Attempt, Classification, FailureHandler, File, Job, Requirements, Runner,
    Scheduler, UserData, Workflow,
};

/// What an operation is about, and so which wall stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About {
    /// The server, the caller, or what all users share: no wall.
    Server,
    /// The `{id}` of its path.
    Path(Thing),
    /// The same, and only for the owner of the workflow.
    Own(Thing),
    /// What its body names: the handler asks for the wall.
    Named,
    /// All that the caller may see: the handler tells the reader whose eyes it is for.
    List,
    /// Groups of users: members see theirs, and those who administer one change it.
    Groups,
}

/// What one operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The least role.
    pub least: Role,
    /// The wall.
    pub about: About,
}

const TABLE: &[(&str, Role, About)] = &[
    // To look.
    ("delete_current_ui_session", Read, Server),
    ("diff_job_logs", Read, Path(Job)),
    ("find_earlier_workflow", Read, List),
    ("get_access_group", Read, Groups),
    ("get_allocation_output", Read, Path(Allocation)),
    ("get_attempt", Read, Path(Attempt)),
    ("get_classification", Read, Path(Classification)),
    ("get_compute_node", Read, Path(Runner)),
    ("get_critical_path", Read, Path(Workflow)),
    ("get_current_ui_session", Read, Server),
    ("get_failure_handler", Read, Path(FailureHandler)),
    ("get_families", Read, Path(Workflow)),
    ("get_file", Read, Path(File)),
    ("get_forecast", Read, Path(Workflow)),
    ("get_graph", Read, Path(Workflow)),
    ("get_job", Read, Path(Job)),
    ("get_job_logs", Read, Path(Job)),
    ("get_job_samples", Read, Path(Job)),
    ("get_job_why", Read, Path(Job)),
    ("get_metrics", Read, Server),
    ("get_openapi", Read, Server),
    ("get_reservation", Read, Named),
    ("get_resource_requirements", Read, Path(Requirements)),
    ("get_scheduled_compute_node", Read, Path(Allocation)),
    ("get_slurm_scheduler", Read, Path(Scheduler)),
    ("get_timeline", Read, Path(Workflow)),
    ("get_user_data", Read, Path(UserData)),
    ("get_workflow", Read, Path(Workflow)),
    ("get_workflow_spec", Read, Path(Workflow)),
    ("get_workflow_status", Read, Path(Workflow)),
    ("get_workflow_why", Read, Path(Workflow)),
    ("is_workflow_complete", Read, Path(Workflow)),
    ("list_access_group_members", Read, Groups),
    ("list_access_groups", Read, Groups),
    ("list_actions", Read, Path(Workflow)),
    ("list_adjustments", Read, Path(Workflow)),
    ("list_allocation_uses", Read, Path(Workflow)),
    ("list_classifications", Read, List),
    ("list_compute_nodes", Read, List),
    ("list_events", Read, Path(Workflow)),
    ("list_failure_handlers", Read, List),
    ("list_failures", Read, Path(Workflow)),
    ("list_family_resources", Read, Path(Workflow)),
    ("list_files", Read, List),
    ("list_items", Read, Path(Workflow)),
    ("list_job_attempts", Read, Path(Job)),
    ("list_jobs", Read, List),
    ("list_limits", Read, Server),
    ("list_notifications", Read, List),
    ("list_pending_failures", Read, Path(Workflow)),
    ("list_pool_runners", Read, List),
    ("list_relations", Read, Path(Workflow)),
    ("list_reservations", Read, List),
    ("list_resource_requirements", Read, List),
    ("list_results", Read, List),
    ("list_revisions", Read, Path(Workflow)),
    ("list_scheduled_compute_nodes", Read, List),
    ("list_slurm_schedulers", Read, List),
    ("list_user_access_groups", Read, Groups),
    ("list_user_data", Read, List),
    ("list_workflow_access_groups", Read, Path(Workflow)),
    ("list_workflows", Read, List),
    ("search_job_logs", Read, Path(Job)),
    ("stream_events", Read, Path(Workflow)),
    ("stream_pulse", Read, Path(Workflow)),
    // To create, run, change and delete workflows, to share them, and to take part in them as a runner.
    ("accept_classification", Operate, Path(Classification)),
    ("act_on_jobs", Operate, Named),
    ("add_access_group_member", Operate, Groups),
    ("apply_spec", Operate, Path(Workflow)),
    ("begin_submission", Operate, Named),
    ("cancel_jobs", Operate, Named),
    ("cancel_scheduled_compute_node", Operate, Path(Allocation)),
    ("cancel_workflow", Operate, Path(Workflow)),
    ("claim", Operate, Path(Workflow)),
    ("claim_for_pool", Operate, Named),
    ("classify_failures", Operate, Path(Workflow)),
    ("classify_from_memory", Operate, Path(Workflow)),
    ("complete_action", Operate, Path(Action)),
    ("complete_attempts", Operate, Named),
    ("create_failure_handler", Operate, Named),
    ("create_notification", Operate, Named),
    ("create_reservation", Operate, Named),
    ("create_scheduled_compute_nodes", Operate, Named),
    ("create_ui_code", Operate, Server),
    ("create_workflow", Operate, Named),
    ("delete_failure_handler", Operate, Path(FailureHandler)),
    ("delete_workflow", Operate, Own(Workflow)),
    ("delete_notification", Operate, Named),
    ("drain_compute_node", Operate, Path(Runner)),
    ("drain_pool_runner", Operate, Named),
    ("drop_items", Operate, Path(Workflow)),
    ("goodbye", Operate, Path(Runner)),
    ("heartbeat", Operate, Named),
    ("import_workflow", Operate, Named),
    ("initialize_workflow", Operate, Path(Workflow)),
    ("observe_scheduled_compute_nodes", Operate, Named),
    ("pool_goodbye", Operate, Named),
    ("pool_reads", Operate, Named),
    ("quarantine_node", Operate, Path(Workflow)),
    ("recover_workflow", Operate, Path(Workflow)),
    ("regenerate", Operate, Path(Workflow)),
    ("register_compute_node", Operate, Named),
    ("register_pool_runner", Operate, Server),
    ("reinitialize_workflow", Operate, Path(Workflow)),
    ("reject_classification", Operate, Path(Classification)),
    ("release_reservation", Operate, Named),
    ("remove_access_group_member", Operate, Groups),
    ("remove_compute_node", Operate, Path(Runner)),
    ("remove_pool_runner", Operate, Named),
    ("renew_reservation", Operate, Named),
    ("report_submission", Operate, Named),
    ("reset_workflow_status", Operate, Path(Workflow)),
    ("resume_compute_node", Operate, Path(Runner)),
    ("resume_pool_runner", Operate, Named),
    ("retry_items", Operate, Path(Workflow)),
    ("retry_job", Operate, Path(Job)),
    ("retry_jobs", Operate, Named),
    ("share_workflow", Operate, Own(Workflow)),
    ("spawn_jobs", Operate, Path(Job)),
    ("start_attempts", Operate, Named),
    ("sync_status", Operate, Path(Workflow)),
    ("test_notification", Operate, Named),
    ("unshare_workflow", Operate, Own(Workflow)),
    ("update_failure_handler", Operate, Path(FailureHandler)),
    ("update_job", Operate, Path(Job)),
    ("update_user_data", Operate, Path(UserData)),
    ("update_workflow", Operate, Path(Workflow)),
    // What concerns the server and all of its users.
    ("create_access_group", Admin, Server),
    ("create_token", Admin, Server),
    ("create_webhook", Admin, Server),
    ("delete_access_group", Admin, Server),
    ("delete_limit", Admin, Server),
    ("delete_ui_session", Admin, Server),
    ("delete_webhook", Admin, Server),
    ("forget_knowledge", Admin, Server),
    ("forget_known_failure", Admin, Server),
    ("get_knowledge", Admin, Server),
    ("get_known_failure", Admin, Server),
    ("get_usage", Admin, Server),
    ("get_webhook", Admin, Server),
    ("list_audit", Admin, Server),
    ("list_deliveries", Admin, Server),
    ("list_shares", Admin, Server),
    ("list_tokens", Admin, Server),
    ("list_ui_sessions", Admin, Server),
    ("list_webhooks", Admin, Server),
    ("prune_workflows", Admin, Server),
    ("redeliver", Admin, Server),
    ("revoke_token", Admin, Server),
    ("rotate_token", Admin, Server),
    ("set_limit", Admin, Server),
    ("set_share", Admin, Server),
    ("take_knowledge", Admin, Server),
    ("vacuum_database", Admin, Server),
];

/// What an operation needs; None: no person's token is good for it.
pub fn rule(operation: &str) -> Option<Rule> {
    let (_, least, about) = *TABLE.iter().find(|(name, ..)| *name == operation)?;
    Some(Rule { least, about })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_needs_a_token_stands_in_the_table_once() {
        let document = super::super::openapi::document();
        let mut seen = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                if operation["security"] == serde_json::json!([{}]) {
                    assert_eq!(rule(&id), None, "{id} is open to all");
                    continue;
                }
                let count = TABLE.iter().filter(|(name, ..)| *name == id).count();
                assert_eq!(count, 1, "{id}: decide who may do it");
                if let Some(Rule { about: Path(_) | Own(_), .. }) = rule(&id) {
                    assert!(path.contains("{id}"), "{id}: its path names nothing");
                }
                seen.push(id);
            }
        }
        for (id, ..) in TABLE {
            assert!(seen.iter().any(|known| known == id), "there is no {id}");
        }
    }
}

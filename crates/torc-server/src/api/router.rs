//! The table of routes.

use super::{
    App, actions, allocations, attempts, auth, classifications, events, failure_handlers, files, guard, health, items,
    jobs, limits, logs, openapi, recover, recovery, requirements, reservations, results, runners, schedulers,
    user_data, webhooks, why, workflows,
};
use axum::Router;
use axum::middleware::from_fn_with_state;
use torc_model::api::BASE_PATH;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route, with its part of the OpenAPI document.
pub(super) fn table() -> OpenApiRouter<App> {
    let routes = OpenApiRouter::new()
        .routes(routes!(health::get_health))
        .routes(routes!(openapi::get_openapi))
        .routes(routes!(workflows::list_workflows, workflows::create_workflow))
        .routes(routes!(workflows::get_workflow, workflows::update_workflow, workflows::delete_workflow))
        .routes(routes!(workflows::get_spec))
        .routes(routes!(workflows::get_status))
        .routes(routes!(workflows::get_is_complete))
        .routes(routes!(workflows::initialize))
        .routes(routes!(workflows::reinitialize))
        .routes(routes!(workflows::reset_status))
        .routes(routes!(workflows::cancel_workflow))
        .routes(routes!(runners::claim))
        .routes(routes!(events::list_events))
        .routes(routes!(events::stream_events))
        .routes(routes!(actions::list_actions))
        .routes(routes!(actions::complete_action))
        .routes(routes!(attempts::start))
        .routes(routes!(attempts::complete))
        .routes(routes!(attempts::heartbeat))
        .routes(routes!(attempts::get_attempt))
        .routes(routes!(results::list_results))
        .routes(routes!(jobs::list_jobs))
        .routes(routes!(jobs::cancel_jobs))
        .routes(routes!(jobs::get_job, jobs::update_job))
        .routes(routes!(jobs::list_attempts))
        .routes(routes!(jobs::retry_job))
        .routes(routes!(why::get_why))
        .routes(routes!(logs::get_logs))
        .routes(routes!(runners::list_runners, runners::register_runner))
        .routes(routes!(runners::get_runner))
        .routes(routes!(runners::goodbye))
        .routes(routes!(files::list_files))
        .routes(routes!(files::get_file))
        .routes(routes!(user_data::list_user_data))
        .routes(routes!(user_data::get_user_data, user_data::update_user_data))
        .routes(routes!(requirements::list_requirements))
        .routes(routes!(requirements::get_requirements))
        .routes(routes!(failure_handlers::list_failure_handlers, failure_handlers::create_failure_handler))
        .routes(routes!(
            failure_handlers::get_failure_handler,
            failure_handlers::update_failure_handler,
            failure_handlers::delete_failure_handler
        ))
        .routes(routes!(reservations::list_reservations, reservations::create_reservation))
        .routes(routes!(reservations::get_reservation))
        .routes(routes!(reservations::renew_reservation))
        .routes(routes!(reservations::release_reservation))
        .routes(routes!(items::list_items))
        .routes(routes!(items::retry_items))
        .routes(routes!(items::drop_items))
        .routes(routes!(limits::list_limits))
        .routes(routes!(limits::set_limit, limits::delete_limit))
        .routes(routes!(recovery::sync_status))
        .routes(routes!(webhooks::list_webhooks, webhooks::create_webhook))
        .routes(routes!(webhooks::get_webhook, webhooks::delete_webhook))
        .routes(routes!(webhooks::list_deliveries))
        .routes(routes!(webhooks::redeliver))
        .routes(routes!(recover::recover_workflow))
        .routes(routes!(recover::list_adjustments))
        .routes(routes!(classifications::list_pending_failures))
        .routes(routes!(classifications::classify))
        .routes(routes!(classifications::classify_from_memory))
        .routes(routes!(classifications::list_classifications))
        .routes(routes!(classifications::get_classification))
        .routes(routes!(classifications::accept_classification))
        .routes(routes!(classifications::reject_classification))
        .routes(routes!(schedulers::list_schedulers))
        .routes(routes!(schedulers::get_scheduler))
        .routes(routes!(allocations::list_allocations, allocations::create_allocations))
        .routes(routes!(allocations::begin_submission))
        .routes(routes!(allocations::report_submission))
        .routes(routes!(allocations::observe_allocations))
        .routes(routes!(allocations::get_allocation))
        .routes(routes!(allocations::regenerate));
    OpenApiRouter::with_openapi(openapi::base()).nest(BASE_PATH, routes)
}

/// The routes with everything around them. The last layer is the outermost.
pub fn router(app: App) -> Router {
    let (routes, _) = table().split_for_parts();
    routes
        .fallback(guard::no_route)
        .method_not_allowed_fallback(guard::no_method)
        .layer(from_fn_with_state(app.clone(), guard::wait_until_open))
        .layer(axum::middleware::from_fn(guard::limit_time))
        .layer(from_fn_with_state(app.clone(), auth::check))
        .layer(from_fn_with_state(app.clone(), guard::check_host))
        .layer(CatchPanicLayer::custom(guard::on_panic))
        .with_state(app)
}

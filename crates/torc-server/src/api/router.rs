//! The table of routes.
//!
//! A route is what its handlers say of themselves. The server needs their paths and methods only; what the OpenAPI document has
//! to say costs far more to put together than everything else about a route, and is left to tests.

use super::openapi::Rules;
use super::{
    App, access_groups, act, actions, allocations, attempts, classifications, crash_recovery,
    events, failure_handlers, files, forecast, guard, health, items, jobs, knowledge, limits,
    log_diff, log_search, logs, metrics, notifications, openapi, pages, pool, pool_reads, pulse,
    relations, remedies, requirements, reservations, results, runners, samples, schedulers, server,
    sessions, timeline, tokens, user_data, webhooks, why, workflows,
};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use std::sync::Arc;
use torc_model::api::BASE_PATH;
use utoipa::Path;
use utoipa::openapi::path::HttpMethod;
use utoipa_axum::PathItemExt as _;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

/// The handlers of one path.
struct Route {
    /// Without the base path.
    path: String,
    /// Not below the base path: where programs of others look for it.
    is_root: bool,
    handlers: MethodRouter<App>,
}

impl Route {
    fn new() -> Self {
        Self { path: String::new(), is_root: false, handlers: MethodRouter::new() }
    }

    fn at_root(mut self) -> Self {
        self.is_root = true;
        self
    }

    fn with<H: Path>(
        mut self,
        add: impl Fn(MethodRouter<App>, HttpMethod) -> MethodRouter<App>,
    ) -> Self {
        let path = H::path();
        debug_assert!(self.path.is_empty() || self.path == path, "one route has one path");
        self.path = path;
        for method in H::methods() {
            self.handlers = add(self.handlers, method);
        }
        self
    }

    /// As requests name it.
    fn full_path(&self) -> String {
        if self.is_root { self.path.clone() } else { format!("{BASE_PATH}{}", self.path) }
    }
}

/// From routes, each of which has handlers that share a path, what the server needs of them and what the document does.
macro_rules! routes {
    ($(route!($($module:ident :: $handler:ident),+ $(,)?) $(. $at_root:ident ())?),+ $(,)?) => {
        utoipa_axum::paste! {
            /// Every route.
            fn table() -> Vec<Route> {
                vec![$(
                    Route::new()
                        $(.with::<$module::[<__path_ $handler>]>(|routes, method| {
                            routes.on(method.to_method_filter(), $module::$handler)
                        }))+
                        $(.$at_root())?
                ),+]
            }

            /// What the document says of every route, in the order of the table.
            fn documents() -> Vec<UtoipaMethodRouter<App>> {
                vec![$(utoipa_axum::routes!($($module::$handler),+)),+]
            }
        }
    };
}

routes! {
    route!(health::get_health),
    route!(health::get_live).at_root(),
    route!(health::get_ready).at_root(),
    route!(metrics::get_metrics).at_root(),
    route!(openapi::get_openapi),
    route!(tokens::list_tokens, tokens::create_token),
    route!(tokens::rotate_token),
    route!(tokens::revoke_token),
    route!(tokens::list_audit),
    route!(access_groups::list_access_groups, access_groups::create_access_group),
    route!(access_groups::get_access_group, access_groups::delete_access_group),
    route!(access_groups::list_members, access_groups::add_member),
    route!(access_groups::remove_member),
    route!(access_groups::list_user_groups),
    route!(access_groups::list_workflow_groups),
    route!(access_groups::share_workflow, access_groups::unshare_workflow),
    route!(server::get_usage),
    route!(server::vacuum),
    route!(workflows::list_workflows, workflows::create_workflow),
    route!(workflows::prune_workflows),
    route!(workflows::find_earlier),
    route!(workflows::import_workflow),
    route!(workflows::get_workflow, workflows::update_workflow, workflows::delete_workflow),
    route!(workflows::get_spec),
    route!(workflows::get_status),
    route!(forecast::get_forecast),
    route!(workflows::get_is_complete),
    route!(workflows::initialize),
    route!(workflows::reinitialize),
    route!(workflows::apply),
    route!(workflows::list_revisions),
    route!(workflows::reset_status),
    route!(workflows::cancel_workflow),
    route!(relations::list_relations),
    route!(runners::claim),
    route!(runners::quarantine_node),
    route!(pool::list_pool_runners, pool::register_pool_runner),
    route!(pool::claim_for_pool),
    route!(pool::pool_goodbye),
    route!(pool_reads::pool_reads),
    route!(pool::drain),
    route!(pool::resume),
    route!(pool::remove),
    route!(pool::list_shares),
    route!(pool::set_share),
    route!(events::list_events),
    route!(events::stream_events),
    route!(actions::list_actions),
    route!(actions::complete_action),
    route!(attempts::start),
    route!(attempts::complete),
    route!(attempts::heartbeat),
    route!(attempts::get_attempt),
    route!(results::list_results),
    route!(jobs::list_jobs),
    route!(jobs::cancel_jobs),
    route!(jobs::retry_jobs),
    route!(jobs::get_job, jobs::update_job),
    route!(jobs::list_attempts),
    route!(jobs::retry_job),
    route!(jobs::spawn_jobs),
    route!(why::get_why),
    route!(why::get_workflow_why),
    route!(logs::get_logs),
    route!(log_search::search_logs),
    route!(samples::get_samples),
    route!(log_diff::diff_logs),
    route!(act::act),
    route!(pages::get_families),
    route!(pulse::stream_pulse),
    route!(pages::list_failures),
    route!(pages::list_resources),
    route!(pages::get_graph),
    route!(pages::get_critical_path),
    route!(timeline::get_timeline),
    route!(sessions::create_code),
    route!(sessions::list_sessions, sessions::create_session),
    route!(sessions::get_current_session, sessions::delete_current_session),
    route!(sessions::delete_session),
    route!(runners::list_runners, runners::register_runner),
    route!(runners::get_runner),
    route!(runners::goodbye),
    route!(runners::drain),
    route!(runners::resume),
    route!(runners::remove),
    route!(files::list_files),
    route!(files::get_file),
    route!(user_data::list_user_data),
    route!(user_data::get_user_data, user_data::update_user_data),
    route!(requirements::list_requirements),
    route!(requirements::get_requirements),
    route!(failure_handlers::list_failure_handlers, failure_handlers::create_failure_handler),
    route!(
        failure_handlers::get_failure_handler,
        failure_handlers::update_failure_handler,
        failure_handlers::delete_failure_handler
    ),
    route!(reservations::list_reservations, reservations::create_reservation),
    route!(reservations::get_reservation),
    route!(reservations::renew_reservation),
    route!(reservations::release_reservation),
    route!(items::list_items),
    route!(items::retry_items),
    route!(items::drop_items),
    route!(limits::list_limits),
    route!(limits::set_limit, limits::delete_limit),
    route!(crash_recovery::sync_status),
    route!(notifications::list_notifications, notifications::create_notification),
    route!(notifications::delete_notification),
    route!(notifications::test_notification),
    route!(webhooks::list_webhooks, webhooks::create_webhook),
    route!(webhooks::get_webhook, webhooks::delete_webhook),
    route!(webhooks::list_deliveries),
    route!(webhooks::redeliver),
    route!(remedies::recover_workflow),
    route!(remedies::list_adjustments),
    route!(knowledge::get_knowledge, knowledge::take_knowledge, knowledge::forget_knowledge),
    route!(knowledge::get_known_failure, knowledge::forget_known_failure),
    route!(classifications::list_pending_failures),
    route!(classifications::classify),
    route!(classifications::classify_from_memory),
    route!(classifications::list_classifications),
    route!(classifications::get_classification),
    route!(classifications::accept_classification),
    route!(classifications::reject_classification),
    route!(schedulers::list_schedulers),
    route!(schedulers::get_scheduler),
    route!(allocations::list_allocations, allocations::create_allocations),
    route!(allocations::begin_submission),
    route!(allocations::report_submission),
    route!(allocations::observe_allocations),
    route!(allocations::get_allocation),
    route!(allocations::get_allocation_output),
    route!(allocations::cancel_allocation),
    route!(allocations::list_allocation_uses),
    route!(allocations::regenerate),
}

/// Every route as the document has it.
pub(super) fn documented() -> OpenApiRouter<App> {
    let (root, below): (Vec<_>, Vec<_>) =
        table().into_iter().zip(documents()).partition(|(route, _)| route.is_root);
    let add = |routes: OpenApiRouter<App>, (_, document)| routes.routes(document);
    let below = below.into_iter().fold(OpenApiRouter::new(), add);
    let all = OpenApiRouter::with_openapi(openapi::base()).nest(BASE_PATH, below);
    root.into_iter().fold(all, add)
}

/// The routes with everything around them.
pub(super) fn router(app: App) -> Router {
    let add = |routes: Router<App>, route: Route| routes.route(&route.full_path(), route.handlers);
    let routes = table().into_iter().fold(Router::new(), add);
    routes
        .fallback(guard::no_route)
        .method_not_allowed_fallback(guard::no_method)
        .layer(from_fn_with_state((app.clone(), Arc::new(Rules::new())), guard::around))
        .with_state(app)
}

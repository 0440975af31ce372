# Written by generate_client.py from docs/openapi.json; do not edit.
"""The client: one method for every operation of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Literal, cast

from ._client import PAGE, ClientBase, _quote

if TYPE_CHECKING:
    from . import _api_types as types


class Client(ClientBase):
    """Speaks to a server. Answers are dictionaries as the API describes them (`docs/openapi.json`)."""

    def list_access_groups(self) -> types.Page_AccessGroupView:
        """Lists the groups: admins see all, others those they are in."""
        return cast('types.Page_AccessGroupView', self._connection.request("GET", "/access_groups"))

    def create_access_group(self, body: types.CreateAccessGroup) -> types.AccessGroupView:
        """Makes a group."""
        return cast('types.AccessGroupView', self._connection.request("POST", "/access_groups", body=body, has_body=True))

    def delete_access_group(self, id: int) -> types.AccessGroupView:
        """Ends a group, with the tokens that were good for it only. Its workflows stay."""
        return cast('types.AccessGroupView', self._connection.request("DELETE", f"/access_groups/{_quote(id)}"))

    def get_access_group(self, id: int) -> types.AccessGroupView:
        """One group."""
        return cast('types.AccessGroupView', self._connection.request("GET", f"/access_groups/{_quote(id)}"))

    def list_access_group_members(self, id: int) -> types.Page_MemberView:
        """Who is in a group."""
        return cast('types.Page_MemberView', self._connection.request("GET", f"/access_groups/{_quote(id)}/members"))

    def add_access_group_member(self, id: int, body: types.AddMember) -> types.MemberView:
        """Puts a user into a group, or gives them another role in it."""
        return cast('types.MemberView', self._connection.request("POST", f"/access_groups/{_quote(id)}/members", body=body, has_body=True))

    def remove_access_group_member(self, id: int, user_name: str) -> types.MemberView:
        """Takes a user out of a group."""
        return cast('types.MemberView', self._connection.request("DELETE", f"/access_groups/{_quote(id)}/members/{_quote(user_name)}"))

    def complete_action(self, id: int, body: types.ActionReport) -> Any:
        """A runner has executed an action. Safe to repeat."""
        return cast('Any', self._connection.request("POST", f"/actions/{_quote(id)}/complete", body=body, has_body=True))

    def complete_attempts(self, body: types.CompletionBatch) -> types.ReportResults:
        """Attempts of a runner have ended. Safe to repeat."""
        return cast('types.ReportResults', self._connection.request("POST", "/attempts/complete", body=body, has_body=True))

    def heartbeat(self, body: types.Heartbeat) -> types.HeartbeatAnswer:
        """A runner lives and holds these attempts. Safe to repeat."""
        return cast('types.HeartbeatAnswer', self._connection.request("POST", "/attempts/heartbeat", body=body, has_body=True))

    def start_attempts(self, body: types.StartBatch) -> types.ReportResults:
        """A runner has started attempts. Safe to repeat."""
        return cast('types.ReportResults', self._connection.request("POST", "/attempts/start", body=body, has_body=True))

    def get_attempt(self, id: int) -> types.AttemptView:
        """One attempt."""
        return cast('types.AttemptView', self._connection.request("GET", f"/attempts/{_quote(id)}"))

    def list_classifications(self, *, workflow_id: int | None = None, job_id: int | None = None, state: str | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_ClassificationView:
        """Lists verdicts: who, when, why, how sure, and what came of them."""
        return cast('types.Page_ClassificationView', self._connection.request("GET", "/classifications", {"workflow_id": workflow_id, "job_id": job_id, "state": state, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_classifications(self, *, workflow_id: int | None = None, job_id: int | None = None, state: str | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.ClassificationView]:
        """Every item of `list_classifications`, page after page."""
        return self._pages(lambda start: self.list_classifications(workflow_id=workflow_id, job_id=job_id, state=state, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_classification(self, id: int) -> types.ClassificationView:
        """One verdict."""
        return cast('types.ClassificationView', self._connection.request("GET", f"/classifications/{_quote(id)}"))

    def accept_classification(self, id: int, body: types.ResolveRequest | None = None) -> types.ClassificationView:
        """Carries out a verdict that waits for a person."""
        return cast('types.ClassificationView', self._connection.request("POST", f"/classifications/{_quote(id)}/accept", body=body))

    def reject_classification(self, id: int, body: types.ResolveRequest | None = None) -> types.ClassificationView:
        """Drops a verdict that waits for a person; the job goes on waiting."""
        return cast('types.ClassificationView', self._connection.request("POST", f"/classifications/{_quote(id)}/reject", body=body))

    def list_compute_nodes(self, *, workflow_id: int | None = None, hostname: str | None = None, is_active: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_RunnerView:
        """Lists runners."""
        return cast('types.Page_RunnerView', self._connection.request("GET", "/compute_nodes", {"workflow_id": workflow_id, "hostname": hostname, "is_active": is_active, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_compute_nodes(self, *, workflow_id: int | None = None, hostname: str | None = None, is_active: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.RunnerView]:
        """Every item of `list_compute_nodes`, page after page."""
        return self._pages(lambda start: self.list_compute_nodes(workflow_id=workflow_id, hostname=hostname, is_active=is_active, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def register_compute_node(self, body: types.RegisterRunner) -> types.RunnerRegistered:
        """A runner introduces itself. Safe to repeat."""
        return cast('types.RunnerRegistered', self._connection.request("POST", "/compute_nodes", body=body, has_body=True))

    def get_compute_node(self, id: int) -> types.RunnerView:
        """One runner."""
        return cast('types.RunnerView', self._connection.request("GET", f"/compute_nodes/{_quote(id)}"))

    def drain_compute_node(self, id: int) -> types.RunnerView:
        """A runner takes no more jobs; what it holds goes on. Safe to repeat."""
        return cast('types.RunnerView', self._connection.request("POST", f"/compute_nodes/{_quote(id)}/drain"))

    def goodbye(self, id: int, body: types.Goodbye) -> types.GoodbyeAnswer:
        """A runner leaves. Safe to repeat."""
        return cast('types.GoodbyeAnswer', self._connection.request("POST", f"/compute_nodes/{_quote(id)}/goodbye", body=body, has_body=True))

    def remove_compute_node(self, id: int) -> types.RunnerView:
        """A runner takes no more jobs and leaves when it holds none. Safe to repeat."""
        return cast('types.RunnerView', self._connection.request("POST", f"/compute_nodes/{_quote(id)}/remove"))

    def resume_compute_node(self, id: int) -> types.RunnerView:
        """A runner that was drained or removed takes jobs again."""
        return cast('types.RunnerView', self._connection.request("POST", f"/compute_nodes/{_quote(id)}/resume"))

    def redeliver(self, id: int) -> types.DeliveryView:
        """Tries a delivery again, from the beginning."""
        return cast('types.DeliveryView', self._connection.request("POST", f"/deliveries/{_quote(id)}/redeliver"))

    def list_failure_handlers(self, *, workflow_id: int | None = None, name: str | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_FailureHandlerView:
        """Lists failure handlers."""
        return cast('types.Page_FailureHandlerView', self._connection.request("GET", "/failure_handlers", {"workflow_id": workflow_id, "name": name, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_failure_handlers(self, *, workflow_id: int | None = None, name: str | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.FailureHandlerView]:
        """Every item of `list_failure_handlers`, page after page."""
        return self._pages(lambda start: self.list_failure_handlers(workflow_id=workflow_id, name=name, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def create_failure_handler(self, body: types.CreateFailureHandler) -> types.FailureHandlerView:
        """Creates a failure handler."""
        return cast('types.FailureHandlerView', self._connection.request("POST", "/failure_handlers", body=body, has_body=True))

    def delete_failure_handler(self, id: int) -> Any:
        """Deletes a failure handler; its jobs are left without one."""
        return cast('Any', self._connection.request("DELETE", f"/failure_handlers/{_quote(id)}"))

    def get_failure_handler(self, id: int) -> types.FailureHandlerView:
        """One failure handler."""
        return cast('types.FailureHandlerView', self._connection.request("GET", f"/failure_handlers/{_quote(id)}"))

    def update_failure_handler(self, id: int, body: types.UpdateFailureHandler) -> types.FailureHandlerView:
        """Changes a failure handler; failures from now on follow it."""
        return cast('types.FailureHandlerView', self._connection.request("PUT", f"/failure_handlers/{_quote(id)}", body=body, has_body=True))

    def list_files(self, *, workflow_id: int | None = None, name: str | None = None, path: str | None = None, search: str | None = None, produced_by_job_id: int | None = None, needed_by_job_id: int | None = None, look: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_FileView:
        """Lists files."""
        return cast('types.Page_FileView', self._connection.request("GET", "/files", {"workflow_id": workflow_id, "name": name, "path": path, "search": search, "produced_by_job_id": produced_by_job_id, "needed_by_job_id": needed_by_job_id, "look": look, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_files(self, *, workflow_id: int | None = None, name: str | None = None, path: str | None = None, search: str | None = None, produced_by_job_id: int | None = None, needed_by_job_id: int | None = None, look: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.FileView]:
        """Every item of `list_files`, page after page."""
        return self._pages(lambda start: self.list_files(workflow_id=workflow_id, name=name, path=path, search=search, produced_by_job_id=produced_by_job_id, needed_by_job_id=needed_by_job_id, look=look, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_file(self, id: int) -> types.FileView:
        """One file."""
        return cast('types.FileView', self._connection.request("GET", f"/files/{_quote(id)}"))

    def get_health(self) -> types.HealthAnswer:
        """Whether the server is well. Without a token only one word."""
        return cast('types.HealthAnswer', self._connection.request("GET", "/health"))

    def list_jobs(self, *, workflow_id: int | None = None, status: list[str] | None = None, name: str | None = None, search: str | None = None, upstream_job_id: int | None = None, needs_file_id: int | None = None, active_compute_node_id: int | None = None, held: bool | None = None, include_depends_on: bool | None = None, where: str | None = None, after: int | None = None, include_last: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_JobView:
        """Lists jobs."""
        return cast('types.Page_JobView', self._connection.request("GET", "/jobs", {"workflow_id": workflow_id, "status": status, "name": name, "search": search, "upstream_job_id": upstream_job_id, "needs_file_id": needs_file_id, "active_compute_node_id": active_compute_node_id, "held": held, "include_depends_on": include_depends_on, "where": where, "after": after, "include_last": include_last, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_jobs(self, *, workflow_id: int | None = None, status: list[str] | None = None, name: str | None = None, search: str | None = None, upstream_job_id: int | None = None, needs_file_id: int | None = None, active_compute_node_id: int | None = None, held: bool | None = None, include_depends_on: bool | None = None, where: str | None = None, include_last: bool | None = None) -> Iterator[types.JobView]:
        """Every item of `list_jobs`, page after page."""
        return self._pages(lambda start: self.list_jobs(workflow_id=workflow_id, status=status, name=name, search=search, upstream_job_id=upstream_job_id, needs_file_id=needs_file_id, active_compute_node_id=active_compute_node_id, held=held, include_depends_on=include_depends_on, where=where, include_last=include_last, after=start, limit=PAGE), True)

    def act_on_jobs(self, body: types.ActRequest) -> types.ActView:
        """Does something with all jobs of a workflow that a filter finds, or tells what would happen."""
        return cast('types.ActView', self._connection.request("POST", "/jobs/act", body=body, has_body=True))

    def cancel_jobs(self, body: types.CancelJobs) -> types.CanceledJobs:
        """Cancels jobs of one workflow."""
        return cast('types.CanceledJobs', self._connection.request("POST", "/jobs/cancel", body=body, has_body=True))

    def retry_jobs(self, body: types.RetryJobs) -> types.Page_JobView:
        """Tries several jobs again, each as a new attempt, or none of them."""
        return cast('types.Page_JobView', self._connection.request("POST", "/jobs/retry", body=body, has_body=True))

    def get_job(self, id: int) -> types.JobView:
        """One job."""
        return cast('types.JobView', self._connection.request("GET", f"/jobs/{_quote(id)}"))

    def update_job(self, id: int, body: types.UpdateJob) -> types.JobView:
        """Changes a job: its verdict, its place, what it may use."""
        return cast('types.JobView', self._connection.request("PUT", f"/jobs/{_quote(id)}", body=body, has_body=True))

    def list_job_attempts(self, id: int, *, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_AttemptView:
        """The attempts of a job over all runs, oldest first."""
        return cast('types.Page_AttemptView', self._connection.request("GET", f"/jobs/{_quote(id)}/attempts", {"offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_job_attempts(self, id: int, *, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.AttemptView]:
        """Every item of `list_job_attempts`, page after page."""
        return self._pages(lambda start: self.list_job_attempts(id, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_job_logs(self, id: int, *, stream: str | None = None, run_id: int | None = None, attempt_id: int | None = None, offset: int | None = None, limit: int | None = None) -> types.LogView:
        """A piece of an attempt's output."""
        return cast('types.LogView', self._connection.request("GET", f"/jobs/{_quote(id)}/logs", {"stream": stream, "run_id": run_id, "attempt_id": attempt_id, "offset": offset, "limit": limit}))

    def diff_job_logs(self, id: int, *, stream: str | None = None, run_id: int | None = None, attempt_id: int | None = None, before_run_id: int | None = None, before_attempt_id: int | None = None, around: int | None = None, offset: int | None = None, limit: int | None = None) -> types.LogDiffView:
        """Compares the ends of the outputs of two attempts of a job."""
        return cast('types.LogDiffView', self._connection.request("GET", f"/jobs/{_quote(id)}/logs/diff", {"stream": stream, "run_id": run_id, "attempt_id": attempt_id, "before_run_id": before_run_id, "before_attempt_id": before_attempt_id, "around": around, "offset": offset, "limit": limit}))

    def search_job_logs(self, id: int, *, text: str | None = None, regex: bool | None = None, case: bool | None = None, line: int | None = None, stream: str | None = None, run_id: int | None = None, attempt_id: int | None = None, limit: int | None = None) -> types.LogSearchView:
        """Looks for a text in the whole output of an attempt."""
        return cast('types.LogSearchView', self._connection.request("GET", f"/jobs/{_quote(id)}/logs/search", {"text": text, "regex": regex, "case": case, "line": line, "stream": stream, "run_id": run_id, "attempt_id": attempt_id, "limit": limit}))

    def retry_job(self, id: int, run_id: int, *, max_retries: int) -> types.JobView:
        """Tries a job again, as a new attempt."""
        return cast('types.JobView', self._connection.request("POST", f"/jobs/{_quote(id)}/retry/{_quote(run_id)}", {"max_retries": max_retries}))

    def get_job_samples(self, id: int, *, run_id: int | None = None, attempt_id: int | None = None) -> types.SamplesView:
        """Memory and CPU use of an attempt over time, where its runner kept samples."""
        return cast('types.SamplesView', self._connection.request("GET", f"/jobs/{_quote(id)}/samples", {"run_id": run_id, "attempt_id": attempt_id}))

    def spawn_jobs(self, id: int, body: types.SpawnJobs) -> types.SpawnedJobs:
        """A running job adds jobs to its workflow: all of them or none. A job's own token is good for it where
        the workflow allows `dynamic_jobs`."""
        return cast('types.SpawnedJobs', self._connection.request("POST", f"/jobs/{_quote(id)}/spawn_jobs", body=body, has_body=True))

    def get_job_why(self, id: int) -> types.WhyView:
        """Why a job is where it is."""
        return cast('types.WhyView', self._connection.request("GET", f"/jobs/{_quote(id)}/why"))

    def forget_knowledge(self, *, all: bool | None = None) -> types.KnowledgeForgotten:
        """Forgets everything that was learned."""
        return cast('types.KnowledgeForgotten', self._connection.request("DELETE", "/knowledge", {"all": all}))

    def get_knowledge(self) -> types.Knowledge:
        """Gives all that was learned from retries, as it can be taken in elsewhere."""
        return cast('types.Knowledge', self._connection.request("GET", "/knowledge"))

    def take_knowledge(self, body: types.Knowledge) -> types.KnowledgeTaken:
        """Takes in what was learned elsewhere. The same twice counts once."""
        return cast('types.KnowledgeTaken', self._connection.request("POST", "/knowledge", body=body, has_body=True))

    def forget_known_failure(self, fingerprint: str) -> types.KnowledgeForgotten:
        """Forgets what is known about one failure."""
        return cast('types.KnowledgeForgotten', self._connection.request("DELETE", f"/knowledge/{_quote(fingerprint)}"))

    def get_known_failure(self, fingerprint: str) -> types.KnownFailure:
        """Gives what is known about one failure."""
        return cast('types.KnownFailure', self._connection.request("GET", f"/knowledge/{_quote(fingerprint)}"))

    def list_limits(self) -> types.Page_LimitView:
        """Lists the named limits."""
        return cast('types.Page_LimitView', self._connection.request("GET", "/limits"))

    def delete_limit(self, name: str) -> Any:
        """Removes a named limit; jobs that use it are no longer bounded by it."""
        return cast('Any', self._connection.request("DELETE", f"/limits/{_quote(name)}"))

    def set_limit(self, name: str, body: types.SetLimit) -> types.LimitView:
        """Sets a named limit."""
        return cast('types.LimitView', self._connection.request("PUT", f"/limits/{_quote(name)}", body=body, has_body=True))

    def list_notifications(self) -> types.Page_NotificationView:
        """Lists who is told of what."""
        return cast('types.Page_NotificationView', self._connection.request("GET", "/notifications"))

    def create_notification(self, body: types.CreateNotification) -> types.NotificationView:
        """Asks for messages. The same twice is the same."""
        return cast('types.NotificationView', self._connection.request("POST", "/notifications", body=body, has_body=True))

    def delete_notification(self, id: int) -> types.NotificationView:
        """Ends messages."""
        return cast('types.NotificationView', self._connection.request("DELETE", f"/notifications/{_quote(id)}"))

    def test_notification(self, id: int) -> types.NotificationView:
        """Sends a message now, to see that it arrives."""
        return cast('types.NotificationView', self._connection.request("POST", f"/notifications/{_quote(id)}/test"))

    def get_openapi(self) -> dict[str, Any]:
        """This document."""
        return cast('dict[str, Any]', self._connection.request("GET", "/openapi.json"))

    def list_pool_runners(self, *, is_active: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_PoolRunnerView:
        """Lists pool runners: admins see all, others their own."""
        return cast('types.Page_PoolRunnerView', self._connection.request("GET", "/pool_runners", {"is_active": is_active, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_pool_runners(self, *, is_active: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.PoolRunnerView]:
        """Every item of `list_pool_runners`, page after page."""
        return self._pages(lambda start: self.list_pool_runners(is_active=is_active, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def register_pool_runner(self, body: types.RegisterPoolRunner) -> types.PoolRunnerView:
        """A pool runner introduces itself. Safe to repeat."""
        return cast('types.PoolRunnerView', self._connection.request("POST", "/pool_runners", body=body, has_body=True))

    def claim_for_pool(self, id: int, body: types.PoolClaimRequest) -> types.PoolClaimResponse:
        """A pool runner asks which workflow to serve next, and waits for one if it wants. Safe to repeat."""
        return cast('types.PoolClaimResponse', self._connection.request("POST", f"/pool_runners/{_quote(id)}/claim", body=body, has_body=True))

    def drain_pool_runner(self, id: int) -> types.PoolRunnerView:
        """A pool runner and its runners take no more jobs; what they hold goes on. Safe to repeat."""
        return cast('types.PoolRunnerView', self._connection.request("POST", f"/pool_runners/{_quote(id)}/drain"))

    def pool_goodbye(self, id: int, body: types.Goodbye) -> types.PoolRunnerView:
        """A pool runner leaves. Safe to repeat."""
        return cast('types.PoolRunnerView', self._connection.request("POST", f"/pool_runners/{_quote(id)}/goodbye", body=body, has_body=True))

    def pool_reads(self, id: int, body: types.PoolReadsRequest) -> types.PoolReads:
        """A pool runner hands over pieces of outputs, and waits for what else is to be read. Safe to repeat."""
        return cast('types.PoolReads', self._connection.request("POST", f"/pool_runners/{_quote(id)}/reads", body=body, has_body=True))

    def remove_pool_runner(self, id: int) -> types.PoolRunnerView:
        """A pool runner takes no more jobs and leaves when its runners hold none. Safe to repeat."""
        return cast('types.PoolRunnerView', self._connection.request("POST", f"/pool_runners/{_quote(id)}/remove"))

    def resume_pool_runner(self, id: int) -> types.PoolRunnerView:
        """A pool runner that was drained or removed takes jobs again."""
        return cast('types.PoolRunnerView', self._connection.request("POST", f"/pool_runners/{_quote(id)}/resume"))

    def list_reservations(self) -> types.Page_ReservationView:
        """Lists the newest reservations."""
        return cast('types.Page_ReservationView', self._connection.request("GET", "/reservations"))

    def create_reservation(self, body: types.CreateReservation) -> types.ReservationView:
        """Pauses claims in a scope. At most one reservation is active in a scope."""
        return cast('types.ReservationView', self._connection.request("POST", "/reservations", body=body, has_body=True))

    def get_reservation(self, id: int, *, until_running: int | None = None, wait_seconds: int | None = None) -> types.ReservationView:
        """One reservation, with what still runs in its scope."""
        return cast('types.ReservationView', self._connection.request("GET", f"/reservations/{_quote(id)}", {"until_running": until_running, "wait_seconds": wait_seconds}))

    def release_reservation(self, id: int, body: types.ReleaseReservation) -> types.ReservationView:
        """Ends a reservation; claims that waited for it look again."""
        return cast('types.ReservationView', self._connection.request("POST", f"/reservations/{_quote(id)}/release", body=body, has_body=True))

    def renew_reservation(self, id: int, body: types.ReservationToken) -> types.ReservationView:
        """Gives a reservation more time."""
        return cast('types.ReservationView', self._connection.request("POST", f"/reservations/{_quote(id)}/renew", body=body, has_body=True))

    def list_resource_requirements(self, *, workflow_id: int | None = None, name: str | None = None, job_id: int | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_RequirementsView:
        """Lists resource requirements."""
        return cast('types.Page_RequirementsView', self._connection.request("GET", "/resource_requirements", {"workflow_id": workflow_id, "name": name, "job_id": job_id, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_resource_requirements(self, *, workflow_id: int | None = None, name: str | None = None, job_id: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.RequirementsView]:
        """Every item of `list_resource_requirements`, page after page."""
        return self._pages(lambda start: self.list_resource_requirements(workflow_id=workflow_id, name=name, job_id=job_id, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_resource_requirements(self, id: int) -> types.RequirementsView:
        """One set of resource requirements."""
        return cast('types.RequirementsView', self._connection.request("GET", f"/resource_requirements/{_quote(id)}"))

    def list_results(self, *, workflow_id: int | None = None, job_id: int | None = None, run_id: int | None = None, return_code: int | None = None, status: str | None = None, cause: str | None = None, compute_node_id: int | None = None, all_runs: bool | None = None, diagnosis: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_AttemptView:
        """Lists results: the newest of each job, unless `run_id` or `all_runs` ask for more."""
        return cast('types.Page_AttemptView', self._connection.request("GET", "/results", {"workflow_id": workflow_id, "job_id": job_id, "run_id": run_id, "return_code": return_code, "status": status, "cause": cause, "compute_node_id": compute_node_id, "all_runs": all_runs, "diagnosis": diagnosis, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_results(self, *, workflow_id: int | None = None, job_id: int | None = None, run_id: int | None = None, return_code: int | None = None, status: str | None = None, cause: str | None = None, compute_node_id: int | None = None, all_runs: bool | None = None, diagnosis: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.AttemptView]:
        """Every item of `list_results`, page after page."""
        return self._pages(lambda start: self.list_results(workflow_id=workflow_id, job_id=job_id, run_id=run_id, return_code=return_code, status=status, cause=cause, compute_node_id=compute_node_id, all_runs=all_runs, diagnosis=diagnosis, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def list_scheduled_compute_nodes(self, *, workflow_id: int | None = None, status: str | None = None, slurm_job_id: str | None = None, name: str | None = None, unexplained: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_AllocationView:
        """Lists allocations."""
        return cast('types.Page_AllocationView', self._connection.request("GET", "/scheduled_compute_nodes", {"workflow_id": workflow_id, "status": status, "slurm_job_id": slurm_job_id, "name": name, "unexplained": unexplained, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_scheduled_compute_nodes(self, *, workflow_id: int | None = None, status: str | None = None, slurm_job_id: str | None = None, name: str | None = None, unexplained: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.AllocationView]:
        """Every item of `list_scheduled_compute_nodes`, page after page."""
        return self._pages(lambda start: self.list_scheduled_compute_nodes(workflow_id=workflow_id, status=status, slurm_job_id=slurm_job_id, name=name, unexplained=unexplained, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def create_scheduled_compute_nodes(self, body: types.ScheduleNodes) -> types.Allocations:
        """Asks for allocations; a submitter that reaches Slurm sends them. A repeat with the same key changes
        nothing."""
        return cast('types.Allocations', self._connection.request("POST", "/scheduled_compute_nodes", body=body, has_body=True))

    def begin_submission(self, body: types.BeginSubmission) -> types.SubmissionOrders:
        """Takes up what waits to be sent to Slurm; no other submitter gets it for two minutes."""
        return cast('types.SubmissionOrders', self._connection.request("POST", "/scheduled_compute_nodes/begin", body=body, has_body=True))

    def observe_scheduled_compute_nodes(self, body: types.Observations) -> types.ObservedView:
        """Takes in what was seen of allocations in Slurm."""
        return cast('types.ObservedView', self._connection.request("POST", "/scheduled_compute_nodes/observe", body=body, has_body=True))

    def report_submission(self, body: types.SubmissionReport) -> types.Allocations:
        """Tells how sending went."""
        return cast('types.Allocations', self._connection.request("POST", "/scheduled_compute_nodes/submitted", body=body, has_body=True))

    def get_scheduled_compute_node(self, id: int) -> types.AllocationView:
        """One allocation."""
        return cast('types.AllocationView', self._connection.request("GET", f"/scheduled_compute_nodes/{_quote(id)}"))

    def cancel_scheduled_compute_node(self, id: int) -> types.AllocationView:
        """Gives up an allocation that waits; a submitter that reaches Slurm takes it back."""
        return cast('types.AllocationView', self._connection.request("POST", f"/scheduled_compute_nodes/{_quote(id)}/cancel"))

    def get_allocation_output(self, id: int, *, stream: str | None = None, offset: int | None = None, limit: int | None = None) -> types.AllocationLogView:
        """A piece of what the batch job of an allocation wrote."""
        return cast('types.AllocationLogView', self._connection.request("GET", f"/scheduled_compute_nodes/{_quote(id)}/output", {"stream": stream, "offset": offset, "limit": limit}))

    def list_audit(self, *, user: str | None = None, before: int | None = None, limit: int | None = None) -> types.Page_AuditView:
        """Who changed what, the newest first."""
        return cast('types.Page_AuditView', self._connection.request("GET", "/server/audit", {"user": user, "before": before, "limit": limit}))

    def list_shares(self) -> types.Page_ShareView:
        """Lists the users that were given more or less of the pools than others."""
        return cast('types.Page_ShareView', self._connection.request("GET", "/server/shares"))

    def set_share(self, user: str, body: types.SetShare) -> types.ShareView:
        """Sets how much of the pools a user gets beside others."""
        return cast('types.ShareView', self._connection.request("PUT", f"/server/shares/{_quote(user)}", body=body, has_body=True))

    def get_usage(self) -> types.UsageView:
        """How much room the database and each workflow take."""
        return cast('types.UsageView', self._connection.request("GET", "/server/usage"))

    def vacuum_database(self) -> types.VacuumView:
        """Writes the database anew, without the room of what was deleted. Changes wait meanwhile."""
        return cast('types.VacuumView', self._connection.request("POST", "/server/vacuum"))

    def list_slurm_schedulers(self, *, workflow_id: int | None = None, name: str | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_SlurmSchedulerView:
        """Lists Slurm schedulers."""
        return cast('types.Page_SlurmSchedulerView', self._connection.request("GET", "/slurm_schedulers", {"workflow_id": workflow_id, "name": name, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_slurm_schedulers(self, *, workflow_id: int | None = None, name: str | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.SlurmSchedulerView]:
        """Every item of `list_slurm_schedulers`, page after page."""
        return self._pages(lambda start: self.list_slurm_schedulers(workflow_id=workflow_id, name=name, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_slurm_scheduler(self, id: int) -> types.SlurmSchedulerView:
        """One Slurm scheduler."""
        return cast('types.SlurmSchedulerView', self._connection.request("GET", f"/slurm_schedulers/{_quote(id)}"))

    def list_tokens(self) -> types.Page_TokenView:
        """Lists the tokens, without secrets."""
        return cast('types.Page_TokenView', self._connection.request("GET", "/tokens"))

    def create_token(self, body: types.CreateToken) -> types.TokenCreated:
        """Makes a token. Its secret is in this answer and nowhere else."""
        return cast('types.TokenCreated', self._connection.request("POST", "/tokens", body=body, has_body=True))

    def revoke_token(self, id: int) -> types.TokenView:
        """Ends a token at once."""
        return cast('types.TokenView', self._connection.request("DELETE", f"/tokens/{_quote(id)}"))

    def rotate_token(self, id: int) -> types.TokenCreated:
        """Gives a token another secret; the old one ends at once."""
        return cast('types.TokenCreated', self._connection.request("POST", f"/tokens/{_quote(id)}/rotate"))

    def create_ui_code(self, body: types.CreateUiCode) -> types.UiCode:
        """Makes a code that opens the page once."""
        return cast('types.UiCode', self._connection.request("POST", "/ui_codes", body=body, has_body=True))

    def list_ui_sessions(self) -> types.Page_UiSessionView:
        """Lists the sessions of the page."""
        return cast('types.Page_UiSessionView', self._connection.request("GET", "/ui_sessions"))

    def create_ui_session(self, body: types.CreateUiSession) -> types.UiSessionCreated:
        """Exchanges a code for a session."""
        return cast('types.UiSessionCreated', self._connection.request("POST", "/ui_sessions", body=body, has_body=True))

    def delete_current_ui_session(self) -> dict[str, Any]:
        """Ends the session that asks."""
        return cast('dict[str, Any]', self._connection.request("DELETE", "/ui_sessions/current"))

    def get_current_ui_session(self) -> types.UiSessionView:
        """The session that asks."""
        return cast('types.UiSessionView', self._connection.request("GET", "/ui_sessions/current"))

    def delete_ui_session(self, id: int) -> dict[str, Any]:
        """Ends a session of the page."""
        return cast('dict[str, Any]', self._connection.request("DELETE", f"/ui_sessions/{_quote(id)}"))

    def list_user_data(self, *, workflow_id: int | None = None, name: str | None = None, is_ephemeral: bool | None = None, producer_job_id: int | None = None, consumer_job_id: int | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_UserDataView:
        """Lists user data."""
        return cast('types.Page_UserDataView', self._connection.request("GET", "/user_data", {"workflow_id": workflow_id, "name": name, "is_ephemeral": is_ephemeral, "producer_job_id": producer_job_id, "consumer_job_id": consumer_job_id, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_user_data(self, *, workflow_id: int | None = None, name: str | None = None, is_ephemeral: bool | None = None, producer_job_id: int | None = None, consumer_job_id: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.UserDataView]:
        """Every item of `list_user_data`, page after page."""
        return self._pages(lambda start: self.list_user_data(workflow_id=workflow_id, name=name, is_ephemeral=is_ephemeral, producer_job_id=producer_job_id, consumer_job_id=consumer_job_id, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def get_user_data(self, id: int) -> types.UserDataView:
        """One piece of user data."""
        return cast('types.UserDataView', self._connection.request("GET", f"/user_data/{_quote(id)}"))

    def update_user_data(self, id: int, body: types.UpdateUserData) -> types.UserDataView:
        """Gives a piece of user data a new value."""
        return cast('types.UserDataView', self._connection.request("PUT", f"/user_data/{_quote(id)}", body=body, has_body=True))

    def list_user_access_groups(self, user_name: str) -> types.Page_AccessGroupView:
        """The groups that a user is in: one's own, or for admins those of every user."""
        return cast('types.Page_AccessGroupView', self._connection.request("GET", f"/users/{_quote(user_name)}/access_groups"))

    def list_webhooks(self) -> types.Page_WebhookView:
        """Lists the endpoints."""
        return cast('types.Page_WebhookView', self._connection.request("GET", "/webhooks"))

    def create_webhook(self, body: types.CreateWebhook) -> types.WebhookView:
        """Adds an endpoint. Its secret is in this answer and never again."""
        return cast('types.WebhookView', self._connection.request("POST", "/webhooks", body=body, has_body=True))

    def delete_webhook(self, id: int) -> Any:
        """Removes an endpoint with its deliveries."""
        return cast('Any', self._connection.request("DELETE", f"/webhooks/{_quote(id)}"))

    def get_webhook(self, id: int) -> types.WebhookView:
        """One endpoint."""
        return cast('types.WebhookView', self._connection.request("GET", f"/webhooks/{_quote(id)}"))

    def list_deliveries(self, id: int, *, state: str | None = None) -> types.Page_DeliveryView:
        """Lists an endpoint's newest deliveries."""
        return cast('types.Page_DeliveryView', self._connection.request("GET", f"/webhooks/{_quote(id)}/deliveries", {"state": state}))

    def list_workflows(self, *, name: str | None = None, user: str | None = None, project: str | None = None, search: str | None = None, is_archived: bool | None = None, include_archived: bool | None = None, include_progress: bool | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_WorkflowView:
        """Lists workflows."""
        return cast('types.Page_WorkflowView', self._connection.request("GET", "/workflows", {"name": name, "user": user, "project": project, "search": search, "is_archived": is_archived, "include_archived": include_archived, "include_progress": include_progress, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_workflows(self, *, name: str | None = None, user: str | None = None, project: str | None = None, search: str | None = None, is_archived: bool | None = None, include_archived: bool | None = None, include_progress: bool | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.WorkflowView]:
        """Every item of `list_workflows`, page after page."""
        return self._pages(lambda start: self.list_workflows(name=name, user=user, project=project, search=search, is_archived=is_archived, include_archived=include_archived, include_progress=include_progress, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def create_workflow(self, body: types.CreateWorkflow) -> types.WorkflowCreated:
        """Creates a workflow from a spec, in one transaction."""
        return cast('types.WorkflowCreated', self._connection.request("POST", "/workflows", body=body, has_body=True))

    def find_earlier_workflow(self, *, name: str, directory: str, spec_path: str | None = None, spec_digest: str | None = None) -> types.EarlierView:
        """Finds the workflow that a spec describes, if it was run before."""
        return cast('types.EarlierView', self._connection.request("GET", "/workflows/earlier", {"name": name, "directory": directory, "spec_path": spec_path, "spec_digest": spec_digest}))

    def import_workflow(self, body: types.ImportWorkflow) -> types.WorkflowCreated:
        """Creates a workflow with what happened to it elsewhere, in one transaction. Ids are given anew."""
        return cast('types.WorkflowCreated', self._connection.request("POST", "/workflows/import", body=body, has_body=True))

    def prune_workflows(self, body: types.PruneRequest) -> types.PruneView:
        """Deletes workflows that ended long ago."""
        return cast('types.PruneView', self._connection.request("POST", "/workflows/prune", body=body, has_body=True))

    def delete_workflow(self, id: int, *, force: bool | None = None, files: bool | None = None) -> types.RemovedFiles:
        """Deletes a workflow with everything that belongs to it."""
        return cast('types.RemovedFiles', self._connection.request("DELETE", f"/workflows/{_quote(id)}", {"force": force, "files": files}))

    def get_workflow(self, id: int) -> types.WorkflowView:
        """One workflow."""
        return cast('types.WorkflowView', self._connection.request("GET", f"/workflows/{_quote(id)}"))

    def update_workflow(self, id: int, body: types.UpdateWorkflow) -> types.WorkflowView:
        """Changes what a workflow says about itself."""
        return cast('types.WorkflowView', self._connection.request("PUT", f"/workflows/{_quote(id)}", body=body, has_body=True))

    def list_workflow_access_groups(self, id: int) -> types.Page_AccessGroupView:
        """The groups that a workflow is shared with."""
        return cast('types.Page_AccessGroupView', self._connection.request("GET", f"/workflows/{_quote(id)}/access_groups"))

    def unshare_workflow(self, id: int, group_id: int) -> types.SharedWorkflow:
        """Shares a workflow no longer with a group."""
        return cast('types.SharedWorkflow', self._connection.request("DELETE", f"/workflows/{_quote(id)}/access_groups/{_quote(group_id)}"))

    def share_workflow(self, id: int, group_id: int) -> types.SharedWorkflow:
        """Shares a workflow with a group. Safe to repeat."""
        return cast('types.SharedWorkflow', self._connection.request("PUT", f"/workflows/{_quote(id)}/access_groups/{_quote(group_id)}"))

    def list_actions(self, id: int, *, trigger_type: str | None = None, state: str | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_ActionView:
        """Lists the actions of a workflow."""
        return cast('types.Page_ActionView', self._connection.request("GET", f"/workflows/{_quote(id)}/actions", {"trigger_type": trigger_type, "state": state, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_actions(self, id: int, *, trigger_type: str | None = None, state: str | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.ActionView]:
        """Every item of `list_actions`, page after page."""
        return self._pages(lambda start: self.list_actions(id, trigger_type=trigger_type, state=state, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def list_adjustments(self, id: int, *, job_id: int | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_AdjustmentView:
        """Lists what recovery changed for jobs: from, to, why, by whom."""
        return cast('types.Page_AdjustmentView', self._connection.request("GET", f"/workflows/{_quote(id)}/adjustments", {"job_id": job_id, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_adjustments(self, id: int, *, job_id: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.AdjustmentView]:
        """Every item of `list_adjustments`, page after page."""
        return self._pages(lambda start: self.list_adjustments(id, job_id=job_id, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def list_allocation_uses(self, id: int) -> types.Page_AllocationUse:
        """What the allocations of a workflow cost and were good for, the newest first."""
        return cast('types.Page_AllocationUse', self._connection.request("GET", f"/workflows/{_quote(id)}/allocation_uses"))

    def apply_spec(self, id: int, body: types.ApplyRequest) -> types.ApplyView:
        """Applies a spec to a workflow: new jobs are added, changed ones run again, missing ones are removed,
        in one transaction and also while it runs."""
        return cast('types.ApplyView', self._connection.request("POST", f"/workflows/{_quote(id)}/apply", body=body, has_body=True))

    def cancel_workflow(self, id: int) -> types.StatusView:
        """Cancels a workflow: nothing new starts, what runs is stopped."""
        return cast('types.StatusView', self._connection.request("POST", f"/workflows/{_quote(id)}/cancel"))

    def claim(self, id: int, body: types.ClaimRequest) -> types.ClaimResponse:
        """A runner asks for work, and waits for it if it wants. Safe to repeat."""
        return cast('types.ClaimResponse', self._connection.request("POST", f"/workflows/{_quote(id)}/claim", body=body, has_body=True))

    def classify_failures(self, id: int, body: types.ClassifyRequest) -> types.ClassifyView:
        """Takes verdicts on jobs that wait for one: `retry` or `fail`, all or none."""
        return cast('types.ClassifyView', self._connection.request("POST", f"/workflows/{_quote(id)}/classify", body=body, has_body=True))

    def classify_from_memory(self, id: int, body: types.MemoryRequest | None = None) -> types.ClassifyView:
        """Lets the record of earlier verdicts decide where it is strong; what failed twice the same way is
        given up."""
        return cast('types.ClassifyView', self._connection.request("POST", f"/workflows/{_quote(id)}/classify_from_memory", body=body))

    def get_critical_path(self, id: int) -> types.CriticalPathView:
        """The jobs that decide when the run can end, and where its time went."""
        return cast('types.CriticalPathView', self._connection.request("GET", f"/workflows/{_quote(id)}/critical_path"))

    def list_events(self, id: int, *, after: int | None = None, kind: str | None = None, job_id: int | None = None, since_ms: int | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_EventView:
        """Lists the events of a workflow."""
        return cast('types.Page_EventView', self._connection.request("GET", f"/workflows/{_quote(id)}/events", {"after": after, "kind": kind, "job_id": job_id, "since_ms": since_ms, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_events(self, id: int, *, kind: str | None = None, job_id: int | None = None, since_ms: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.EventView]:
        """Every item of `list_events`, page after page."""
        return self._pages(lambda start: self.list_events(id, kind=kind, job_id=job_id, since_ms=since_ms, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def stream_events(self, id: int, *, after: int | None = None) -> Iterator[Any]:
        """The events of a workflow as they happen, as server-sent events. `Last-Event-ID` goes on where a
        stream broke off."""
        return self._connection.stream(f"/workflows/{_quote(id)}/events/stream", {"after": after})

    def list_failures(self, id: int) -> types.Page_FailureGroup:
        """Failures of a workflow by cause, those with the most jobs lost first."""
        return cast('types.Page_FailureGroup', self._connection.request("GET", f"/workflows/{_quote(id)}/failures"))

    def get_families(self, id: int, *, where: str | None = None) -> types.FamiliesView:
        """A workflow by families: what jobs of each stand where, and how the run goes."""
        return cast('types.FamiliesView', self._connection.request("GET", f"/workflows/{_quote(id)}/families", {"where": where}))

    def get_forecast(self, id: int, *, nodes: int | None = None, cores: int | None = None, memory_bytes: int | None = None, gpus: int | None = None, recover: bool | None = None) -> types.ForecastView:
        """When a workflow is expected to be over: with the runners that are there, or with the machines that
        are asked about. Of a complete workflow: how long all of it would take once more."""
        return cast('types.ForecastView', self._connection.request("GET", f"/workflows/{_quote(id)}/forecast", {"nodes": nodes, "cores": cores, "memory_bytes": memory_bytes, "gpus": gpus, "recover": recover}))

    def get_graph(self, id: int, *, group: types.GraphGroup | None = None, pattern: str | None = None, open: int | None = None, offset: int | None = None, focus: int | None = None, hops: int | None = None, to: int | None = None) -> types.GraphView:
        """The graph of a workflow by families or other groups, or the jobs around one of them, laid out."""
        return cast('types.GraphView', self._connection.request("GET", f"/workflows/{_quote(id)}/graph", {"group": group, "pattern": pattern, "open": open, "offset": offset, "focus": focus, "hops": hops, "to": to}))

    def initialize_workflow(self, id: int, *, force: bool | None = None) -> types.ResetView:
        """Starts a run with all jobs that are not initialized."""
        return cast('types.ResetView', self._connection.request("POST", f"/workflows/{_quote(id)}/initialize", {"force": force}))

    def is_workflow_complete(self, id: int) -> types.IsCompleteView:
        """Whether every job of a workflow is final."""
        return cast('types.IsCompleteView', self._connection.request("GET", f"/workflows/{_quote(id)}/is_complete"))

    def list_items(self, id: int, *, job: str | None = None, failed: bool | None = None) -> types.Page_ItemView:
        """Lists the items of a map."""
        return cast('types.Page_ItemView', self._connection.request("GET", f"/workflows/{_quote(id)}/items", {"job": job, "failed": failed}))

    def drop_items(self, id: int, body: types.ItemsRequest) -> types.Page_ItemView:
        """Takes items that ended badly out of the count; a map that failed because of them is looked at again."""
        return cast('types.Page_ItemView', self._connection.request("POST", f"/workflows/{_quote(id)}/items/drop", body=body, has_body=True))

    def retry_items(self, id: int, body: types.ItemsRequest) -> types.Page_ItemView:
        """Runs items again that ended badly; the map and its reduce follow."""
        return cast('types.Page_ItemView', self._connection.request("POST", f"/workflows/{_quote(id)}/items/retry", body=body, has_body=True))

    def list_pending_failures(self, id: int, *, groups: int | None = None, examples: int | None = None, fingerprint: str | None = None) -> types.PendingFailures:
        """Lists failures that wait for a verdict, like ones together, with the end of what some of them wrote."""
        return cast('types.PendingFailures', self._connection.request("GET", f"/workflows/{_quote(id)}/pending_failures", {"groups": groups, "examples": examples, "fingerprint": fingerprint}))

    def stream_pulse(self, id: int, *, jobs: str | None = None) -> Iterator[Any]:
        """The progress of a workflow as server-sent events: at most two frames a second, each of 8 KB at most,
        at any rate of jobs."""
        return self._connection.stream(f"/workflows/{_quote(id)}/pulse", {"jobs": jobs})

    def quarantine_node(self, id: int, body: types.QuarantineRequest) -> types.QuarantineView:
        """Keeps work from the runners of a workflow on one machine, or lets it come again."""
        return cast('types.QuarantineView', self._connection.request("POST", f"/workflows/{_quote(id)}/quarantine", body=body, has_body=True))

    def recover_workflow(self, id: int, body: types.RecoverRequest | None = None) -> types.RecoverView:
        """Recovers what failed: more memory, more time or the same again, as each diagnosis asks for. Ends
        what dead runners held first. A dry run answers with the same table and changes nothing."""
        return cast('types.RecoverView', self._connection.request("POST", f"/workflows/{_quote(id)}/recover", body=body))

    def regenerate(self, id: int, body: types.RegenerateRequest) -> types.RegeneratedView:
        """Gives the jobs that still have to run new schedulers, and asks for nodes if so said."""
        return cast('types.RegeneratedView', self._connection.request("POST", f"/workflows/{_quote(id)}/regenerate", body=body, has_body=True))

    def reinitialize_workflow(self, id: int, body: types.ReinitializeRequest | None = None, *, dry_run: bool | None = None, force: bool | None = None, run_id: int | None = None) -> types.ResetView:
        """Starts a run with what has changed since the last one."""
        return cast('types.ResetView', self._connection.request("POST", f"/workflows/{_quote(id)}/reinitialize", {"dry_run": dry_run, "force": force, "run_id": run_id}, body=body))

    def list_relations(self, id: int, *, kind: str | None = None, offset: int | None = None, limit: int | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> types.Page_RelationView:
        """What the jobs of a workflow depend on, read and write."""
        return cast('types.Page_RelationView', self._connection.request("GET", f"/workflows/{_quote(id)}/relations", {"kind": kind, "offset": offset, "limit": limit, "sort_by": sort_by, "reverse_sort": reverse_sort}))

    def iter_relations(self, id: int, *, kind: str | None = None, sort_by: str | None = None, reverse_sort: bool | None = None) -> Iterator[types.RelationView]:
        """Every item of `list_relations`, page after page."""
        return self._pages(lambda start: self.list_relations(id, kind=kind, sort_by=sort_by, reverse_sort=reverse_sort, offset=start, limit=PAGE), False)

    def reset_workflow_status(self, id: int, body: types.ResetRequest | None = None, *, failed_only: bool | None = None, dry_run: bool | None = None, force: bool | None = None, job: list[str] | None = None, job_id: list[int] | None = None, run_id: int | None = None) -> types.ResetView:
        """Resets jobs, so that they run again."""
        return cast('types.ResetView', self._connection.request("POST", f"/workflows/{_quote(id)}/reset_status", {"failed_only": failed_only, "dry_run": dry_run, "force": force, "job": job, "job_id": job_id, "run_id": run_id}, body=body))

    def list_family_resources(self, id: int) -> types.Page_FamilyResources:
        """What the families of a workflow asked for and used in its current run."""
        return cast('types.Page_FamilyResources', self._connection.request("GET", f"/workflows/{_quote(id)}/resources"))

    def list_revisions(self, id: int) -> list[types.RevisionView]:
        """What was applied to a workflow, newest first; revision 1 is its creation."""
        return cast('list[types.RevisionView]', self._connection.request("GET", f"/workflows/{_quote(id)}/revisions"))

    def get_workflow_spec(self, id: int) -> Any:
        """The spec a workflow was made from."""
        return cast('Any', self._connection.request("GET", f"/workflows/{_quote(id)}/spec"))

    def get_workflow_status(self, id: int) -> types.StatusView:
        """A workflow's progress."""
        return cast('types.StatusView', self._connection.request("GET", f"/workflows/{_quote(id)}/status"))

    def sync_status(self, id: int, body: types.SyncRequest | None = None) -> types.RecoveryView:
        """Ends what dead runners of this workflow held and repairs its rows. A second call finds nothing to
        do."""
        return cast('types.RecoveryView', self._connection.request("POST", f"/workflows/{_quote(id)}/sync_status", body=body))

    def get_timeline(self, id: int, *, run_id: int | None = None, after: int | None = None, rows: str | None = None, from_ms: int | None = None, until_ms: int | None = None) -> bytes:
        """Attempts over time, as columns of little-endian numbers."""
        return cast('bytes', self._connection.request("GET", f"/workflows/{_quote(id)}/timeline", {"run_id": run_id, "after": after, "rows": rows, "from_ms": from_ms, "until_ms": until_ms}))

    def get_workflow_why(self, id: int) -> types.WorkflowWhyView:
        """Why the jobs of a workflow that have not ended are where they are, grouped by reason."""
        return cast('types.WorkflowWhyView', self._connection.request("GET", f"/workflows/{_quote(id)}/why"))

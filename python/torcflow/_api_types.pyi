# Written by generate_client.py from docs/openapi.json; do not edit.
"""The types of the API. For type checkers only: answers are plain dictionaries."""

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

class AccessGroupView(TypedDict):
    created_ms: int
    description: NotRequired[str | None]
    id: int
    member_count: int
    name: str
    workflow_count: int
class ActRequest(TypedDict):
    action: ActWord
    by: NotRequired[str | None]
    dry_run: NotRequired[bool]
    value: NotRequired[str | None]
    where: NotRequired[str]
    workflow_id: WorkflowId
class ActView(TypedDict):
    command: str
    done: int
    dry_run: bool
    matched: int
    names: list[str]
    notes: list[str]
    others: int
    skipped: list[list[str | int]]
ActWord = Literal['retry', 'recover', 'cancel', 'hold', 'release', 'fail', 'priority', 'memory', 'runtime']
Action = Literal['more_memory', 'more_time', 'again', 'skip', 'impossible']
ActionId = int
class ActionPacket(TypedDict):
    id: ActionId
    trigger: Trigger
    what: dict[str, Any]
class ActionReport(TypedDict):
    error: NotRequired[str | None]
    return_code: int
    runner_id: RunnerId
ActionState = Literal['waiting', 'triggered', 'claimed', 'executed', 'failed']
class ActionView(TypedDict):
    error: NotRequired[str | None]
    executed_by: NotRequired[RunnerId | None]
    executed_ms: NotRequired[int | None]
    id: ActionId
    is_recovery: bool
    job_ids: list[JobId]
    persistent: bool
    state: ActionState
    trigger_type: Trigger
    what: dict[str, Any]
    workflow_id: WorkflowId
class AddMember(TypedDict):
    role: NotRequired[GroupRole | None]
    user_name: str
Adjustable = Literal['memory', 'runtime', 'timeout', 'num_cpus', 'num_gpus']
AdjustmentView = TypedDict('AdjustmentView', {'attempt_id': int, 'by': str, 'created_ms': int, 'field': Adjustable, 'from': NotRequired[int | None], 'id': int, 'job_id': JobId, 'job_name': str, 'run_id': int, 'to': int, 'why': str, 'workflow_id': WorkflowId})
AllocationEnd = Literal['reported', 'vanished', 'left', 'refused', 'not_sent']
class AllocationLogView(TypedDict):
    allocation_id: int
    next_offset: int
    offset: int
    path: str
    size: int
    text: str
AllocationStatus = Literal['planned', 'submitting', 'pending', 'active', 'complete']
class AllocationUse(TypedDict):
    allocation_id: int
    nodes: int
    paid_node_hours: float
    stop_by_ms: NotRequired[int | None]
    useful_node_hours: float
    walltime_seconds: NotRequired[int | None]
class AllocationView(TypedDict):
    action_id: NotRequired[ActionId | None]
    array_task: NotRequired[int | None]
    cause: NotRequired[Cause | None]
    created_ms: int
    ended_as: NotRequired[AllocationEnd | None]
    ended_ms: NotRequired[int | None]
    expected_start_ms: NotRequired[int | None]
    id: int
    max_parallel_jobs: NotRequired[int | None]
    missing_since_ms: NotRequired[int | None]
    moves: NotRequired[int]
    name: str
    reason: NotRequired[str | None]
    run_id: int
    runners: int
    scheduler: str
    scheduler_id: int
    slurm_job_id: NotRequired[str | None]
    start_one_worker_per_node: bool
    started_ms: NotRequired[int | None]
    state: NotRequired[str | None]
    status: AllocationStatus
    submitted_ms: NotRequired[int | None]
    unneeded_since_ms: NotRequired[int | None]
    was_too_short: bool
    why: NotRequired[str | None]
    workflow_id: WorkflowId
class Allocations(TypedDict):
    items: list[AllocationView]
class ApplyRequest(TypedDict):
    dry_run: NotRequired[bool]
    failed: NotRequired[bool]
    force: NotRequired[bool]
    rerun: NotRequired[list[str]]
    revision: NotRequired[int | None]
    run_id: NotRequired[int | None]
    running: NotRequired[RunningJobs]
    spec: NotRequired[dict[str, Any] | None]
    spec_path: NotRequired[str | None]
    touch: NotRequired[bool]
    user: NotRequired[str | None]
class ApplyView(TypedDict):
    counts: PlanCounts
    dry_run: bool
    is_change: bool
    is_complete: bool
    jobs: list[PlannedJob]
    revision: int
    run_id: int
    warnings: list[str]
    workflow_id: WorkflowId
AttemptId = int
class AttemptPacket(TypedDict):
    attempt_id: int
    command: str
    env: NotRequired[dict[str, str]]
    id: AttemptId
    invocation_script: NotRequired[str | None]
    is_limited_by_runtime: NotRequired[bool]
    job_id: JobId
    job_name: str
    lists: NotRequired[list[list[str]]]
    memory_bytes: NotRequired[int | None]
    num_cpus: int
    num_gpus: int
    num_nodes: int
    output_files: NotRequired[list[FileRef]]
    recovery: NotRequired[RecoveryScript | None]
    run_id: int
    stdio: NotRequired[dict[str, Any] | None]
    steps: NotRequired[Any]
    strictness: NotRequired[dict[str, Any]]
    time_limit_seconds: NotRequired[int | None]
    token: str
class AttemptRef(TypedDict):
    id: AttemptId
    token: str
AttemptState = Literal['queued', 'claimed', 'running', 'completed', 'failed', 'canceled', 'terminated']
class AttemptView(TypedDict):
    attempt_id: int
    cause: NotRequired[Cause | None]
    claimed_ms: NotRequired[int | None]
    compute_node_id: NotRequired[RunnerId | None]
    cpu_seconds: NotRequired[float | None]
    created_ms: int
    decision: NotRequired[str | None]
    detail: NotRequired[EndDetail | None]
    diagnosis: NotRequired[Diagnosis | None]
    ended_by: NotRequired[EndedBy | None]
    ended_ms: NotRequired[int | None]
    error: NotRequired[str | None]
    evidence: list[Evidence]
    exec_seconds: NotRequired[float | None]
    hostname: NotRequired[str | None]
    id: AttemptId
    job_id: JobId
    job_name: str
    memory_bytes: NotRequired[int | None]
    not_before_ms: NotRequired[int | None]
    observed: NotRequired[Observed | None]
    origin: Origin
    outcome: NotRequired[Outcome | None]
    peak_cpu_percent: NotRequired[float | None]
    peak_memory_bytes: NotRequired[int | None]
    pid: NotRequired[int | None]
    recovery: NotRequired[RecoveryScript | None]
    retry_of: NotRequired[AttemptId | None]
    return_code: NotRequired[int | None]
    rule: NotRequired[int | None]
    run_id: int
    script: NotRequired[ScriptResult | None]
    signal: NotRequired[int | None]
    started_ms: NotRequired[int | None]
    state: AttemptState
    stderr_path: NotRequired[str | None]
    stderr_tail: NotRequired[str | None]
    stderr_tail_start: NotRequired[int | None]
    stdout_path: NotRequired[str | None]
    steps: NotRequired[Any]
    time_limit_seconds: NotRequired[int | None]
    workflow_id: WorkflowId
class AuditView(TypedDict):
    at_ms: int
    id: int
    method: str
    path: str
    request_id: str
    token_id: NotRequired[int | None]
    user: str
class BeginSubmission(TypedDict):
    submitter: NotRequired[str]
    workflow_id: NotRequired[int | None]
class CancelJobs(TypedDict):
    job_ids: list[JobId]
class CanceledJobs(TypedDict):
    job_ids: list[JobId]
class Capacity(TypedDict):
    ignore_resources: NotRequired[bool]
    max_parallel_jobs: NotRequired[int | None]
    memory_bytes: NotRequired[int]
    num_cpus: NotRequired[int]
    num_gpus: NotRequired[int]
    num_nodes: NotRequired[int]
    spreads: NotRequired[bool]
Cause = Literal['exit', 'signal', 'oom', 'timeout', 'missing_output', 'spawn_error', 'lost', 'preempted', 'node_fail', 'walltime', 'canceled', 'stopped', 'checkpoint']
Change = TypedDict('Change', {'field': Adjustable, 'from': NotRequired[int | None], 'to': int})
class ClaimRequest(TypedDict):
    capacity: Capacity
    completed: NotRequired[list[CompletionReport]]
    is_alone: NotRequired[bool | None]
    key: str
    limit: int
    prefetch: NotRequired[int]
    runner_id: RunnerId
    started: NotRequired[list[StartReport]]
    strict_scheduler_match: NotRequired[bool]
    time_left_seconds: NotRequired[int | None]
    wait_seconds: NotRequired[float]
class ClaimResponse(TypedDict):
    actions: list[ActionPacket]
    attempts: list[AttemptPacket]
    cancel: list[AttemptId]
    completed: list[ReportResult]
    idle: bool
    is_alone: NotRequired[bool]
    leave: NotRequired[bool]
    reason: NotRequired[str | None]
    started: list[ReportResult]
    workflow_complete: bool
class Classification(TypedDict):
    action: Verdict
    confidence: NotRequired[float | None]
    evidence: NotRequired[list[str]]
    fingerprint: NotRequired[str | None]
    job_id: NotRequired[JobId | None]
    memory: NotRequired[Memory | None]
    reason: NotRequired[str | None]
    runtime: NotRequired[Runtime | None]
ClassificationState = Literal['applied', 'held', 'rejected', 'superseded']
class ClassificationView(TypedDict):
    action: Verdict
    agent: NotRequired[str | None]
    attempt_id: int
    by: str
    changes: list[Change]
    confidence: NotRequired[float | None]
    created_ms: int
    decided_by: NotRequired[str | None]
    decided_ms: NotRequired[int | None]
    evidence: list[str]
    fingerprint: NotRequired[str | None]
    id: int
    job_id: JobId
    job_name: str
    note: NotRequired[str | None]
    outcome: NotRequired[RetryOutcome | None]
    outcome_ms: NotRequired[int | None]
    reason: NotRequired[str | None]
    run_id: int
    state: ClassificationState
    workflow_id: WorkflowId
class ClassifyJob(TypedDict):
    action: Verdict
    attempt_id: int
    changes: list[Change]
    job_id: JobId
    name: str
    note: NotRequired[str | None]
    state: ClassificationState
class ClassifyRequest(TypedDict):
    agent: NotRequired[str | None]
    by: NotRequired[str | None]
    classifications: list[Classification]
    dry_run: NotRequired[bool]
class ClassifyView(TypedDict):
    dry_run: bool
    jobs_canceled: int
    jobs_held: int
    jobs_to_fail: int
    jobs_to_retry: int
    results: list[ClassifyJob]
    still_pending: int
    total_classifications: int
    workflow_id: WorkflowId
class CompletionBatch(TypedDict):
    items: list[CompletionReport]
    runner_id: RunnerId
class CompletionReport(TypedDict):
    avg_cpu_percent: NotRequired[float | None]
    avg_memory_bytes: NotRequired[int | None]
    cause: NotRequired[Cause | None]
    cpu_seconds: NotRequired[float | None]
    detail: NotRequired[EndDetail | None]
    ended_ms: int
    error: NotRequired[str | None]
    evidence: NotRequired[list[Evidence]]
    exec_seconds: float
    id: AttemptId
    observed: NotRequired[Observed | None]
    peak_cpu_percent: NotRequired[float | None]
    peak_memory_bytes: NotRequired[int | None]
    return_code: int
    script: NotRequired[ScriptResult | None]
    signal: NotRequired[int | None]
    started_ms: int
    stderr_path: NotRequired[str | None]
    stderr_tail: NotRequired[str | None]
    stderr_tail_start: NotRequired[int | None]
    stdout_path: NotRequired[str | None]
    steps: NotRequired[Any]
    token: str
class Counts(TypedDict):
    failed_other: int
    failed_same: int
    succeeded: int
    tries: int
class CreateAccessGroup(TypedDict):
    description: NotRequired[str | None]
    name: str
class CreateFailureHandler(TypedDict):
    name: str
    rules: str
    workflow_id: WorkflowId
class CreateNotification(TypedDict):
    allow_private: NotRequired[bool]
    events: NotRequired[list[NotifyEvent]]
    kind: NotifyKind
    target: str
    workflow_id: NotRequired[WorkflowId | None]
class CreateReservation(TypedDict):
    reserved_by: str
    scope: NotRequired[str]
    ttl_seconds: NotRequired[int | None]
class CreateToken(TypedDict):
    access_group_id: NotRequired[int | None]
    expires_seconds: NotRequired[int | None]
    name: NotRequired[str | None]
    role: Role
    user: str
    workflow_id: NotRequired[WorkflowId | None]
class CreateUiCode(TypedDict):
    label: NotRequired[str | None]
    scope: PageScope
class CreateUiSession(TypedDict):
    code: str
    remember: NotRequired[bool]
class CreateWebhook(TypedDict):
    allow_private: NotRequired[bool]
    events: NotRequired[list[str]]
    secret: NotRequired[str | None]
    url: str
    workflow_id: NotRequired[WorkflowId | None]
class CreateWorkflow(TypedDict):
    directory: NotRequired[str | None]
    force: NotRequired[bool]
    initialize: NotRequired[bool]
    key: NotRequired[str | None]
    spec: dict[str, Any]
    spec_path: NotRequired[str | None]
    user: NotRequired[str | None]
class CriticalJob(TypedDict):
    family: int
    gap_seconds: NotRequired[float]
    job_id: JobId
    name: str
    seconds: float
    status: JobStatus
class CriticalPathView(TypedDict):
    elapsed_seconds: float
    idle_end_cpu_seconds: NotRequired[float]
    jobs: list[CriticalJob]
    length: int
    lost_cpu_seconds: NotRequired[float]
    lost_seconds: float
    no_runner_seconds: NotRequired[float]
    seconds: float
    there_cpu_seconds: NotRequired[float]
    waited_seconds: float
    work_cpu_seconds: float
    workflow_id: WorkflowId
DeliveryState = Literal['pending', 'delivered', 'dead']
class DeliveryView(TypedDict):
    created_ms: int
    delivered_ms: NotRequired[int | None]
    event: str
    id: int
    last_error: NotRequired[str | None]
    next_try_ms: NotRequired[int | None]
    payload: dict[str, Any]
    state: DeliveryState
    tries: int
    webhook_id: int
class Diagnosis(TypedDict):
    confidence: float
    doubts: list[str]
    kind: Kind
    nature: Nature
    needs: NotRequired[Needs]
    proof: list[Proof]
    rule: NotRequired[str | None]
    summary: str
DiffWord = Literal['same', 'gone', 'new', 'equal']
class EarlierView(TypedDict):
    other: NotRequired[WorkflowView | None]
    workflow: NotRequired[WorkflowView | None]
EndDetail = Literal['recovery_script', 'told_to_stop', 'job_timeout', 'enforced_runtime', 'step_exit', 'step_signal', 'step_timeout', 'step_spawn', 'step_agent', 'step_expect', 'step_validation', 'step_capture', 'step_variable', 'step_walltime', 'start_not_found', 'start_denied', 'start_disk_full', 'start_quota', 'start_limit', 'start_file_system']
EndedBy = Literal['runner', 'recovery', 'unstarted', 'dropped']
class ErrorBody(TypedDict):
    error: ErrorInfo
ErrorCode = Literal['action_running', 'addition_differs', 'allocations_open', 'already_initialized', 'archived', 'being_canceled', 'body_too_large', 'busy', 'canceled', 'code_used', 'dynamic_jobs_limit', 'default_handler', 'duplicate_allocation', 'file_system_hangs', 'forbidden', 'incomplete_body', 'internal', 'invalid', 'invalid_body', 'invalid_field', 'invalid_json', 'invalid_path', 'invalid_query', 'invalid_spec', 'files_remain', 'job_running', 'max_retries_exceeded', 'revision_changed', 'run_changed', 'method_not_allowed', 'missing_files', 'outputs_shared', 'name_taken', 'no_such_item', 'not_a_map', 'not_classified', 'not_found', 'not_initialized', 'not_opted_in', 'nothing_to_recover', 'other_graph', 'out_of_space', 'recovering', 'reservation_ended', 'reserved', 'rounds_exhausted', 'run_mismatch', 'runner_ended', 'shutting_down', 'superseded', 'timeout', 'too_many_allocations', 'unauthorized', 'unavailable', 'unknown_host', 'unsupported_media_type', 'workflow_canceled', 'wrong_status', 'wrong_token', 'wrong_workflow']
class ErrorInfo(TypedDict):
    code: ErrorCode
    field: NotRequired[str | None]
    hint: NotRequired[str | None]
    message: str
EstimateSource = Literal['own', 'family', 'family_earlier', 'runtime']
EventKind = Literal['action_executed', 'action_triggered', 'allocation_ended', 'allocation_explained', 'allocation_requeued', 'allocation_started', 'allocation_unneeded', 'allocations_planned', 'allocations_refused', 'allocations_submitted', 'allocations_unknown', 'attempt_explained', 'classification_held', 'classification_rejected', 'handler_finished', 'handler_started', 'item_dropped', 'items_expanded', 'items_found', 'job_adjusted', 'job_canceled', 'job_changed', 'job_classified', 'job_completed', 'job_disabled', 'job_enabled', 'job_failed', 'job_held', 'job_pending_failed', 'job_released', 'job_repaired', 'job_retried', 'job_started', 'job_terminated', 'jobs_added', 'late_result', 'recovery_paused', 'recovery_resumed', 'retry_scheduled', 'runner_ended', 'runner_quarantined', 'runner_started', 'runner_tried_again', 'step_finished', 'step_ignored', 'step_recovered', 'step_resumed', 'step_started', 'workflow_canceled', 'workflow_completed', 'workflow_recovered', 'workflow_regenerated', 'workflow_reset', 'workflow_revised', 'workflow_started']
class EventView(TypedDict):
    data: dict[str, Any]
    id: int
    job_id: NotRequired[JobId | None]
    job_name: NotRequired[str | None]
    kind: EventKind
    timestamp_ms: int
    workflow_id: WorkflowId
class Evidence(TypedDict):
    source: EvidenceSource
    text: str
EvidenceSource = Literal['journal', 'kernel', 'scheduler', 'node', 'output', 'text', 'exit']
class Excerpt(TypedDict):
    start: int
    stream: NotRequired[Stream]
    text: str
class FailureGroup(TypedDict):
    count: int
    examples: list[PendingExample]
    fingerprint: Fingerprint
    job_ids: list[JobId]
    record: Record
    repeated: int
class FailureHandlerView(TypedDict):
    id: int
    name: str
    rules: str
    workflow_id: WorkflowId
class FamiliesView(TypedDict):
    at_ms: int
    busy_cpus: int
    counts: dict[str, int]
    cpus: int
    families: list[FamilyView]
    is_canceled: bool
    is_complete: bool
    last_end_ms: NotRequired[int | None]
    lost_contact_runners: int
    name: str
    pace: PaceView
    queue: NotRequired[QueueView | None]
    run_id: int
    runners: int
    started_ms: NotRequired[int | None]
    total: int
    workflow_id: WorkflowId
class FamilyResources(TypedDict):
    attempts: int
    cpus_asked: int
    cpus_used: NotRequired[float | None]
    dots: list[list[float | int]]
    memory_asked: NotRequired[int | None]
    memory_max: NotRequired[int | None]
    memory_median: NotRequired[int | None]
    memory_proposed: NotRequired[int | None]
    name: str
    number: int
    seconds_asked: NotRequired[int | None]
    seconds_max: NotRequired[float | None]
    seconds_median: NotRequired[float | None]
    seconds_sum: float
    wasted_cpu_hours: float
    wasted_gib_hours: float
class FamilyView(TypedDict):
    counts: dict[str, int]
    name: str
    number: int
    total: int
class FileNow(TypedDict):
    mtime_ms: NotRequired[int | None]
    size: NotRequired[int | None]
    state: FileState
class FileRef(TypedDict):
    min_size: NotRequired[int]
    name: str
    path: str
FileState = Literal['there', 'missing', 'changed', 'awaited', 'unknown']
class FileView(TypedDict):
    id: int
    mtime_ms: NotRequired[int | None]
    name: str
    now: NotRequired[FileNow | None]
    path: str
    size: NotRequired[int | None]
    workflow_id: WorkflowId
class Fingerprint(TypedDict):
    exception: NotRequired[str | None]
    family: str
    id: str
    kind: Kind
    program: str
    template: str
class ForecastView(TypedDict):
    bound_seconds: float
    cpus: int
    high_seconds: float
    is_again: bool
    jobs: int
    limited_by: LimitedBy
    low_seconds: float
    nodes: int
    seconds: float
    stuck_jobs: int
    unknown_jobs: int
    workflow_id: NotRequired[WorkflowId | None]
class Goodbye(TypedDict):
    cause: NotRequired[Cause | None]
    reason: str
class GoodbyeAnswer(TypedDict):
    actions: list[ActionPacket]
GraphEdge = TypedDict('GraphEdge', {'count': int, 'from': int, 'kind': str, 'to': int})
GraphGroup = Literal['family', 'prefix', 'pattern', 'job']
class GraphNode(TypedDict):
    across: float
    counts: dict[str, int]
    id: int
    name: str
    rank: int
    total: int
    where: NotRequired[str | None]
class GraphView(TypedDict):
    cells: NotRequired[list[list[int]]]
    edges: list[GraphEdge]
    group: GraphGroup
    left_out: int
    nodes: list[GraphNode]
    workflow_id: WorkflowId
GroupRole = Literal['member', 'admin']
class HealthAnswer(TypedDict):
    active_workflows: NotRequired[int]
    pid: NotRequired[int]
    started_ms: NotRequired[int]
    status: str
    version: NotRequired[str]
class Heartbeat(TypedDict):
    gone: NotRequired[list[AttemptId]]
    held: list[AttemptRef]
    runner_id: RunnerId
    step_events: NotRequired[list[StepEvents]]
class HeartbeatAnswer(TypedDict):
    cancel: list[AttemptId]
    forgotten: list[AttemptId]
    not_yours: list[AttemptId]
class ImportWorkflow(TypedDict):
    directory: NotRequired[str | None]
    key: NotRequired[str | None]
    past: NotRequired[Past]
    spec: dict[str, Any]
    user: NotRequired[str | None]
class IsCompleteView(TypedDict):
    is_canceled: bool
    is_complete: bool
    workflow_id: WorkflowId
ItemOutcome = Literal['ok', 'recovered', 'dropped', 'failed', 'open']
class ItemView(TypedDict):
    attempt_id: int
    captures: NotRequired[dict[str, Any] | None]
    error: NotRequired[str | None]
    is_gone: bool
    item: Any
    job_id: JobId
    key: str
    name: str
    outcome: ItemOutcome
    return_code: NotRequired[int | None]
    status: JobStatus
    stderr_path: NotRequired[str | None]
    stdout_path: NotRequired[str | None]
class ItemsRequest(TypedDict):
    item: NotRequired[dict[str, Any] | None]
    job: NotRequired[str]
    keys: NotRequired[list[str]]
    where: NotRequired[str | None]
JobId = int
JobStatus = Literal['uninitialized', 'blocked', 'ready', 'pending', 'running', 'completed', 'failed', 'canceled', 'terminated', 'disabled', 'pending_failed']
class JobView(TypedDict):
    attempt_id: int
    cancel_on_blocking_job_failure: bool
    command: str
    depends_on_job_ids: NotRequired[list[JobId] | None]
    estimate_seconds: NotRequired[float | None]
    estimate_source: NotRequired[EstimateSource | None]
    extra: NotRequired[dict[str, Any] | None]
    failure_handler: NotRequired[str | None]
    family: NotRequired[str]
    held: bool
    id: JobId
    ignored_steps: NotRequired[int]
    last: NotRequired[LastAttempt | None]
    memory: NotRequired[str | None]
    name: str
    num_cpus: int
    num_gpus: int
    num_nodes: int
    priority: int
    recovered_steps: NotRequired[int]
    resource_requirements: NotRequired[str | None]
    return_code: NotRequired[int | None]
    runtime: NotRequired[str | None]
    scheduler: NotRequired[str | None]
    status: JobStatus
    status_reason: NotRequired[StatusReason | None]
    workflow_id: WorkflowId
Kind = Literal['oom', 'gpu_oom', 'timeout', 'walltime', 'preempted', 'node_fail', 'lost', 'canceled', 'stopped', 'checkpoint', 'missing_output', 'command_not_found', 'permission', 'spawn_error', 'recovery_script', 'step', 'killed', 'crash', 'disk_full', 'quota', 'network', 'file_system', 'process_limit', 'license', 'missing_module', 'missing_file', 'mpi_abort', 'program_error', 'unknown']
class Knowledge(TypedDict):
    failures: list[KnownFailure]
    torc_knowledge: int
class KnowledgeForgotten(TypedDict):
    failures: int
class KnowledgeTaken(TypedDict):
    failures: int
    new: int
class KnownFailure(TypedDict):
    cause: str
    fingerprint: Fingerprint
    outcomes: list[KnownOutcome]
    seen_ms: int
class KnownOutcome(TypedDict):
    action: Tried
    day: int
    failed_other: int
    failed_same: int
    needed_bytes: NotRequired[int | None]
    needed_seconds: NotRequired[float | None]
    succeeded: int
    tries: int
    workflow: str
class LastAttempt(TypedDict):
    attempt_id: int
    cause: NotRequired[Cause | None]
    cpu_seconds: NotRequired[float | None]
    ended_ms: NotRequired[int | None]
    exec_seconds: NotRequired[float | None]
    hostname: NotRequired[str | None]
    memory_bytes: NotRequired[int | None]
    peak_memory_bytes: NotRequired[int | None]
    pid: NotRequired[int | None]
    run_id: int
    started_ms: NotRequired[int | None]
class LimitView(TypedDict):
    max: int
    name: str
    used: int
LimitedBy = Literal['critical_path', 'cpus', 'memory', 'gpus', 'queue']
class Liveness(TypedDict):
    status: str
class LogDiffLine(TypedDict):
    kind: DiffWord
    lines: NotRequired[int | None]
    text: str
class LogDiffView(TypedDict):
    differ: bool
    earlier: LogSide
    job_id: JobId
    later: LogSide
    lines: list[LogDiffLine]
    offset: int
    stream: Stream
    total_count: int
class LogHit(TypedDict):
    line: int
    offset: int
    text: str
class LogPiece(TypedDict):
    error: NotRequired[str | None]
    id: int
    length: int
    offset: int
    size: int
    text: str
class LogSearchView(TypedDict):
    hits: list[LogHit]
    lines: int
    searched: int
    size: int
    total: int
class LogSide(TypedDict):
    attempt_id: int
    read: int
    run_id: int
    size: int
class LogView(TypedDict):
    attempt_id: int
    job_id: JobId
    next_offset: int
    offset: int
    path: str
    run_id: int
    size: int
    stream: Stream
    text: str
class MemberView(TypedDict):
    group_id: int
    role: GroupRole
    user_name: str
Memory = str
class MemoryRequest(TypedDict):
    dry_run: NotRequired[bool]
Nature = Literal['transient', 'permanent', 'memory', 'time', 'unclear']
class Needs(TypedDict):
    memory_bytes: NotRequired[int | None]
    seconds: NotRequired[float | None]
    wait_seconds: NotRequired[float | None]
class NodeShape(TypedDict):
    max_runtime_seconds: NotRequired[int | None]
    memory_bytes: int
    num_cpus: int
    num_gpus: NotRequired[int]
class NotificationView(TypedDict):
    created_ms: int
    dead: int
    events: list[NotifyEvent]
    id: int
    kind: NotifyKind
    last_error: NotRequired[str | None]
    pending: int
    target: str
    workflow_id: NotRequired[WorkflowId | None]
NotifyEvent = Literal['end', 'failure', 'verdict']
NotifyKind = Literal['slack', 'teams', 'ntfy', 'mail', 'command']
class Observation(TypedDict):
    before: NotRequired[dict[str, Any]]
    expected_start_ms: NotRequired[int | None]
    id: int
    is_missing: NotRequired[bool]
    moves: NotRequired[int | None]
    slurm_job_id: NotRequired[str | None]
    verdict: dict[str, Any]
class Observations(TypedDict):
    dry_run: NotRequired[bool]
    items: NotRequired[list[Observation]]
class Observed(TypedDict):
    awaited_peer: NotRequired[str | None]
    excerpts: NotRequired[list[Excerpt]]
    recent_cpu_seconds: NotRequired[float | None]
    recent_io_bytes: NotRequired[int | None]
    recent_seconds: NotRequired[float | None]
    recent_wakeups: NotRequired[int | None]
    silent_seconds: NotRequired[float | None]
    stands: NotRequired[list[str]]
    would_go_on: NotRequired[bool]
class ObservedView(TypedDict):
    allocations_ended: int
    attempts_explained: NotRequired[int]
    details: list[str]
    dry_run: bool
    first_misses: NotRequired[list[str]]
    pending_allocations_cleaned: int
    runners_ended: int
    slurm_jobs_failed: int
    unknown: int
Origin = Literal['initial', 'handler', 'lost', 'classified', 'manual', 'recovered', 'auto', 'requeued', 'revised']
Outcome = Literal['Retried', 'NoHandler', 'NoMatchingRule', 'MaxRetriesExceeded', 'Error']
class PaceView(TypedDict):
    begin_ms: int
    ended: list[int]
    failed: list[int]
    running: NotRequired[list[int]]
    slot_ms: int
PageScope = Literal['read', 'act']
class Page_AccessGroupView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_ActionView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_AdjustmentView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_AllocationUse(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_AllocationView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_AttemptView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_AuditView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_ClassificationView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_DeliveryView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_EventView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_FailureGroup(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_FailureHandlerView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_FamilyResources(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_FileView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_ItemView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_JobView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_LimitView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_MemberView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_NotificationView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_PoolRunnerView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_RelationView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_RequirementsView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_ReservationView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_RunnerView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_ShareView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_SlurmSchedulerView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_TokenView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_UiSessionView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_UserDataView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_WebhookView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Page_WorkflowView(TypedDict):
    count: NotRequired[int]
    has_more: bool
    items: list[dict[str, Any]]
    max_limit: NotRequired[int]
    offset: int
    total_count: int
class Past(TypedDict):
    adjustments: NotRequired[list[AdjustmentView]]
    attempts: NotRequired[list[AttemptView]]
    classifications: NotRequired[list[ClassificationView]]
    events: NotRequired[list[EventView]]
    is_canceled: NotRequired[bool]
    jobs: NotRequired[list[JobView]]
    run_id: NotRequired[int]
    run_started_ms: NotRequired[int | None]
    runners: NotRequired[list[RunnerView]]
    user_data: NotRequired[list[UserDataView]]
class PendingExample(TypedDict):
    attempt_id: int
    cause: NotRequired[Cause | None]
    command: str
    diagnosis: NotRequired[Diagnosis | None]
    exec_time_minutes: NotRequired[float | None]
    held_classification_id: NotRequired[int | None]
    hostname: NotRequired[str | None]
    job_id: JobId
    memory: NotRequired[Memory | None]
    name: str
    peak_memory: NotRequired[Memory | None]
    proposal: NotRequired[Proposal | None]
    return_code: NotRequired[int | None]
    run_id: int
    runtime: NotRequired[Runtime | None]
    signal: NotRequired[int | None]
    stderr_read_error: NotRequired[str | None]
    untrusted_stderr_tail: str
class PendingFailures(TypedDict):
    confidence_threshold: float
    group_count: int
    groups: list[FailureGroup]
    pending_failed_count: int
    workflow_id: WorkflowId
    workflow_name: str
class Place(TypedDict):
    end: int
    start: int
class PlanCounts(TypedDict):
    changes: NotRequired[dict[str, int]]
    disabled: NotRequired[int]
    left: NotRequired[int]
    total: NotRequired[int]
    unfinished: NotRequired[int]
    up_to_date: NotRequired[int]
PlannedChange = Literal['new', 'command', 'steps', 'env', 'input_files', 'output_files', 'user_data', 'requirements', 'success', 'map', 'dependencies', 'script', 'input_modified', 'input_content', 'input_appeared', 'input_gone', 'input_overwritten', 'output_missing', 'asked', 'ended', 'upstream', 'accepted', 'removed']
class PlannedJob(TypedDict):
    change: PlannedChange
    job_id: NotRequired[JobId | None]
    name: str
    reason: str
    status: JobStatus
    what: NotRequired[str | None]
class PoolClaimRequest(TypedDict):
    unable: NotRequired[list[WorkflowId]]
    wait_seconds: NotRequired[float]
class PoolClaimResponse(TypedDict):
    leave: NotRequired[bool]
    workflow_id: NotRequired[WorkflowId | None]
class PoolReads(TypedDict):
    items: list[ReadLog]
class PoolReadsRequest(TypedDict):
    pieces: NotRequired[list[LogPiece]]
    wait_seconds: NotRequired[float]
PoolRunnerId = int
class PoolRunnerView(TypedDict):
    capacity: Capacity
    end_reason: NotRequired[str | None]
    ended_ms: NotRequired[int | None]
    held: int
    hostname: str
    id: PoolRunnerId
    label: NotRequired[str | None]
    last_seen_ms: int
    ordered: NotRequired[RunnerOrder | None]
    pid: int
    started_ms: int
    state: RunnerState
    user: NotRequired[str | None]
    workflows: int
class Proof(TypedDict):
    end: NotRequired[int | None]
    rank: int
    source: EvidenceSource
    start: NotRequired[int | None]
    stdout: NotRequired[Place | None]
    text: str
class Proposal(TypedDict):
    action: Action
    chance: float
    changes: list[Change]
    cost_seconds: NotRequired[float | None]
    why: str
class PruneRequest(TypedDict):
    dry_run: NotRequired[bool]
    files: NotRequired[bool]
    keep_failed: NotRequired[bool]
    older_than_seconds: int
class PruneView(TypedDict):
    dry_run: bool
    kept: list[str]
    workflows: list[PrunedWorkflow]
class PrunedWorkflow(TypedDict):
    ended_ms: int
    id: WorkflowId
    job_count: int
    name: str
    removed: RemovedFiles
    user: str
class PulseFailure(TypedDict):
    family: str
    jobs: int
    kind: Kind
PulseJob = list[int]
class PulseView(TypedDict):
    at_ms: int
    busy_cpus: int
    counts: list[int]
    cpus: int
    ended_last_minute: int
    failures: NotRequired[list[PulseFailure]]
    families: list[list[int | list[int]]]
    is_canceled: bool
    is_complete: bool
    jobs: NotRequired[list[PulseJob]]
    run_id: int
    runners: int
class QuarantineRequest(TypedDict):
    hostname: str
    reason: NotRequired[str | None]
    release: NotRequired[bool]
    seconds: NotRequired[int | None]
class QuarantineView(TypedDict):
    runners: int
    until_ms: NotRequired[int | None]
class QueueView(TypedDict):
    allocations: int
    expected_start_ms: NotRequired[int | None]
    since_ms: int
    why: NotRequired[str | None]
Raised = TypedDict('Raised', {'field': Adjustable, 'from': NotRequired[int | None], 'jobs': int, 'to': int})
class ReadLog(TypedDict):
    id: int
    limit: int
    offset: int
    path: str
class Record(TypedDict):
    again: Counts
    more_memory: Counts
    more_time: Counts
    near: Counts
    older: Counts
class RecoverJob(TypedDict):
    action: Action
    attempt_id: int
    chance: NotRequired[float]
    changes: list[Change]
    cost_seconds: NotRequired[float | None]
    diagnosis: Diagnosis
    fingerprint: NotRequired[str]
    job_id: JobId
    name: str
    reason: str
    record: NotRequired[Record]
    status: JobStatus
class RecoverRequest(TypedDict):
    by: NotRequired[str | None]
    dry_run: NotRequired[bool]
    job_ids: NotRequired[list[JobId]]
    max_memory_bytes: NotRequired[int | None]
    max_rounds: NotRequired[int | None]
    max_runtime_seconds: NotRequired[int | None]
    memory_multiplier: NotRequired[float | None]
    no_memory: NotRequired[bool]
    retry_unknown: NotRequired[bool]
    runtime_multiplier: NotRequired[float | None]
    shapes: NotRequired[list[NodeShape]]
class RecoverView(TypedDict):
    dry_run: bool
    jobs: list[RecoverJob]
    jobs_to_retry: list[JobId]
    memory_multiplier: NotRequired[float | None]
    oom_fixed: int
    orphans: RecoveryView
    other_failures: int
    reopened: list[JobId]
    rounds: int
    run_id: int
    runtime_multiplier: NotRequired[float | None]
    timeout_fixed: int
    unknown_retried: int
    workflow_id: WorkflowId
class RecoveryScript(TypedDict):
    failed_attempt_id: int
    on_failure: str
    return_code: int
    script: str
    timeout_seconds: int
class RecoveryView(TypedDict):
    details: list[str]
    dry_run: bool
    jobs_repaired: int
    reservations_expired: int
    retries_created: int
    runners_ended: int
    runners_silent: int
    running_jobs_recovered: int
class RegenerateGroup(TypedDict):
    allocations: list[int]
    has_dependencies: bool
    levels: list[list[JobId]]
    scheduler: dict[str, Any]
    start_one_worker_per_node: bool
class RegenerateRequest(TypedDict):
    groups: NotRequired[list[RegenerateGroup]]
    submit: NotRequired[bool]
class RegeneratedScheduler(TypedDict):
    has_dependencies: bool
    id: int
    job_count: int
    name: str
    num_allocations: int
    reused: bool
class RegeneratedView(TypedDict):
    actions_claimed: int
    actions_created: int
    allocations_created: int
    allocations_kept: int
    schedulers_created: list[RegeneratedScheduler]
class RegisterPoolRunner(TypedDict):
    capacity: Capacity
    hostname: str
    key: str
    label: NotRequired[str | None]
    pid: int
class RegisterRunner(TypedDict):
    boot_id: str
    capacity: Capacity
    force: NotRequired[bool]
    hostname: str
    key: str
    kind: RunnerKind
    label: NotRequired[str | None]
    output_dir: str
    pid: int
    pid_start: int
    pool_runner_id: NotRequired[PoolRunnerId | None]
    scheduler: NotRequired[RunnerScheduler | None]
    time_left_seconds: NotRequired[int | None]
    workflow_id: WorkflowId
class ReinitializeRequest(TypedDict):
    dry_run: NotRequired[bool]
    force: NotRequired[bool]
    run_id: NotRequired[int | None]
    spec: NotRequired[Any]
RelationKind = Literal['depends_on', 'input_file', 'output_file', 'input_user_data', 'output_user_data']
class RelationView(TypedDict):
    item_id: int
    item_name: str
    job_id: JobId
    job_name: str
    kind: RelationKind
class ReleaseReservation(TypedDict):
    token: NotRequired[str | None]
class RemovedFiles(TypedDict):
    bytes: int
    files: int
    unseen: NotRequired[list[str]]
class ReportResult(TypedDict):
    id: AttemptId
    job_status: NotRequired[JobStatus | None]
    outcome: NotRequired[Outcome | None]
    result: ReportVerdict
class ReportResults(TypedDict):
    results: list[ReportResult]
ReportVerdict = Literal['accepted', 'repeated', 'late']
class RequirementsView(TypedDict):
    id: int
    memory: NotRequired[str | None]
    name: str
    num_cpus: int
    num_gpus: int
    num_nodes: int
    runtime: NotRequired[str | None]
    workflow_id: WorkflowId
ReservationStatus = Literal['ACTIVE', 'RELEASED', 'EXPIRED']
class ReservationToken(TypedDict):
    token: str
    ttl_seconds: NotRequired[int | None]
class ReservationView(TypedDict):
    ended_ms: NotRequired[int | None]
    expires_ms: int
    id: int
    reserved_by: str
    reserved_ms: int
    scope: str
    status: ReservationStatus
    still_running: NotRequired[int | None]
    token: NotRequired[str | None]
ResetJob = TypedDict('ResetJob', {'from': JobStatus, 'job_id': JobId, 'name': str, 'reason': str})
class ResetRequest(TypedDict):
    dry_run: NotRequired[bool]
    failed_only: NotRequired[bool]
    force: NotRequired[bool]
    jobs: NotRequired[list[str]]
    run_id: NotRequired[int | None]
class ResetView(TypedDict):
    dry_run: bool
    jobs: list[ResetJob]
    run_id: int
    warnings: list[str]
    workflow_id: WorkflowId
class ResolveRequest(TypedDict):
    by: NotRequired[str | None]
class RetryJobs(TypedDict):
    jobs: list[RetryOne]
class RetryOne(TypedDict):
    job_id: JobId
    max_retries: int
    run_id: int
RetryOutcome = Literal['succeeded', 'failed_same', 'failed_other', 'canceled']
class RevisionView(TypedDict):
    counts: PlanCounts
    made_by: str
    made_ms: int
    revision: int
    run_id: int
Role = Literal['read', 'operate', 'admin']
RunnerId = int
RunnerKind = Literal['local', 'slurm', 'recovery']
RunnerOrder = Literal['drain', 'remove']
class RunnerRegistered(TypedDict):
    checkpoint_exit_code: NotRequired[int | None]
    disown_seconds: NotRequired[int | None]
    env: dict[str, str]
    execution: dict[str, Any]
    id: RunnerId
    idle_seconds: int
    ignore_completion: bool
    job_key: str
    lease_seconds: int
    resource_monitor: dict[str, Any]
    run_id: int
    tag: str
    wait_for_server_seconds: NotRequired[int]
    workflow_name: str
class RunnerScheduler(TypedDict):
    allocation_id: NotRequired[int | None]
    node: NotRequired[int | None]
    node_name: NotRequired[str | None]
    restarts: NotRequired[int | None]
    scheduler_config_id: NotRequired[int | None]
    slurm_job_id: NotRequired[str | None]
RunnerState = Literal['active', 'lost_contact', 'ended']
class RunnerUse(TypedDict):
    memory_bytes: int
    num_cpus: int
    num_gpus: int
class RunnerView(TypedDict):
    capacity: Capacity
    end_reason: NotRequired[str | None]
    ended_ms: NotRequired[int | None]
    held: int
    hostname: str
    id: RunnerId
    kind: RunnerKind
    last_seen_ms: int
    ordered: NotRequired[RunnerOrder | None]
    pid: int
    quarantine: NotRequired[str | None]
    scheduler: NotRequired[RunnerScheduler | None]
    started_ms: int
    state: RunnerState
    stop_by_ms: NotRequired[int | None]
    used: NotRequired[RunnerUse]
    workflow_id: WorkflowId
RunningJobs = Literal['finish', 'stop']
Runtime = str
SamplePoint = list[dict[str, Any]]
class SamplesView(TypedDict):
    attempt_id: int
    job_id: JobId
    memory_limit_bytes: NotRequired[int | None]
    points: list[SamplePoint]
    run_id: int
class ScheduleNodes(TypedDict):
    count: NotRequired[int]
    key: NotRequired[str]
    max_parallel_jobs: NotRequired[int | None]
    scheduler: NotRequired[str]
    start_one_worker_per_node: NotRequired[bool]
    workflow_id: NotRequired[int]
class ScriptResult(TypedDict):
    exec_seconds: float
    return_code: int
    stderr_path: NotRequired[str | None]
    stdout_path: NotRequired[str | None]
    timed_out: bool
class SetLimit(TypedDict):
    max: int
class SetShare(TypedDict):
    weight: float
class ShareView(TypedDict):
    user: str
    weight: float
class SharedWorkflow(TypedDict):
    group_id: int
    workflow_id: WorkflowId
SlurmSchedulerView = dict[str, Any]
SpawnJobs = dict[str, Any]
class SpawnedJobs(TypedDict):
    is_repeat: bool
    iteration: int
    lineage: str
    spawned_job_ids: list[JobId]
class StartBatch(TypedDict):
    items: list[StartReport]
    runner_id: RunnerId
class StartReport(TypedDict):
    at_ms: int
    id: AttemptId
    pid: int
    token: str
StatusReason = Literal['dependency_failed', 'waits_for_items', 'too_many_items_failed', 'given_up', 'item_gone', 'dropped', 'canceled_by_user', 'disabled_by_user', 'classified_permanent', 'removed', 'accepted']
class StatusView(TypedDict):
    active_runners: int
    counts: dict[str, int]
    ignored_steps: NotRequired[int]
    is_archived: bool
    is_canceled: bool
    is_complete: bool
    last_end_ms: NotRequired[int | None]
    lost_contact_runners: int
    name: str
    recovered_steps: NotRequired[int]
    run_id: int
    started_ms: NotRequired[int | None]
    total: int
    workflow_id: WorkflowId
StepEvents = TypedDict('StepEvents', {'attempt': AttemptRef, 'events': list[dict[str, Any]], 'from': int})
Stream = Literal['stdout', 'stderr', 'script_stdout', 'script_stderr']
class SubmissionOrder(TypedDict):
    count: int
    defaults: dict[str, Any]
    directory: NotRequired[str | None]
    end_seconds: NotRequired[int]
    look_first: bool
    max_parallel_jobs: NotRequired[int | None]
    name: str
    scheduler: dict[str, Any]
    scheduler_id: int
    start_one_worker_per_node: bool
    token: str
    wait_for_server_minutes: NotRequired[int]
    workflow_id: WorkflowId
class SubmissionOrders(TypedDict):
    items: list[SubmissionOrder]
SubmissionOutcome = dict[str, Any]
class SubmissionReport(TypedDict):
    name: str
    outcome: SubmissionOutcome
    submitter: str
    workflow_id: WorkflowId
class SyncRequest(TypedDict):
    dry_run: NotRequired[bool]
class TokenCreated(TypedDict):
    access_group_id: NotRequired[int | None]
    created_ms: int
    expires_ms: NotRequired[int | None]
    id: int
    last_used_ms: NotRequired[int | None]
    name: NotRequired[str | None]
    role: Role
    token: str
    user: str
    workflow_id: NotRequired[WorkflowId | None]
class TokenView(TypedDict):
    access_group_id: NotRequired[int | None]
    created_ms: int
    expires_ms: NotRequired[int | None]
    id: int
    last_used_ms: NotRequired[int | None]
    name: NotRequired[str | None]
    role: Role
    user: str
    workflow_id: NotRequired[WorkflowId | None]
Tried = Literal['again', 'more_memory', 'more_time']
Trigger = Literal['on_workflow_start', 'on_workflow_complete', 'on_jobs_ready', 'on_jobs_complete', 'on_worker_start', 'on_worker_complete', 'auto_schedule_on_ready_jobs']
class UiCode(TypedDict):
    code: str
    expires_ms: int
    socket: NotRequired[str | None]
class UiSessionCreated(TypedDict):
    session: UiSessionView
    token: str
class UiSessionView(TypedDict):
    created_ms: int
    expires_ms: int
    id: int
    label: NotRequired[str | None]
    scope: PageScope
class UpdateFailureHandler(TypedDict):
    name: NotRequired[str | None]
    rules: NotRequired[str | None]
class UpdateJob(TypedDict):
    by: NotRequired[str | None]
    held: NotRequired[bool | None]
    memory: NotRequired[Memory | None]
    num_cpus: NotRequired[int | None]
    num_gpus: NotRequired[int | None]
    priority: NotRequired[int | None]
    reason: NotRequired[str | None]
    runtime: NotRequired[Runtime | None]
    status: NotRequired[JobStatus | None]
class UpdateUserData(TypedDict):
    data: Any
class UpdateWorkflow(TypedDict):
    auto_recover: NotRequired[bool | None]
    description: NotRequired[str | None]
    is_archived: NotRequired[bool | None]
    metadata: NotRequired[Any]
    name: NotRequired[str | None]
    project: NotRequired[str | None]
    user: NotRequired[str | None]
class UsageView(TypedDict):
    database_bytes: int
    database_free_bytes: int
    disk_bytes: NotRequired[int | None]
    disk_free_bytes: NotRequired[int | None]
    is_low: bool
    log_bytes: int
    unseen: NotRequired[list[str]]
    workflows: list[WorkflowUsage]
class UserDataView(TypedDict):
    data: NotRequired[Any]
    id: int
    is_ephemeral: bool
    name: str
    workflow_id: WorkflowId
class VacuumView(TypedDict):
    bytes_after: int
    bytes_before: int
Verdict = Literal['retry', 'fail']
class WaitGroup(TypedDict):
    hints: list[str]
    jobs: int
    sample: JobId
    sample_name: str
    status: JobStatus
    summary: str
class WebhookView(TypedDict):
    allow_private: bool
    created_ms: int
    dead: int
    events: list[str]
    id: int
    pending: int
    secret: NotRequired[str | None]
    url: str
    workflow_id: NotRequired[WorkflowId | None]
class WhyView(TypedDict):
    adjustments: NotRequired[list[AdjustmentView]]
    attempt: NotRequired[AttemptView | None]
    details: list[str]
    diagnosis: NotRequired[Diagnosis | None]
    hints: list[str]
    job: JobView
    remedy: NotRequired[RecoverJob | None]
    summary: str
class WorkflowCreated(TypedDict):
    id: WorkflowId
    job_count: int
    name: str
    run_id: int
    warnings: list[str]
WorkflowId = int
class WorkflowProgress(TypedDict):
    active_runners: int
    counts: dict[str, int]
    is_complete: bool
    last_end_ms: NotRequired[int | None]
    started_ms: NotRequired[int | None]
class WorkflowUsage(TypedDict):
    attempts: int
    database_bytes: int
    events: int
    file_bytes: int
    files: int
    id: WorkflowId
    is_archived: bool
    jobs: int
    name: str
    user: str
class WorkflowView(TypedDict):
    created_ms: int
    description: NotRequired[str | None]
    directory: NotRequired[str | None]
    enable_ro_crate: NotRequired[bool]
    id: WorkflowId
    is_archived: bool
    is_canceled: bool
    job_count: int
    metadata: NotRequired[Any]
    name: str
    progress: NotRequired[WorkflowProgress | None]
    project: NotRequired[str | None]
    revision: NotRequired[int]
    run_id: int
    slurm_defaults: NotRequired[dict[str, Any]]
    spec_path: NotRequired[str | None]
    use_pending_failed: bool
    user: str
class WorkflowWhyView(TypedDict):
    left_out: int
    waiting: list[WaitGroup]
    workflow_id: WorkflowId

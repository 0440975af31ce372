//! The codes of refusals: stable words by which programs tell them apart.

use crate::status::words;
use serde::{Deserialize, Serialize};
use std::fmt;

words! {
    /// Why a request was not carried out.
    ErrorCode {
        /// An action of the workflow is being executed.
        ActionRunning = "action_running",
        /// The job has added something else under this key.
        AdditionDiffers = "addition_differs",
        /// Allocations of the workflow wait or run in the batch system.
        AllocationsOpen = "allocations_open",
        /// The workflow was initialized before.
        AlreadyInitialized = "already_initialized",
        /// The workflow is archived.
        Archived = "archived",
        /// Jobs are being canceled at this moment.
        BeingCanceled = "being_canceled",
        /// The body is larger than the server takes.
        BodyTooLarge = "body_too_large",
        /// The database is busy.
        Busy = "busy",
        /// The workflow is canceled.
        Canceled = "canceled",
        /// The link to the page was used before, or is too old.
        CodeUsed = "code_used",
        /// More jobs would be added than the workflow allows.
        DynamicJobsLimit = "dynamic_jobs_limit",
        /// The failure handler is the default of its workflow.
        DefaultHandler = "default_handler",
        /// An allocation has this name already.
        DuplicateAllocation = "duplicate_allocation",
        /// A file system with files that are needed does not answer.
        FileSystemHangs = "file_system_hangs",
        /// The token does not allow it.
        Forbidden = "forbidden",
        /// The body broke off.
        IncompleteBody = "incomplete_body",
        /// A fault of the server.
        Internal = "internal",
        /// A value is wrong.
        Invalid = "invalid",
        /// The body cannot be read.
        InvalidBody = "invalid_body",
        /// A field of the body is wrong.
        InvalidField = "invalid_field",
        /// The body is not JSON.
        InvalidJson = "invalid_json",
        /// A part of the path is wrong.
        InvalidPath = "invalid_path",
        /// The query is wrong.
        InvalidQuery = "invalid_query",
        /// The spec has mistakes.
        InvalidSpec = "invalid_spec",
        /// Files of jobs could not be removed.
        FilesRemain = "files_remain",
        /// Jobs run that must not.
        JobRunning = "job_running",
        /// The job has had all attempts that it may have.
        MaxRetriesExceeded = "max_retries_exceeded",
        /// Another caller has applied a new revision of the spec.
        RevisionChanged = "revision_changed",
        /// Another caller has begun the next run.
        RunChanged = "run_changed",
        /// The route does not know this method.
        MethodNotAllowed = "method_not_allowed",
        /// Input files are not there.
        MissingFiles = "missing_files",
        /// A workflow that is running writes the same files.
        OutputsShared = "outputs_shared",
        /// Something else has this name.
        NameTaken = "name_taken",
        /// The map has no such item.
        NoSuchItem = "no_such_item",
        /// The job is not a map.
        NotAMap = "not_a_map",
        /// There is no verdict of this kind on the job.
        NotClassified = "not_classified",
        /// There is no such thing.
        NotFound = "not_found",
        /// The workflow is not initialized.
        NotInitialized = "not_initialized",
        /// The workflow does not use `pending_failed`.
        NotOptedIn = "not_opted_in",
        /// No job has failed.
        NothingToRecover = "nothing_to_recover",
        /// The spec has other jobs or dependencies than the workflow.
        OtherGraph = "other_graph",
        /// The disk is full.
        OutOfSpace = "out_of_space",
        /// The server has just started and settles what an earlier one left.
        Recovering = "recovering",
        /// The reservation is over.
        ReservationEnded = "reservation_ended",
        /// Another reservation holds the scope.
        Reserved = "reserved",
        /// All automatic rounds of recovery are used up.
        RoundsExhausted = "rounds_exhausted",
        /// Another run than the current one was named.
        RunMismatch = "run_mismatch",
        /// The runner has ended, or never was.
        RunnerEnded = "runner_ended",
        /// The server is stopping.
        ShuttingDown = "shutting_down",
        /// A newer verdict took the place of this one.
        Superseded = "superseded",
        /// The request took too long.
        Timeout = "timeout",
        /// The workflow would have more allocations than one may have.
        TooManyAllocations = "too_many_allocations",
        /// The token is missing or unknown.
        Unauthorized = "unauthorized",
        /// Not now.
        Unavailable = "unavailable",
        /// The `Host` header names another host.
        UnknownHost = "unknown_host",
        /// The body is of a type that the route does not take.
        UnsupportedMediaType = "unsupported_media_type",
        /// The workflow is canceled, so that nothing of it would be started.
        WorkflowCanceled = "workflow_canceled",
        /// The status of the job does not allow it.
        WrongStatus = "wrong_status",
        /// The token of the reservation is wrong.
        WrongToken = "wrong_token",
        /// It belongs to another workflow.
        WrongWorkflow = "wrong_workflow",
    }
}

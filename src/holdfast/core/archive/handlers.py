"""What the archive publishes to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.archive import apply, confirm, decide
from holdfast.core.archive.messages import (
    AcceptNotice,
    ArchiveLost,
    BlobArchived,
    BlobsPruned,
    BlobsRecalled,
    ConfirmNotice,
    IntendUpload,
    NoticeConfirmed,
    PruneBlobs,
    RecallBlobs,
    RecordUploadFailure,
    ReportLost,
    RetryUploads,
    UploadFailed,
    UploadIntended,
    UploadsRetried,
)
from holdfast.core.base.handlers import Commands, Events

COMMANDS: Final[Commands] = {
    IntendUpload: decide.intend_upload,
    RecordUploadFailure: decide.record_failure,
    RetryUploads: decide.retry_uploads,
    AcceptNotice: decide.accept_notice,
    PruneBlobs: decide.prune_blobs,
    ReportLost: decide.report_lost,
    ConfirmNotice: confirm.confirm_notice,
    RecallBlobs: decide.recall_blobs,
}
EVENTS: Final[Events] = {
    UploadIntended: apply.apply_intended,
    UploadFailed: apply.apply_failed,
    UploadsRetried: apply.apply_retried,
    BlobArchived: apply.apply_archived,
    BlobsPruned: apply.apply_pruned,
    ArchiveLost: apply.apply_lost,
    NoticeConfirmed: confirm.apply_confirmed,
    BlobsRecalled: apply.apply_recalled,
}

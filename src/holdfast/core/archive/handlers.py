"""What the archive publishes to the state machine."""

from __future__ import annotations

from typing import Final

from holdfast.core.archive import apply, confirm, decide, messages
from holdfast.core.base.handlers import Commands, Events

COMMANDS: Final[Commands] = {
    messages.IntendUpload: decide.intend_upload,
    messages.RecordUploadFailure: decide.record_failure,
    messages.RetryUploads: decide.retry_uploads,
    messages.AcceptNotice: decide.accept_notice,
    messages.PruneBlobs: decide.prune_blobs,
    messages.ReportLost: decide.report_lost,
    messages.ConfirmNotice: confirm.confirm_notice,
    messages.RecallBlobs: decide.recall_blobs,
}
EVENTS: Final[Events] = {
    messages.UploadIntended: apply.apply_intended,
    messages.UploadFailed: apply.apply_failed,
    messages.UploadsRetried: apply.apply_retried,
    messages.BlobArchived: apply.apply_archived,
    messages.BlobsPruned: apply.apply_pruned,
    messages.ArchiveLost: apply.apply_lost,
    messages.NoticeConfirmed: confirm.apply_confirmed,
    messages.BlobsRecalled: apply.apply_recalled,
}

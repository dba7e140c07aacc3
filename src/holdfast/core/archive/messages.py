"""Commands and events of the archive."""

from __future__ import annotations

from holdfast.core.archive.notice import ArchiveNotice
from holdfast.core.base.event import Command, Event
from holdfast.core.base.values import Height, VerifySignature
from holdfast.core.blob.model import LiveBlob
from holdfast.core.validator.model import AddressOf

VERIFIED, SIGNED = "verified", "signed"
"""How sure a record is: the archive's bytes were read back and compared, or the proposer has signed."""


class IntendUpload(Command, frozen=True):
    """Upload a blob as this item. Its id is known before the upload: whoever tries again uploads the same (ARC-002)."""

    height: Height
    number: int
    proposer: bytes
    provider_id: str
    item_id: str


class UploadIntended(Event, frozen=True, tag=151):
    """An upload is about to begin; its notice will carry this time."""

    height: Height
    number: int
    provider_id: str
    item_id: str
    archived_at: int


class RecordUploadFailure(Command, frozen=True):
    """An upload, or reading it back, failed."""

    height: Height
    number: int
    reason: str
    is_refused: bool = False
    """The archive refuses our credentials: trying again soon is useless (ARC-003)."""


class UploadFailed(Event, frozen=True, tag=152):
    """The next attempt is due at `retry_ms`."""

    height: Height
    number: int
    attempts: int
    retry_ms: int
    reason: str


class RetryUploads(Command, frozen=True):
    """Try failed uploads again now: of one height, or of all (0)."""

    height: Height = Height(0)


class UploadsRetried(Event, frozen=True, tag=153):
    """Failed uploads are due now, as if they had never been tried."""

    height: Height


class AcceptNotice(Command, frozen=True):
    """A signed notice. `verify` and `address_of` are arguments, as time is: core has no cryptography."""

    notice: ArchiveNotice
    verify: VerifySignature
    address_of: AddressOf
    assurance: str = SIGNED


class BlobArchived(Event, frozen=True, tag=154):
    """An archive holds the blob; its record is for ever."""

    height: Height
    number: int
    provider_id: str
    locator: str
    archived_by: bytes
    archived_at: int
    assurance: str
    signature: bytes
    is_alternate: bool = False
    """It was archived before: this is another locator of the same bytes (NTC-003)."""
    root: bytes = b""
    """What was signed, and by which key: validators confirm it (NTC-004)."""
    signer: bytes = b""


class ConfirmNotice(Command, frozen=True):
    """A validator says that it has the notice about a blob."""

    height: Height
    number: int
    root: bytes
    key: bytes
    signature: bytes
    verify: VerifySignature


class NoticeConfirmed(Event, frozen=True, tag=157):
    """This validator has the notice: it is not sent to it again."""

    height: Height
    number: int
    key: bytes


class PruneBlobs(Command, frozen=True):
    """Delete the bytes of a height."""

    height: Height


class BlobsPruned(Event, frozen=True, tag=155):
    """The bytes of this height may be deleted, and are not served any more (PRU-001)."""

    height: Height


class ReportLost(Command, frozen=True):
    """The archive cannot show a blob that it once had."""

    height: Height
    number: int
    reason: str


class ArchiveLost(Event, frozen=True, tag=156):
    """A record is suspect: its bytes are not deleted here, and are uploaded again."""

    height: Height
    number: int
    reason: str


class RecallBlobs(Command, frozen=True):
    """The archive has lost blobs of a height whose bytes were deleted here: its records are looked at again."""

    lives: tuple[LiveBlob, ...]
    """All blobs of the height, as the tables have them."""
    lost: tuple[int, ...]
    reason: str
    are_here: bool
    """Whether the bytes of the whole height are on this node again: then they are uploaded again."""


class BlobsRecalled(Event, frozen=True, tag=158):
    """The records of these indexes are suspect, in memory again, with their bytes where another node had them."""

    height: Height
    lives: tuple[LiveBlob, ...]
    lost: tuple[int, ...]
    reason: str
    are_here: bool

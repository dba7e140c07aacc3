"""Methods about blobs and their archive: status of a height, what waits, retry, prune, audit (BLB-002, ARC-003)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import OPERATORS, READERS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.methods.results import readable_output
from holdfast.api.rpc.paging import why_not_limit
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import CommandResult, privileged_handler
from holdfast.core.archive.messages import RetryUploads
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Digest, Height, TaskId
from holdfast.core.blob.model import Blob, BlobStatus
from holdfast.core.key.model import Role
from holdfast.engine import queries
from holdfast.engine.archive_report import PruneReport, ReadBackReport
from holdfast.engine.queries.archive.archive_progress import archive_progress
from holdfast.engine.queries.archive.blob_records import find_parts
from holdfast.engine.queries.blobs import ArchiveProgress, GetLiveBlobs, ListPrunable
from holdfast.engine.queries.chain import GetChainHead

NO_ARCHIVE: Final = Refused("ARC-004", "no archive is configured", "set archive.provider", "Unavailable")
EVERY_KEY: Final = frozenset(Role)
"""Of what an output's readers may ask: its caller, its provider, operators and auditors (JOB-010)."""


class BlobHeightParams(msgspec.Struct, frozen=True):
    """Which block."""

    height: Height


class BlobHeightView(msgspec.Struct, frozen=True):
    """The blobs of a block on the active chain."""

    height: Height
    status: str
    """none, open, pending, stalled, suspect, archived or pruned."""
    blobs: list[Blob]


class ListBlobsParams(msgspec.Struct, frozen=True):
    """A page of blobs, the newest first, orphaned ones included; `cursor` is the event of the last page's last one."""

    limit: int = 100
    cursor: int = 0


class RetryParams(msgspec.Struct, frozen=True):
    """Of one height, or of all (0)."""

    height: Height = Height(0)


class AuditParams(msgspec.Struct, frozen=True):
    """How many archived blobs are read back, about; 0 is all of them."""

    sample: int = 0


class BlobTaskParams(msgspec.Struct, frozen=True):
    """Which result."""

    task_id: TaskId


class ArchivedPart(msgspec.Struct, frozen=True):
    """Some bytes of a result's frame, and the blob that has them."""

    offset: int
    length: int
    blob: Blob


class ArchivedResult(msgspec.Struct, frozen=True):
    """Where a result's bytes are."""

    task_id: TaskId
    result_digest: Digest
    result_size: int
    parts: list[ArchivedPart]


class ResultKey(msgspec.Struct, frozen=True):
    """How the bytes of a result are encrypted in its blobs."""

    task_id: TaskId
    result_digest: Digest
    is_encrypted: bool
    key_id: int = 0
    """The archive key that it is derived from, as the frame names it."""
    key: bytes = b""
    """ChaCha20-Poly1305, of this result alone."""


async def _status(access: NodeAccess, _: RpcCall, params: BlobHeightParams) -> BlobHeightView | Refused:
    head = await access.source.query_durable(GetChainHead())
    if not 0 <= params.height <= head.open_height:
        return Refused("BLB-002", f"there is no block {params.height}", name="NotFound")
    blobs = await access.source.query_durable(GetLiveBlobs(params.height))
    if not blobs:
        page = await queries.page(access.source, "blob", {"height": params.height}, 0, queries.PAGE_MAX)
        blobs = [blob for blob in page.rows if blob.status is not BlobStatus.ORPHANED]
    return BlobHeightView(params.height, _height_status(blobs, access.source.policy.archive.attempts_max), blobs)


def _height_status(blobs: list[Blob], attempts_max: int) -> str:
    if not blobs:
        return "none"
    if not blobs[0].block_hash:
        return "open"
    if any(blob.status is BlobStatus.SUSPECT for blob in blobs):
        return "suspect"
    if blobs[0].is_pruned:
        return "pruned"
    if all(blob.status is BlobStatus.ARCHIVED for blob in blobs):
        return "archived"
    return "stalled" if any(blob.attempts >= attempts_max for blob in blobs) else "pending"


async def _list_blobs(access: NodeAccess, _: RpcCall, params: ListBlobsParams) -> queries.Page | Refused:
    if refusal := why_not_limit(params.limit):
        return refusal
    return await queries.page(access.source, "blob", {}, params.cursor, params.limit, is_newest_first=True)


async def _list_archivable(access: NodeAccess, _: RpcCall, __: NoParams) -> list[Height]:
    return await access.source.query_durable(ListPrunable())


async def _get_progress(access: NodeAccess, _: RpcCall, __: NoParams) -> ArchiveProgress:
    is_on = access.archived is not None
    return msgspec.structs.replace(await archive_progress(access.source), is_on=is_on)


async def _prune(access: NodeAccess, _: RpcCall, params: BlobHeightParams) -> PruneReport | Refused:
    return NO_ARCHIVE if access.archive is None else await access.archive.prune_before(params.height)


async def _audit(access: NodeAccess, _: RpcCall, params: AuditParams) -> ReadBackReport | Refused:
    if params.sample < 0:
        return Refused("RPC-001", "params: sample: at least 0", name="InvalidParams")
    return NO_ARCHIVE if access.archive is None else access.archive.begin_audit(params.sample)


async def _get_audit(access: NodeAccess, _: RpcCall, __: NoParams) -> ReadBackReport | Refused:
    return NO_ARCHIVE if access.archive is None else access.archive.audit_report


async def _get_parts(access: NodeAccess, call: RpcCall, params: BlobTaskParams) -> ArchivedResult | Refused:
    """JOB-010: for whoever may read the output."""
    result = await readable_output(access, call.principal, params.task_id)
    if isinstance(result, Refused):
        return result
    await access.source.wait_tables(access.source.replication_status().tip.last)
    placed = await find_parts(access.source, "task_id", [params.task_id])
    parts = [ArchivedPart(each.part.offset, each.part.length, each.blob) for each in placed]
    return ArchivedResult(params.task_id, result.result_digest, result.result_size, parts)


async def _get_key(access: NodeAccess, call: RpcCall, params: BlobTaskParams) -> ResultKey | Refused:
    """BLB-003: the key of one result, which opens nothing else."""
    result = await readable_output(access, call.principal, params.task_id)
    if isinstance(result, Refused):
        return result
    if result.is_public:
        return ResultKey(params.task_id, result.result_digest, is_encrypted=False)
    found = access.stored_key_of(result) if access.archive is None else access.archive.key_of(result)
    if found is None:
        return NO_ARCHIVE
    key_id, key = found
    return ResultKey(params.task_id, result.result_digest, is_encrypted=True, key_id=key_id, key=key)


METHODS: Final[dict[str, RpcMethod]] = {
    "blob.status": RpcMethod("The blobs of a block.", BlobHeightParams, BlobHeightView, _status),
    "blob.getParts": RpcMethod(
        "Where the bytes of a result are archived.", BlobTaskParams, ArchivedResult, _get_parts, EVERY_KEY
    ),
    "blob.getKey": RpcMethod(
        "The key that one result is encrypted with in its blobs.",
        BlobTaskParams,
        ResultKey,
        _get_key,
        EVERY_KEY,
        is_write=True,
    ),
    "blob.listBlobs": RpcMethod("Blobs, the newest first.", ListBlobsParams, queries.Page, _list_blobs),
    "blob.listArchivable": RpcMethod(
        "The heights whose bytes may be deleted now.", NoParams, list[Height], _list_archivable, READERS
    ),
    "blob.retry": RpcMethod(
        "Try failed uploads again now.",
        RetryParams,
        CommandResult,
        privileged_handler(lambda params, _: RetryUploads(params.height)),
        OPERATORS,
        is_write=True,
    ),
    "blob.prune": RpcMethod(
        "Delete the bytes of archived heights below one.",
        BlobHeightParams,
        PruneReport,
        _prune,
        OPERATORS,
        is_write=True,
    ),
    "blob.audit": RpcMethod(
        "Begin to read archived blobs back.", AuditParams, ReadBackReport, _audit, OPERATORS, is_write=True
    ),
    "blob.getAudit": RpcMethod(
        "How far the last audit is.", NoParams, ReadBackReport, _get_audit, OPERATORS, is_write=True
    ),
    "archive.getStatus": RpcMethod("How far the archive is.", NoParams, ArchiveProgress, _get_progress, READERS),
}

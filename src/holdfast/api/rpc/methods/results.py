"""Methods about results: the record from the next block on, and proofs for light clients. Bytes are at /v1/outputs."""

from __future__ import annotations

import secrets
from typing import Final

import msgspec

from holdfast.api.node_access import (
    LONG_READ_COST,
    OWNERS,
    REQUESTERS,
    NodeAccess,
    Principal,
    RpcCall,
    RpcMethod,
    why_not_own,
)
from holdfast.api.rpc.methods.jobs import NONCE_BITS, JobParams
from holdfast.api.rpc.paging import why_not_limit
from holdfast.api.rpc.privileged import submit_for
from holdfast.api.visibility import (
    UNKNOWN_OWNER,
    PublicResult,
    show_result,
    show_verdicts,
    why_not_list_caller,
    why_not_read,
)
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.event import Command
from holdfast.core.base.height_bound import AtHeight
from holdfast.core.base.values import AccountId, ChainId, Digest, EventNo, Height, TaskId
from holdfast.core.chain.model import Block
from holdfast.core.job.ids import tx_hash
from holdfast.core.key.model import Role
from holdfast.core.result.model import Result
from holdfast.core.result.readability import ENDED_WITHOUT_RESULT, refuse_ended
from holdfast.engine import queries
from holdfast.engine.proofs import inclusion_path, root_in_slices
from holdfast.engine.queries.archive.blob_records import find_locators
from holdfast.engine.queries.result_lists import HeightRange, results_by_height, results_of_caller
from holdfast.engine.result_view import ResultView, build_consume, readable_result, view_result, why_not_chain
from holdfast.ports import OutputReader


class ResultParams(msgspec.Struct, frozen=True):
    """Which result, and optionally of which chain; `even_pending` shows PENDING and EXPIRED, too."""

    task_id: TaskId
    chain_id: int | None = None
    even_pending: bool = False


class ReadResultParams(msgspec.Struct, frozen=True):
    """Which result, and optionally of which chain and at which open height."""

    task_id: TaskId
    chain_id: int | None = None
    height: Height | None = None


class ConsumeResultParams(msgspec.Struct, frozen=True):
    """Which result to consume; a retry carries the same nonce."""

    task_id: TaskId
    chain_id: int | None = None
    height: Height | None = None
    nonce: int | None = None
    """Distinguishes a retry from a second use; drawn at random where it is not given."""
    caller: AccountId | None = None
    """The account that consumes it, where an operator acts on its behalf."""


class ConsumeResultReply(msgspec.Struct, frozen=True):
    """The result is consumed, and cannot be consumed again."""

    task_id: TaskId
    caller: AccountId
    nonce: int
    event: EventNo
    is_repeat: bool


class ListVerdictsParams(msgspec.Struct, frozen=True):
    """Verdicts that refused a submission for a job, in their order."""

    task_id: TaskId
    limit: int = 100
    cursor: int = 0


class ListResultsParams(msgspec.Struct, frozen=True):
    """A page of results of sealed blocks, from one height to another; `cursor` is the last page's `next_after`."""

    caller: AccountId | None = None
    """Only this account's, with their records; without it, what the log of all results has of each."""
    from_height: Height = Height(1)
    until_height: Height | None = None
    limit: int = 100
    cursor: int = 0
    newest_first: bool = False


class ResultProof(msgspec.Struct, frozen=True):
    """RES-008: proves that a block resolved a result: leaf, path to the header's `result_root`, signed header."""

    chain_id: int
    block: Block
    leaf: bytes
    index: int
    size: int
    path: list[Digest]
    locators: list[str] = []
    """Where an archive has the bytes, in their order. Not proved: whoever fetches them checks their digest."""


async def _get(access: NodeAccess, call: RpcCall, params: ResultParams) -> ResultView | PublicResult | Refused:
    source = access.source
    if refusal := why_not_chain(source.policy.chain_id, params.chain_id):
        return refusal
    result = await (view_result if params.even_pending else readable_result)(source, params.task_id)
    if isinstance(result, Refused):
        return await show_refusal(access, call.principal, params.task_id, result)
    return show_result(call.principal, result)


async def _read(access: NodeAccess, call: RpcCall, params: ReadResultParams) -> ResultView | PublicResult | Refused:
    """JOB-004: what a contract calls `read_result`, over RPC with a key."""
    if refusal := why_not_chain(access.source.policy.chain_id, params.chain_id):
        return refusal
    result = await readable_result(access.source, params.task_id, params.height)
    if isinstance(result, Refused):
        return await show_refusal(access, call.principal, params.task_id, result)
    return show_result(call.principal, result)


async def _consume(access: NodeAccess, call: RpcCall, params: ConsumeResultParams) -> ConsumeResultReply | Refused:
    """JOB-004, RES-005: what a contract calls `consume_result`, over RPC with a key."""
    policy, caller = access.source.policy, params.caller or call.principal.account
    if caller is None:
        return Refused("RES-005", "params: caller: missing", name="InvalidParams")
    if (
        refusal := why_not_chain(policy.chain_id, params.chain_id)
        or why_not_own(call.principal, caller)
        or _why_not_nonce(params)
    ):
        return refusal
    nonce = params.nonce if params.nonce is not None else secrets.randbits(NONCE_BITS)
    tx = tx_hash(ChainId(policy.chain_id), caller.encode(), nonce, {"consume": params.task_id})
    command: Command = await build_consume(access.source, params.task_id, caller, tx)
    if params.height is not None:
        command = AtHeight(params.height, command)
    outcome = await submit_for(access, call, command)
    if isinstance(outcome, Refused):
        return outcome
    return ConsumeResultReply(params.task_id, caller, nonce, outcome.event, outcome.is_repeat)


def _why_not_nonce(params: ConsumeResultParams) -> Refused | None:
    if params.nonce is None or 0 <= params.nonce < 2**63:
        return None
    return Refused("RPC-001", f"params: nonce: {params.nonce} is not in 0 … 2⁶³ − 1", name="InvalidParams")


async def _list_verdicts(access: NodeAccess, call: RpcCall, params: ListVerdictsParams) -> queries.Page | Refused:
    """PRF-002: a refusing verdict is kept with its reasons; an accepting one is in the result's record."""
    if refusal := why_not_limit(params.limit):
        return refusal
    id_, source = params.task_id, access.source
    record = await queries.job(source, id_) or await queries.result(source, id_)
    if refusal := why_not_read(call.principal, record or UNKNOWN_OWNER, "verdicts"):
        return refusal
    page = await queries.page(source, "verdict", {"task_id": id_}, params.cursor, params.limit)
    return msgspec.structs.replace(page, rows=show_verdicts(call.principal, record or UNKNOWN_OWNER, page.rows))


async def _list(access: NodeAccess, call: RpcCall, params: ListResultsParams) -> queries.Page | Refused:
    """RES-009: the log is public like the chain; whose results they are is not (JOB-010)."""
    if refusal := why_not_limit(params.limit) or why_not_list_caller(call.principal, params.caller):
        return refusal
    page = (HeightRange(params.from_height, params.until_height), params.cursor, params.limit)
    if params.caller is None:
        return await results_by_height(access.source, *page, is_newest_first=params.newest_first)
    return await results_of_caller(access.source, params.caller, *page, is_newest_first=params.newest_first)


async def _prove(access: NodeAccess, call: RpcCall, params: JobParams) -> ResultProof | Refused:
    proof = await prove_result(access, params.task_id)
    return await show_refusal(access, call.principal, params.task_id, proof) if isinstance(proof, Refused) else proof


async def prove_result(access: NodeAccess, id_: TaskId) -> ResultProof | Refused:
    """The proof that a block resolved a result. A reorg between its reads is noticed and refused."""
    result = await readable_result(access.source, id_)
    if isinstance(result, Refused):
        return result
    block = await queries.block(access.source, result.height_resolved)
    if block is None:
        return _REORGED
    try:
        async with access.long_turn:
            proof = await _proof(access, result, block)
    except Corrupt:
        if await _is_unchanged(access, result, block):
            raise
        return _REORGED
    if not await _is_unchanged(access, result, block):
        return _REORGED
    return msgspec.structs.replace(proof, locators=await find_locators(access.source, id_))


_REORGED: Final = Refused("RES-008", "a reorg is rolling back the block of this result", "try again", "NoResultYet")


async def _proof(access: NodeAccess, result: ResultView, block: Block) -> ResultProof:
    first = block.log_size - block.result_count
    leaves = await queries.leaves(access.source, first, block.result_count)
    index = result.leaf_index - first
    if not 0 <= index < len(leaves) or await root_in_slices(leaves) != block.result_root:
        raise Corrupt("RES-008", f"the leaves of block {block.height} do not give its root", "run holdfast db rebuild")
    return ResultProof(
        chain_id=access.source.policy.chain_id,
        block=block,
        leaf=leaves[index],
        index=index,
        size=len(leaves),
        path=await inclusion_path(leaves, index),
    )


async def _is_unchanged(access: NodeAccess, result: ResultView, block: Block) -> bool:
    """Whether record, block and leaves, read one after the other, were of one chain: a reorg may come in between."""
    now, head = await queries.result(access.source, result.task_id), await queries.block(access.source, block.height)
    place = (result.height_resolved, result.leaf_index)
    return now is not None and (now.height_resolved, now.leaf_index) == place and head == block


async def show_refusal(access: NodeAccess, principal: Principal, id_: TaskId, refusal: Refused) -> Refused:
    """JOB-010: that a private job ended without a result is public, why it did is not."""
    if refusal.name not in _ENDED:
        return refusal
    job = await queries.job(access.source, id_)
    if job is not None and why_not_read(principal, job, "the reason") is None:
        return refusal
    return refuse_ended(id_, _ENDED[refusal.name])


_ENDED: Final = {name: state for state, (name, _) in ENDED_WITHOUT_RESULT.items()}
LOCATORS_MAX: Final = 64
"""In a refusal; `blob.getParts` has all of them."""


async def result_pruned(access: NodeAccess, result: Result) -> Refused:
    """RES-007, RET-004: the bytes are deleted here; the details say where and by which digests they are elsewhere."""
    details = [("result_digest", result.result_digest.hex()), ("height_resolved", str(result.height_resolved))]
    if result.da_commitment is not None:
        details.insert(0, ("da_commitment", result.da_commitment.hex()))
    hint = ", ".join(f"{name} {value}" for name, value in details)
    if locators := await find_locators(access.source, result.task_id):
        details.append(("locators", " ".join(locators[:LOCATORS_MAX])))
        hint += f", in the archive: `holdfast blob fetch {result.task_id.hex()}`"
    return Refused("RES-007", "this node has deleted the bytes", hint, "ResultPruned", tuple(details))


async def open_archived(access: NodeAccess, principal: Principal, result: Result) -> OutputReader | Refused:
    """RES-009: the bytes from the archive. A fetch costs: it needs a key; without one the locators must do."""
    opened = None
    if access.archived is not None and principal.role is not None:
        opened = await access.archived.open_output(result)
    return opened if opened is not None else await result_pruned(access, result)


async def readable_output(access: NodeAccess, principal: Principal, id_: TaskId) -> ResultView | Refused:
    """JOB-010: the result whose bytes, or parts of them, this principal may read; a provider reads its own."""
    result = await readable_result(access.source, id_)
    if isinstance(result, Refused):
        return await show_refusal(access, principal, id_, result)
    if principal.role is Role.PROVIDER and principal.account == result.payee:
        return result
    return why_not_read(principal, result, "the output") or result


async def read_output(access: NodeAccess, principal: Principal, result: Result) -> bytes | Refused:
    """A result's bytes, from the hot or the warm store, else from the archive."""
    raw = await queries.hot_output(access.source, result)
    if raw is None and access.blobs is not None:
        raw = await access.blobs.read(result.result_digest)
    if raw is not None:
        return raw
    opened = await open_archived(access, principal, result)
    if isinstance(opened, Refused):
        return opened
    try:
        return await opened.read(0, opened.size)
    finally:
        await opened.close()


SHOWN: Final = ResultView | PublicResult
METHODS: Final[dict[str, RpcMethod]] = {
    "cap.getResult": RpcMethod("A result, readable from the block after its own.", ResultParams, SHOWN, _get),
    "cap.readResult": RpcMethod("A result as a contract reads it.", ReadResultParams, SHOWN, _read, OWNERS),
    "cap.consumeResult": RpcMethod(
        "Consume a result, once; for its job's caller.",
        ConsumeResultParams,
        ConsumeResultReply,
        _consume,
        REQUESTERS,
        is_write=True,
    ),
    "cap.proveResult": RpcMethod(
        "Prove that a block resolved a result.", JobParams, ResultProof, _prove, cost=LONG_READ_COST
    ),
    "cap.listResults": RpcMethod(
        "Results by resolved height, or of one caller.", ListResultsParams, queries.Page, _list
    ),
    "cap.listVerdicts": RpcMethod(
        "Why submissions for a job were refused.", ListVerdictsParams, queries.Page, _list_verdicts
    ),
}

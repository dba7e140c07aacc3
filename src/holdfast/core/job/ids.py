"""The ids of a job: of its request, its transaction and itself (JOB-001)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from holdfast.core.base.canonical import KNOWN_VERSIONS, HashDomain, canonical, hash_from, packed_int
from holdfast.core.base.values import ChainId, Digest, Height, TaskId

TASK: Final = HashDomain("animica.cap.task_id", (1,))
TX: Final = HashDomain("holdfast.tx", (1,))
REQUEST: Final = HashDomain("holdfast.request", (1,))


def task_id(
    chain_id: ChainId, height: Height, tx_hash: bytes, caller: bytes, payload: object, version: int = 1
) -> TaskId:
    """JOB-001: the id of a job; `height` is the open block's at admission and is never recomputed."""
    return task_id_maker(chain_id, height, version)(tx_hash, caller, canonical(payload))


def task_id_maker(chain_id: ChainId, height: Height, version: int) -> Callable[[bytes, bytes, bytes], TaskId]:
    """Makes the ids of jobs of one block, from transaction, caller and canonical payload."""
    return partial(hash_from, TASK.prefix_at(version, chain_id, height))  # type: ignore[return-value]


def version_of(id_: TaskId, chain_id: ChainId, height: Height, tx_hash: bytes, caller: bytes, payload: object) -> int:
    """CAN-003: under which version of its tag a job has its id; 0 where under none."""
    known = TASK._replace(versions=KNOWN_VERSIONS)
    return known.matching_version(id_, chain_id, height, tx_hash, caller, canonical(payload)) or 0


def tx_hash(chain_id: ChainId, caller: bytes, nonce: int, call: object) -> Digest:
    """JOB-001: the transaction hash of a call that came over RPC."""
    return TX.make(chain_id, caller, nonce, canonical(call))


def enqueue_tx_hash(
    chain_id: ChainId, caller: bytes, nonce: int, max_fee: int, payload: bytes, not_before_ms: int
) -> Digest:
    """The same of a call that enqueues a job, from the canonical bytes of its payload; 0 is no time."""
    fields = _MAX_FEE + packed_int(max_fee) + _PAYLOAD + payload
    call = _TWO + fields if not not_before_ms else _THREE + fields + _NOT_BEFORE + packed_int(not_before_ms)
    return TX.make(chain_id, caller, nonce, call)


_MAX_FEE, _PAYLOAD, _NOT_BEFORE = map(canonical, ("max_fee", "payload", "not_before_ms"))
_TWO, _THREE = (canonical(dict.fromkeys(range(fields)))[:1] for fields in (2, 3))  # how a map begins


def request_hash(payload: bytes) -> Digest:
    """The request hash of a receipt: the hash of the canonical payload."""
    return REQUEST.make(payload)

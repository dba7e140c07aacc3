"""The names of a job: what was asked, in which transaction, at which height (JOB-001)."""

from __future__ import annotations

from typing import Final

from holdfast.core.canon import KNOWN_VERSIONS, Domain, canonical
from holdfast.core.values import ChainId, Digest, Height, TaskId

TASK: Final = Domain("animica.cap.task_id", (1,))
TX: Final = Domain("holdfast.tx", (1,))
REQUEST: Final = Domain("holdfast.request", (1,))


def task_id(
    chain_id: ChainId, height: Height, tx_hash: bytes, caller: bytes, payload: object, version: int = 1
) -> TaskId:
    """JOB-001: the id of a job; `height` is the open block's at admission and is never recomputed."""
    return packed_task_id(chain_id, height, tx_hash, caller, canonical(payload), version)


def packed_task_id(
    chain_id: ChainId, height: Height, tx_hash: bytes, caller: bytes, payload: bytes, version: int = 1
) -> TaskId:
    """The same of a payload that is canonical bytes already."""
    return TaskId(TASK.make_at(version, chain_id, height, tx_hash, caller, payload))


def version_of(id_: TaskId, chain_id: ChainId, height: Height, tx_hash: bytes, caller: bytes, payload: object) -> int:
    """CAN-003: under which version of its tag a job has its id; 0 where under none."""
    known = TASK.at(KNOWN_VERSIONS)
    return known.recognise(id_, chain_id, height, tx_hash, caller, canonical(payload)) or 0


def tx_hash(chain_id: ChainId, caller: bytes, nonce: int, call: object) -> Digest:
    """JOB-001: what stands for a transaction where a call came over RPC."""
    return TX.make(chain_id, caller, nonce, canonical(call))


def request_hash(payload: bytes) -> Digest:
    """What a receipt says was asked: the hash of the canonical payload."""
    return REQUEST.make(payload)

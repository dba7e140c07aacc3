"""Checks the proof of a result as a stranger does: signed header, path, leaf, and whose output it is (RES-008)."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.client.answers import JobResult


def check_result_proof(proof: object, record: JobResult, keys: Collection[str]) -> None:
    """Raises VerificationFailed, or Corrupt where it is not a proof at all; without keys any proposer's counts."""
    from holdfast.adapters.keys.signing import verify  # noqa: PLC0415 - cryptography, which most calls never need
    from holdfast.lightclient import result_proof  # noqa: PLC0415
    from holdfast.lightclient.header_export import parse_keys  # noqa: PLC0415
    from holdfast.lightclient.headers import VerificationFailed  # noqa: PLC0415

    leaf = result_proof.check(result_proof.parse(proof, "the node's proof"), verify, parse_keys(list(keys)))
    if leaf.task_id.hex() != record.task_id:
        raise VerificationFailed(f"the node's proof is of another task, {leaf.task_id.hex()}")
    if (leaf.result_digest.hex(), leaf.size) != (record.result_digest, record.result_size):
        raise VerificationFailed("the node's proof is of another output")

"""Shares of a large result outside of a node (DA-001): checked against the commitment that the result's leaf holds."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.da.commit import Pinned, Sample, why_not_sample
from holdfast.core.refusal import Corrupt
from holdfast.core.values import U64_MAX
from holdfast.engine.headers import Untrue, hex_bytes
from holdfast.engine.resultproof import Leaf


def read(values: object, where: str) -> Sample | None:
    """The shares in a proof as `holdfast result da-proof` prints it; None where there are none; Corrupt where bad."""
    shown = values.get("da") if isinstance(values, Mapping) else None
    if shown is None:
        return None
    if (
        not isinstance(shown, Mapping)
        or not {"namespace", "root", "length", "start", "shares", "nodes"} <= shown.keys()
    ):
        raise _unreadable(where, "namespace, root, length, start, shares and nodes are expected")
    if any(type(shown[name]) is not int or not 0 <= shown[name] <= U64_MAX for name in ("length", "start")):
        raise _unreadable(where, "length and start are numbers")
    if not isinstance(shown["shares"], list) or not isinstance(shown["nodes"], list):
        raise _unreadable(where, "shares and nodes are lists")
    namespace, root = (hex_bytes(shown[name], f"{where}: da: {name}") for name in ("namespace", "root"))
    shares, nodes = (
        tuple(hex_bytes(each, f"{where}: da: {name}") for each in shown[name]) for name in ("shares", "nodes")
    )
    return Sample(Pinned(namespace, root, shown["length"]), shown["start"], shares, nodes)


def check(leaf: Leaf, sample: Sample) -> None:
    """Untrue where the shares are not part of what the chain holds the commitment of."""
    if leaf.da_commitment is None:
        raise Untrue("the chain holds no commitment to the bytes of this result")
    if sample.pinned.length != leaf.size:
        raise Untrue(f"the shares are of {sample.pinned.length} bytes, the chain holds {leaf.size}")
    if no := why_not_sample(leaf.da_commitment, sample):
        raise Untrue(f"the shares are not part of this result: {no}")


def _unreadable(where: str, says: str) -> Corrupt:
    hint = "it is what `holdfast result da-proof` prints"
    return Corrupt("DA-001", f"{where}: da cannot be read: {says}", hint)

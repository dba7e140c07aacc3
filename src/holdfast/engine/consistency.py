"""That the log of results only grew between two heads (RFC 6962): proved by a node, checked with two signed headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.core.chain.blocks import Block
from holdfast.core.chain.header import Signed, Verify, header_hash
from holdfast.core.merkle import prove_consistency, root, verify_consistency
from holdfast.core.refusal import Corrupt
from holdfast.core.result.record import Leaf
from holdfast.core.values import U64_MAX, Digest
from holdfast.engine import read
from holdfast.engine.headers import Untrue, hex_bytes, read_values

PAGE: Final = 1_000


async def log_leaves(source: read.Source, size: int) -> list[bytes]:
    """The first leaves of the log: rows that are on their way count before those of the tables."""
    stored: dict[int, bytes] = {}
    after: str | int | None = -1
    while after is not None and len(stored) < size:
        page = await read.page(source, "leaf", {}, after, PAGE)
        stored |= {leaf.place: leaf.raw for leaf in page.rows if isinstance(leaf, Leaf)}
        after = page.next_after
    found = []
    for place in range(size):
        newer = source.peek(("leaf", place))
        raw = newer[-1] if newer is not None else stored.get(place)
        if not isinstance(raw, bytes):
            raise Corrupt("RES-008", f"leaf {place} of the log is missing", "run holdfast db rebuild")
        found.append(raw)
    return found


async def prove(source: read.Source, first: Block, second: Block) -> list[Digest]:
    """RES-008: the way from the log of one block to that of a later one."""
    leaves = await log_leaves(source, second.log_size)
    if root(leaves) != second.log_root:
        raise Corrupt(
            "RES-008", f"the leaves do not give the log's root of block {second.height}", "run holdfast db rebuild"
        )
    return prove_consistency(leaves, first.log_size)


def read_shown(values: object, where: str) -> tuple[Signed, Signed, list[Digest]]:
    """A proof as `holdfast chain prove-growth` prints it; Corrupt where it is none."""
    if not isinstance(values, Mapping) or not {"chain_id", "first", "second", "path"} <= values.keys():
        raise Corrupt("RES-008", f"{where} cannot be read: chain_id, first, second and path are expected")
    chain_id, path = values["chain_id"], values["path"]
    if type(chain_id) is not int or not 0 <= chain_id <= U64_MAX or not isinstance(path, list):
        raise Corrupt("RES-008", f"{where} cannot be read: chain_id is a number and path a list")
    first, second = (read_values(values[name], f"{where}: {name}", chain_id) for name in ("first", "second"))
    return first, second, [Digest(hex_bytes(step, f"{where}: path")) for step in path]


def check(first: Signed, second: Signed, path: list[Digest], verify: Verify, keys: Iterable[bytes] = ()) -> None:
    """RES-008: both headers are signed, and the first one's log is the beginning of the second one's."""
    named = frozenset(keys)
    for signed in (first, second):
        header = signed.header
        block = f"block {header.height}"
        if signed.hash != header_hash(header):
            raise Untrue(f"{block} does not have the hash it is shown with")
        if not verify(header.proposer, signed.hash, signed.signature):
            raise Untrue(f"{block} is not signed by its proposer")
        if named and header.proposer not in named:
            raise Untrue(f"{block} is signed by {header.proposer.hex()}, whom nobody named")
    old, new = first.header, second.header
    if not verify_consistency(old.log_size, old.log_root, new.log_size, new.log_root, path):
        raise Untrue(f"the log of block {old.height} is not the beginning of that of block {new.height}")

"""Pinning large results (DA-001): building the namespaced tree against hashing the same bytes, and checking samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha3_256, sha256
from pathlib import Path

from bench.measure import Table, interleave, show, table
from holdfast.lightclient.da.commitment import commit, commitment_of, namespace_of, take_sample, tree_of, why_not_sample
from holdfast.lightclient.da.proofs import prove_range
from holdfast.lightclient.da.shares import split

MIB = 1 << 20
BARE, HASHED, TREE = "SHA-256 of every share and node", "SHA3-256 of the whole", "pinned: shares, tree, commitment"
PROVE, SAMPLE, CHECK = "prove one share", "share with its proof", "check a sample"


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Both comparisons."""
    rounds, size = (1, MIB) if is_quick else (5, 16 * MIB)
    found = [await compare_building(rounds, size), await compare_sampling(rounds, size)]
    for each in found:
        print(show(each), end="\n\n", flush=True)
    return found


async def compare_building(rounds: int, size: int) -> Table:
    """How fast bytes are pinned, against the hashing that nothing can avoid."""
    raw = bytes(range(256)) * (size // 256)

    async def bare(_: int) -> Mapping[str, float]:
        return {BARE: _rate(lambda: _hash_all(raw), size)}

    async def hashed(_: int) -> Mapping[str, float]:
        return {HASHED: _rate(lambda: sha3_256(raw).digest(), size)}

    async def pinned(_: int) -> Mapping[str, float]:
        return {TREE: _rate(lambda: commitment_of(b"alice", raw), size)}

    figures = await interleave((bare, hashed, pinned), rounds)
    return table("results-nmt-build", f"Pinning {size // MIB} MiB", "MiB/s", figures, [BARE, HASHED, TREE], BARE)


async def compare_sampling(rounds: int, size: int) -> Table:
    """How many samples a second a node proves and a light client checks."""
    raw = bytes(range(256)) * (size // 256)
    namespace = namespace_of(b"alice")
    whole, tree = commit(namespace, raw), tree_of(namespace, raw)
    places = [place * 7919 % whole.total for place in range(2_000)]
    samples = [take_sample(whole, tree, raw, place, 1) for place in places]

    async def turn(_: int) -> Mapping[str, float]:
        return {
            PROVE: _each(places, lambda place: prove_range(tree, place, place + 1)),
            SAMPLE: _each(places, lambda place: take_sample(whole, tree, raw, place, 1)),
            CHECK: _each(samples, lambda sample: _good(why_not_sample(whole.digest, sample))),
        }

    figures = await interleave((turn,), rounds)
    title = f"Samples of {size // MIB} MiB, {whole.total} shares"
    return table("results-nmt-sample", title, "samples/s", figures, [PROVE, SAMPLE, CHECK], None)


def _hash_all(raw: bytes) -> None:
    """As many hashes of the same sizes as the tree has, in a bare loop."""
    shares = split(raw)
    for share in shares:
        sha256(b"\x00" + share)
    node = bytes(97)
    for _ in range(len(shares) - 1):
        sha256(node)


def _good(no: str | None) -> None:
    assert no is None, no


def _rate(work: Callable[[], object], size: int) -> float:
    began = time.perf_counter()
    work()
    return size / MIB / (time.perf_counter() - began)


def _each(things: Sequence[object], work: Callable[..., object]) -> float:
    began = time.perf_counter()
    for each in things:
        work(each)
    return len(things) / (time.perf_counter() - began)

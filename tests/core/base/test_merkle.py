"""Merkle trees: any verifier of RFC 6962 checks our proofs, and an altered proof checks nowhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core import naive
from tests.core.base.merkle_proofs import prove_consistency, prove_inclusion

from holdfast.core.base.merkle import (
    EMPTY_ROOT,
    Frontier,
    leaf_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

# The leaves and roots that the implementations of certificate transparency test with.
KNOWN_LEAVES = [
    bytes.fromhex(leaf)
    for leaf in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
KNOWN_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
KNOWN_PATH = [  # of leaf 0 in the tree of 8, and from the tree of 1 to the tree of 8
    "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
    "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
    "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
]
SIZES = range(1, 20)
LEAVES = st.lists(st.binary(max_size=8), min_size=1, max_size=70)


def tree(size: int) -> list[bytes]:
    return [b"leaf %d" % index for index in range(size)]


def flipped(raw: bytes, bit: int) -> bytes:
    bit %= len(raw) * 8
    return (int.from_bytes(raw, "big") ^ (1 << bit)).to_bytes(len(raw), "big")


# ------------------------------------------------------------------------------------------------ roots


@pytest.mark.parametrize("size", range(9))
def test_the_roots_are_those_of_certificate_transparency(size: int) -> None:
    assert root(KNOWN_LEAVES[:size]).hex() == KNOWN_ROOTS[size]


def test_the_paths_are_those_of_certificate_transparency() -> None:
    assert [step.hex() for step in prove_inclusion(KNOWN_LEAVES, 0)] == KNOWN_PATH
    assert [step.hex() for step in prove_consistency(KNOWN_LEAVES, 1)] == KNOWN_PATH


@given(LEAVES)
def test_the_root_is_the_one_a_naive_reading_of_the_rfc_gives(leaves: list[bytes]) -> None:
    assert root(leaves) == naive.merkle_root(leaves)


def test_a_leaf_never_passes_for_a_node() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert root([b"a", b"b"]) != root([left + right])


# ------------------------------------------------------------------------------------------------ inclusion


@pytest.mark.parametrize("size", SIZES)
def test_every_leaf_is_proven_to_be_where_it_is_and_nowhere_else(size: int) -> None:
    leaves = tree(size)
    top = root(leaves)
    for index, leaf in enumerate(leaves):
        path = prove_inclusion(leaves, index)
        assert [at for at in range(-1, size + 1) if verify_inclusion(top, leaf, at, size, path)] == [index]


@pytest.mark.parametrize("size", range(1, 12))
def test_a_proof_shows_no_place_in_a_tree_of_another_shape(size: int) -> None:
    leaves = tree(size)
    top = root(leaves)
    for index, leaf in enumerate(leaves):
        path = prove_inclusion(leaves, index)
        for other in range(2 * size + 1):
            for at in range(other):
                is_same_shape = naive.sibling_sides(at, other) == naive.sibling_sides(index, size)
                assert verify_inclusion(top, leaf, at, other, path) == is_same_shape


@given(LEAVES, st.data())
def test_an_altered_root_leaf_or_path_is_refused(leaves: list[bytes], data: st.DataObject) -> None:
    size, top = len(leaves), root(leaves)
    index = data.draw(st.integers(0, size - 1))
    bit = data.draw(st.integers(0, 10_000))
    leaf, path = leaves[index], prove_inclusion(leaves, index)
    assert verify_inclusion(top, leaf, index, size, path)
    assert not verify_inclusion(flipped(top, bit), leaf, index, size, path)
    assert not verify_inclusion(top, leaf + b"\0", index, size, path)
    assert not verify_inclusion(top, leaf, index, size, [*path, top])
    assert not verify_inclusion(top, leaf, index, size, [top, *path])
    for at, step in enumerate(path):
        for other in (flipped(step, bit), step[:-1], step + b"\0", b""):
            assert not verify_inclusion(top, leaf, index, size, [*path[:at], other, *path[at + 1 :]])
        assert not verify_inclusion(top, leaf, index, size, path[:at] + path[at + 1 :])


def test_nothing_is_in_an_empty_tree() -> None:
    assert not verify_inclusion(EMPTY_ROOT, b"", 0, 0, [])
    assert not verify_inclusion(EMPTY_ROOT, b"", 0, 1, [])


@pytest.mark.parametrize("index", [-1, 3])
def test_a_leaf_that_is_not_there_has_no_proof(index: int) -> None:
    with pytest.raises(IndexError):
        prove_inclusion(tree(3), index)


# ------------------------------------------------------------------------------------------------ consistency


@pytest.mark.parametrize("size", [0, *SIZES])
def test_every_beginning_is_proven_to_be_one(size: int) -> None:
    leaves = tree(size)
    for first in range(size + 1):
        path = prove_consistency(leaves, first)
        assert verify_consistency(first, root(leaves[:first]), size, root(leaves), path)


@pytest.mark.parametrize("size", SIZES)
def test_a_log_that_rewrote_one_leaf_cannot_prove_that_it_only_grew(size: int) -> None:
    leaves = tree(size)
    for first in range(1, size + 1):
        for changed in range(first):
            forged = [*leaves[:changed], b"another", *leaves[changed + 1 :]]
            path = prove_consistency(forged, first)
            assert not verify_consistency(first, root(leaves[:first]), size, root(forged), path)


@given(LEAVES, st.data())
def test_an_altered_consistency_proof_is_refused(leaves: list[bytes], data: st.DataObject) -> None:
    size = len(leaves)
    first = data.draw(st.integers(0, size))
    bit = data.draw(st.integers(0, 10_000))
    old, new, path = root(leaves[:first]), root(leaves), prove_consistency(leaves, first)
    assert verify_consistency(first, old, size, new, path)
    assert not verify_consistency(first, flipped(old, bit), size, new, path)
    assert first == 0 or not verify_consistency(first, old, size, flipped(new, bit), path)
    assert first == size or not verify_consistency(size, new, first, old, path)
    assert not verify_consistency(-1, old, size, new, path)
    assert not verify_consistency(first, old, size, new, [*path, new])
    assert not verify_consistency(first, old, size, new, [new, *path])
    for at, step in enumerate(path):
        for other in (flipped(step, bit), step[:-1], step + b"\0", b""):
            assert not verify_consistency(first, old, size, new, [*path[:at], other, *path[at + 1 :]])
        assert not verify_consistency(first, old, size, new, path[:at] + path[at + 1 :])


@pytest.mark.parametrize("size", range(2, 12))
def test_a_consistency_proof_shows_no_logs_that_need_a_longer_or_shorter_one(size: int) -> None:
    leaves = tree(size)
    steps = {(a, b): len(prove_consistency(tree(b), a)) for b in range(2, 2 * size + 2) for a in range(1, b)}
    for first in range(1, size):
        old, new, path = root(leaves[:first]), root(leaves), prove_consistency(leaves, first)
        for (claimed_first, claimed_size), length in steps.items():
            if length != len(path):
                assert not verify_consistency(claimed_first, old, claimed_size, new, path)


def test_growth_without_a_proof_is_not_believed() -> None:
    for size in SIZES:
        for first in range(1, size):
            assert not verify_consistency(first, root(tree(first)), size, root(tree(size)), [])


@pytest.mark.parametrize("first", [-1, 4])
def test_a_tree_that_is_not_a_beginning_has_no_proof(first: int) -> None:
    with pytest.raises(IndexError):
        prove_consistency(tree(3), first)


# ------------------------------------------------------------------------------------------------ the growing log


def test_a_growing_log_has_the_root_of_its_leaves_at_every_size() -> None:
    leaves, log = tree(70), Frontier()
    for size in range(len(leaves)):
        assert (log.size, log.root()) == (size, naive.merkle_root(leaves[:size]))
        log.append(leaf_hash(leaves[size]))
    assert len(log.peaks) == (70).bit_count()


@given(LEAVES, LEAVES)
def test_a_log_stored_and_loaded_goes_on_as_if_nothing_happened(before: list[bytes], after: list[bytes]) -> None:
    log = Frontier()
    for leaf in before:
        log.append(leaf_hash(leaf))
    log = msgspec.msgpack.decode(msgspec.msgpack.encode(log), type=Frontier)
    for leaf in after:
        log.append(leaf_hash(leaf))
    assert log.root() == root(before + after)


def test_two_logs_share_nothing() -> None:
    one, other = Frontier(), Frontier()
    one.append(leaf_hash(b"a"))
    assert other == Frontier()

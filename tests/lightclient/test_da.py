"""Availability (DA-001): every honest proof is believed, and none in which anything at all was altered."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core import naive

from holdfast.lightclient.da import commit, commitment_of, namespace_of
from holdfast.lightclient.da.commitment import (
    DaCommitment,
    Sample,
    take_sample,
    tree_of,
    why_not_bytes,
    why_not_commitment,
    why_not_namespace,
    why_not_sample,
)
from holdfast.lightclient.da.nmt import EMPTY_ROOT, Tree, leaf, parent
from holdfast.lightclient.da.proofs import (
    NamespaceProof,
    RangeProof,
    prove_namespace,
    prove_range,
    verify_namespace,
    verify_range,
)
from holdfast.lightclient.da.shares import SHARE_BYTES, share_count, split
from holdfast.lightclient.sampling import Availability, assess_availability, confidence_ppm, sample_indexes

pytestmark = pytest.mark.rule("DA-001")

NS = bytes(range(8))
Leaves = list[tuple[bytes, bytes]]


def ns(number: int) -> bytes:
    return number.to_bytes(8, "big")


def leaves_of(numbers: list[int]) -> Leaves:
    return [(ns(number), b"share %d" % place) for place, number in enumerate(sorted(numbers))]


NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=40)
SMALL = [[0], [3], [1, 1], [1, 2], [1, 1, 3], [0, 2, 2, 4], [1, 1, 1, 1, 1], [0, 0, 3, 3, 5, 9], [2, 4, 4, 4, 6, 8, 9]]


def flipped(raw: bytes, bit: int) -> bytes:
    bit %= len(raw) * 8
    return (int.from_bytes(raw, "big") ^ (1 << bit)).to_bytes(len(raw), "big")


def output(size: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(size))


# ------------------------------------------------------------------------------------------------ the tree


def test_the_naive_reading_gives_the_tree_that_the_specification_of_celestia_prints() -> None:
    """Its figure 1, with namespaces of one byte and the first seven digits of each hash."""
    shown = [(b"\x00", b"leaf_0"), (b"\x00", b"leaf_1"), (b"\x01", b"leaf_2"), (b"\x03", b"leaf_3")]
    assert naive.nmt(shown).hex()[:11] == "0003b1c2cc5"
    assert naive.nmt(shown[:2]).hex()[:11] == "0000ead8d25"
    assert naive.nmt(shown[2:]).hex()[:11] == "010352c7c03"
    assert naive.nmt(shown[3:]).hex()[:11] == "0303b4a2792"


@given(numbers=NUMBERS)
def test_the_root_is_that_of_the_naive_reading(numbers: list[int]) -> None:
    leaves = leaves_of(numbers)
    root = Tree(leaves).root
    assert root == naive.nmt(leaves)
    assert len(root) == 48
    assert (root[:8], root[8:16]) == (ns(min(numbers)), ns(max(numbers)))


def test_the_highest_namespace_counts_like_any_other() -> None:
    leaves = [(ns(1), b"a"), (b"\xff" * 8, b"b")]
    assert Tree(leaves).root == naive.nmt(leaves)
    assert Tree(leaves).root[8:16] == b"\xff" * 8


def test_an_empty_tree_has_a_root_of_its_own_and_leaves_out_of_order_make_none() -> None:
    assert Tree([]).root == EMPTY_ROOT
    with pytest.raises(ValueError, match="order"):
        Tree([(ns(2), b""), (ns(1), b"")])
    assert parent(leaf(ns(2), b""), leaf(ns(1), b"")) is None
    assert parent(leaf(ns(1), b""), leaf(ns(1), b"")) is not None


# ------------------------------------------------------------------------------------------------ ranges


@pytest.mark.parametrize("total", range(1, 18))
def test_every_range_of_every_small_tree_is_proved(total: int) -> None:
    shares = [b"%d" % i for i in range(total)]
    tree = Tree((NS, share) for share in shares)
    for start in range(total):
        for end in range(start + 1, total + 1):
            proof = prove_range(tree, start, end)
            assert verify_range(tree.root, total, NS, shares[start:end], proof)
            assert len(proof.nodes) <= 2 * total.bit_length()
    for start, end in ((0, 0), (0, total + 1), (-1, 1), (1, 1)):
        with pytest.raises(IndexError):
            prove_range(tree, start, end)


@pytest.mark.parametrize("total", range(1, 10))
def test_no_range_is_proved_at_another_place_with_other_shares_or_with_an_altered_proof(total: int) -> None:
    shares = [b"%d" % i for i in range(total)]
    tree = Tree((NS, share) for share in shares)
    for start in range(total):
        for end in range(start + 1, total + 1):
            proof, shown = prove_range(tree, start, end), shares[start:end]
            for other in range(-1, total + 1):
                moved = RangeProof(other, other + len(shown), proof.nodes)
                assert verify_range(tree.root, total, NS, shown, moved) == (other == start)
            assert not verify_range(tree.root, total, NS, shown, RangeProof(start, end + 1, proof.nodes))
            assert not verify_range(tree.root, total, NS, [*shown[:-1], b"x"], proof)
            assert not verify_range(tree.root, total, NS, shown[:-1], proof)
            assert not verify_range(tree.root, total, NS, [*shown, shown[-1]], proof)
            assert not verify_range(tree.root, total, ns(77), shown, proof)
            assert not verify_range(tree.root, total, b"short", shown, proof)
            for nodes in (proof.nodes[:-1], proof.nodes[1:], (*proof.nodes, tree.root), proof.nodes[::-1]):
                if nodes != proof.nodes:
                    assert not verify_range(tree.root, total, NS, shown, RangeProof(start, end, nodes))


@given(numbers=NUMBERS, data=st.data())
def test_no_bit_of_a_range_s_proof_or_of_the_root_can_be_flipped(numbers: list[int], data: st.DataObject) -> None:
    leaves = leaves_of(numbers)
    tree, at = Tree(leaves), data.draw(st.integers(0, len(leaves) - 1))
    proof, bit = prove_range(tree, at, at + 1), data.draw(st.integers(0, 48 * 8 - 1))
    namespace, share = leaves[at]
    assert verify_range(tree.root, tree.total, namespace, [share], proof)
    assert not verify_range(flipped(tree.root, bit), tree.total, namespace, [share], proof)
    assert not verify_range(tree.root, tree.total, flipped(namespace, bit), [share], proof)
    assert not verify_range(tree.root, tree.total, namespace, [flipped(share, bit)], proof)
    for place, node in enumerate(proof.nodes):
        for wrong in (flipped(node, bit), node[:-1], node + b"\0"):
            nodes = (*proof.nodes[:place], wrong, *proof.nodes[place + 1 :])
            assert not verify_range(tree.root, tree.total, namespace, [share], RangeProof(at, at + 1, nodes))


# ------------------------------------------------------------------------------------------------ namespaces


@pytest.mark.parametrize("numbers", SMALL)
def test_every_namespace_is_proved_to_be_all_there_is_or_to_be_absent(numbers: list[int]) -> None:
    leaves = leaves_of(numbers)
    tree = Tree(leaves)
    for number in range(12):
        shares = [share for one, share in leaves if one == ns(number)]
        proof = prove_namespace(tree, ns(number))
        assert verify_namespace(tree.root, tree.total, ns(number), shares, proof)
        inside = min(numbers) <= number <= max(numbers)
        assert (proof == NamespaceProof()) == (not inside)
        assert (proof.leaf is not None) == (inside and number not in numbers)


@pytest.mark.parametrize("numbers", SMALL)
def test_no_share_can_be_left_out_added_or_denied(numbers: list[int]) -> None:
    leaves = leaves_of(numbers)
    tree = Tree(leaves)
    for number in set(numbers):
        shares = [share for one, share in leaves if one == ns(number)]
        start = next(i for i, (one, _) in enumerate(leaves) if one == ns(number))
        for low in range(len(shares)):
            for high in range(low + 1, len(shares) + 1):
                part = prove_range(tree, start + low, start + high)
                told = NamespaceProof(part.start, part.end, part.nodes)
                assert verify_namespace(tree.root, tree.total, ns(number), shares[low:high], told) == (
                    high - low == len(shares)
                )
        for place in range(tree.total):  # that there are none, by whatever leaf
            one = prove_range(tree, place, place + 1)
            denial = NamespaceProof(place, place + 1, one.nodes, tree.node(place, place + 1))
            assert not verify_namespace(tree.root, tree.total, ns(number), [], denial)
        assert not verify_namespace(tree.root, tree.total, ns(number), [], NamespaceProof())


@pytest.mark.parametrize("numbers", SMALL)
def test_absence_is_shown_by_one_leaf_alone(numbers: list[int]) -> None:
    tree = Tree(leaves_of(numbers))
    for number in range(min(numbers), max(numbers)):
        if number in numbers:
            continue
        good = prove_namespace(tree, ns(number))
        for place in range(tree.total):
            one = prove_range(tree, place, place + 1)
            told = NamespaceProof(place, place + 1, one.nodes, tree.node(place, place + 1))
            assert verify_namespace(tree.root, tree.total, ns(number), [], told) == (told == good)
        for wrong in (
            msgspec.structs.replace(good, leaf=None),
            msgspec.structs.replace(good, leaf=good.leaf[:-1] if good.leaf else b""),
            msgspec.structs.replace(good, leaf=tree.root),
            msgspec.structs.replace(good, nodes=good.nodes[:-1]),
            msgspec.structs.replace(good, end=good.end + 1),
            msgspec.structs.replace(good, start=good.start - 1, end=good.end - 1),
        ):
            if wrong != good:
                assert not verify_namespace(tree.root, tree.total, ns(number), [], wrong)
        assert not verify_namespace(tree.root, tree.total, ns(number), [b"share"], good)
        assert not verify_namespace(tree.root, tree.total, b"short", [], good)
        assert not verify_namespace(tree.root[:-1], tree.total, ns(number), [], good)


@given(numbers=NUMBERS, number=st.integers(0, 12), bit=st.integers(0, 48 * 8 - 1))
def test_no_bit_of_a_namespace_s_proof_can_be_flipped(numbers: list[int], number: int, bit: int) -> None:
    leaves = leaves_of(numbers)
    tree, shares = Tree(leaves), [share for one, share in leaves if one == ns(number)]
    proof = prove_namespace(tree, ns(number))
    assert verify_namespace(tree.root, tree.total, ns(number), shares, proof)
    if proof.leaf is not None:
        altered = msgspec.structs.replace(proof, leaf=flipped(proof.leaf, bit))
        assert not verify_namespace(tree.root, tree.total, ns(number), shares, altered)
    for place, node in enumerate(proof.nodes):
        nodes = (*proof.nodes[:place], flipped(node, bit), *proof.nodes[place + 1 :])
        altered = msgspec.structs.replace(proof, nodes=nodes)
        assert not verify_namespace(tree.root, tree.total, ns(number), shares, altered)
    for place, share in enumerate(shares):
        wrong = [*shares[:place], flipped(share, bit), *shares[place + 1 :]]
        assert not verify_namespace(tree.root, tree.total, ns(number), wrong, proof)


def test_the_empty_tree_has_no_namespace_and_nothing_else_may_claim_so() -> None:
    assert verify_namespace(EMPTY_ROOT, 0, NS, [], prove_namespace(Tree([]), NS))
    assert not verify_namespace(Tree([(NS, b"a")]).root, 0, NS, [], NamespaceProof())
    assert not verify_namespace(EMPTY_ROOT, 1, NS, [], NamespaceProof())


# ------------------------------------------------------------------------------------------------ the commitment


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1_024, 1_025, 5_000])
def test_the_commitment_is_that_of_the_naive_reading(size: int) -> None:
    raw = output(size)
    assert namespace_of(b"alice") == naive.h("holdfast.ns.v1", b"alice")[:8]
    assert commitment_of(b"alice", raw) == naive.da_commitment(namespace_of(b"alice"), raw)[0]
    assert [share_count(size), len(split(raw))] == [-(-size // 512)] * 2
    assert all(len(share) == SHARE_BYTES for share in split(raw))


def test_empty_bytes_have_no_commitment() -> None:
    assert split(b"") == []
    for namespace, raw in ((NS, b""), (NS[:7], b"a")):
        with pytest.raises(ValueError, match="not empty"):
            commit(namespace, raw)


def test_the_length_counts_though_the_shares_are_the_same() -> None:
    """One zero more at the end gives the same shares and the same root."""
    one, two = commit(NS, b"a" + bytes(510)), commit(NS, b"a" + bytes(511))
    assert one.root == two.root
    assert one.digest != two.digest


def sample_of(raw: bytes, start: int, count: int) -> tuple[bytes, Sample]:
    pinned, tree = commit(NS, raw), tree_of(NS, raw)
    return pinned.digest, take_sample(pinned, tree, raw, start, count)


@pytest.mark.parametrize("size", [1, 512, 513, 2_048, 3_000])
def test_every_sample_of_committed_bytes_is_believed(size: int) -> None:
    raw = output(size)
    for start in range(share_count(size)):
        for count in range(1, share_count(size) - start + 1):
            commitment, sample = sample_of(raw, start, count)
            assert why_not_sample(commitment, sample) is None
            assert b"".join(sample.shares)[: size - start * 512] in raw + bytes(512)


def altered(sample: Sample) -> list[Sample]:
    """Each thing that a sample says, said otherwise."""
    pinned, change = sample.commitment, msgspec.structs.replace
    pins = [
        change(pinned, namespace=flipped(pinned.namespace, 3)),
        change(pinned, namespace=pinned.namespace[:-1]),
        change(pinned, root=flipped(pinned.root, 300)),
        change(pinned, root=flipped(pinned.root, 5)),
        change(pinned, root=pinned.root[:-1]),
        *(change(pinned, length=length) for length in (0, 1, pinned.length - 1, pinned.length + 1, 9_999)),
    ]
    return [
        *(change(sample, commitment=each) for each in pins),
        *(change(sample, start=start) for start in (-1, sample.start - 1, sample.start + 1, 99)),
        change(sample, shares=()),
        change(sample, shares=sample.shares[:-1]),
        change(sample, shares=(*sample.shares, bytes(512))),
        change(sample, shares=(sample.shares[0][:-1], *sample.shares[1:])),
        change(sample, nodes=sample.nodes[:-1]),
        change(sample, nodes=(*sample.nodes, bytes(48))),
    ]


@pytest.mark.parametrize(("start", "count"), [(0, 1), (2, 1), (5, 1), (1, 3), (0, 6)])
def test_a_sample_in_which_anything_is_altered_is_refused(start: int, count: int) -> None:
    commitment, sample = sample_of(output(3_000), start, count)
    for wrong in altered(sample):
        if wrong != sample:
            assert why_not_sample(commitment, wrong) is not None, wrong
    assert why_not_sample(flipped(commitment, 9), sample) is not None


@given(size=st.integers(1, 4_000), data=st.data())
def test_no_byte_of_a_sample_can_be_altered(size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, share_count(size) - 1))
    commitment, sample = sample_of(output(size), start, 1)
    (share,), bit = sample.shares, data.draw(st.integers(0, 512 * 8 - 1))
    assert why_not_sample(commitment, sample) is None
    assert why_not_sample(commitment, msgspec.structs.replace(sample, shares=(flipped(share, bit),))) is not None
    if sample.nodes:
        place = data.draw(st.integers(0, len(sample.nodes) - 1))
        nodes = list(sample.nodes)
        nodes[place] = flipped(nodes[place], bit)
        assert why_not_sample(commitment, msgspec.structs.replace(sample, nodes=tuple(nodes))) is not None


def test_a_last_share_that_is_not_filled_up_with_zeros_is_refused_though_it_was_committed_to() -> None:
    shares = [bytes(512), b"a" * 512]
    pinned = DaCommitment(NS, Tree((NS, share) for share in shares).root, 600)
    proof = prove_range(Tree((NS, share) for share in shares), 1, 2)
    sample = Sample(pinned, 1, (shares[1],), proof.nodes)
    assert why_not_sample(pinned.digest, sample) == "the last share is not padded with zeros"


def test_all_the_bytes_are_checked_against_the_commitment() -> None:
    raw = output(1_300)
    pinned = commit(NS, raw)
    assert why_not_bytes(pinned.digest, pinned, raw) is None
    assert why_not_bytes(pinned.digest, pinned, raw[:-1]) == "1299 bytes, not 1300"
    assert why_not_bytes(pinned.digest, pinned, flipped(raw, 77)) == "the bytes do not give the root"
    assert why_not_bytes(bytes(32), pinned, raw) is not None
    assert why_not_commitment(pinned.digest, pinned) is None


def test_who_holds_the_commitment_learns_that_another_caller_has_nothing_in_it() -> None:
    raw = output(1_300)
    pinned, tree = commit(NS, raw), tree_of(NS, raw)
    whole = (pinned.digest, pinned)
    assert why_not_namespace(*whole, NS, split(raw), prove_namespace(tree, NS)) is None
    assert why_not_namespace(*whole, ns(9), [], prove_namespace(tree, ns(9))) is None
    assert why_not_namespace(*whole, NS, [], NamespaceProof()) is not None
    assert why_not_namespace(bytes(32), pinned, ns(9), [], NamespaceProof()) is not None


# ------------------------------------------------------------------------------------------------ sampling


@given(total=st.integers(1, 300), count=st.integers(1, 40), seed=st.binary(max_size=8))
def test_the_shares_to_ask_for_are_distinct_within_the_whole_and_the_same_for_the_same_seed(
    total: int, count: int, seed: bytes
) -> None:
    asked = sample_indexes(b"c" * 32, seed, total, count)
    assert asked == sample_indexes(b"c" * 32, seed, total, count)
    assert len(set(asked)) == len(asked) == min(count, total)
    assert asked == sorted(asked)
    assert all(0 <= index < total for index in asked)


def test_every_share_is_asked_for_about_equally_often() -> None:
    seen = [0] * 20
    for number in range(4_000):
        for index in sample_indexes(b"c" * 32, number.to_bytes(4, "big"), 20, 3):
            seen[index] += 1
    assert all(500 < count < 700 for count in seen), seen  # 600 each


def test_confidence_is_the_probability_of_meeting_a_missing_share_rounded_down() -> None:
    assert confidence_ppm(10, 1, 1) == 100_000
    assert confidence_ppm(10, 10, 1) == 1_000_000
    assert confidence_ppm(3, 1, 1) == 333_333
    assert confidence_ppm(3, 2, 1) == 666_666
    assert confidence_ppm(100, 20, 10) == 904_883  # 1 - C(90, 20)/C(100, 20)
    assert confidence_ppm(100, 20, 0) == 0
    assert confidence_ppm(4, 2, 4) == 1_000_000


def test_a_round_of_sampling_says_how_sure_one_may_be_and_names_what_did_not_come() -> None:
    raw = output(512 * 40)
    pinned, tree = commit(NS, raw), tree_of(NS, raw)
    commitment = pinned.digest
    asked = sample_indexes(commitment, b"mine", 40, 8)
    got: dict[int, Sample | None] = {index: take_sample(pinned, tree, raw, index, 1) for index in asked}
    sure = confidence_ppm(40, 8, 4)
    assert assess_availability(commitment, 40, asked, got) == Availability(40, 8, {}, 100_000, sure)
    assert assess_availability(commitment, 40, asked, got).is_good
    wrong = dict(got)
    wrong[asked[0]] = None
    wrong[asked[1]] = got[asked[2]]
    other, other_tree = commit(NS, raw[:512]), tree_of(NS, raw[:512])
    wrong[asked[3]] = msgspec.structs.replace(take_sample(other, other_tree, raw[:512], 0, 1), start=asked[3])
    found = assess_availability(commitment, 40, asked, wrong)
    assert not found.is_good
    assert found.confidence_ppm == 0
    assert found.refused == {
        asked[0]: "it did not come",
        asked[1]: f"share {asked[2]} came instead",
        asked[3]: "it is of 1 shares, not 40",
    }

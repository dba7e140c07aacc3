"""Headers outside of a node: exported, extended, interrupted at any write, rolled back; every false one is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.core.base.merkle_proofs import prove_inclusion
from tests.core.blocks import PROPOSER, sign, verify
from tests.lightclient.header_chains import CHAIN, CountingFiles, PowerCut, chain, follows, signed, source

from holdfast.core.base.errors import Corrupt, Refused
from holdfast.core.base.values import ChainId, EventNo, Network
from holdfast.core.chain.header import Header, SignedHeader, genesis_signed
from holdfast.core.chain.model import TxKind, tx_leaf
from holdfast.lightclient import header_export
from holdfast.lightclient.header_export import MANIFEST, HeaderManifest, export, file_name
from holdfast.lightclient.headers import FIELDS, HeaderChain, VerificationFailed, encode_line, parse_line
from holdfast.lightclient.tx_proof import TxProof, check_tx_proof, parse_tx_proof

pytestmark = pytest.mark.rule("CHN-001")


@pytest.fixture(autouse=True)
def short_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four blocks a file, so that a test sees borders."""
    monkeypatch.setattr(header_export, "PER_FILE", 4)


async def exported(blocks: list[SignedHeader], files: CountingFiles | None = None, finalized: int = 0) -> CountingFiles:
    files = files or CountingFiles()
    done = await export(files, source(blocks, finalized), verify)
    assert isinstance(done, HeaderManifest), done
    assert (done.blocks, done.head) == (
        len(blocks),
        (blocks[-1] if blocks else genesis_signed(CHAIN, Network.DEVELOPMENT)).hash.hex(),
    )
    return files


async def verified_chain(files: CountingFiles, *keys: bytes) -> HeaderChain:
    return await header_export.verify(files, verify, frozenset(keys))


# ------------------------------------------------------------------------------------------------ carrying away


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 8, 9])
async def test_what_was_exported_verifies_up_to_its_head(length: int) -> None:
    blocks = chain(length)
    found = await verified_chain(await exported(blocks))
    assert found.head == (blocks[-1] if blocks else genesis_signed(CHAIN, Network.DEVELOPMENT))
    assert found.proposers == ({PROPOSER: 1} if blocks else {})


def test_a_header_reads_back_from_its_line_as_it_was() -> None:
    for block in chain(3):
        assert parse_line(encode_line(block), "block") == block


@pytest.mark.parametrize("first", range(10))
@pytest.mark.parametrize("more", [0, 1, 4, 5])
async def test_made_again_an_export_adds_what_is_new_and_never_writes_a_full_file_again(first: int, more: int) -> None:
    blocks = chain(first + more)
    files = await exported(blocks[:first])
    full = {file_name(height) for height in range(4, first + 1, 4)}
    files.written.clear()
    await exported(blocks, files)
    assert not full & set(files.written)
    assert files.files == (await exported(blocks)).files


@pytest.mark.rule("CHN-003")
@pytest.mark.parametrize("kept", range(10))
@pytest.mark.parametrize("new", [0, 1, 3, 9])
async def test_blocks_that_were_rolled_back_are_removed_from_the_export(kept: int, new: int) -> None:
    old = chain(9)
    files = await exported(old)
    blocks = old[:kept] + chain(new, old[kept - 1] if kept else None, salt=7)
    await exported(blocks, files)
    assert files.files == (await exported(blocks)).files
    assert (await verified_chain(files)).head.header.height == kept + new


@pytest.mark.rule("CHN-003")
@pytest.mark.parametrize("kept", [0, 3, 4, 6, 9])
async def test_cut_at_any_write_an_export_is_whole_and_goes_on_later(kept: int) -> None:
    old = chain(9)
    blocks = old[:kept] + chain(10, old[kept - 1] if kept else None, salt=7)
    before, after = (await exported(old)).files, (await exported(blocks)).files
    for writes in range(20):
        files = CountingFiles(before, writes)
        try:
            await exported(blocks, files)
        except PowerCut:
            head = (await verified_chain(CountingFiles(files.files))).head
            assert head in old or head in blocks or head == genesis_signed(CHAIN, Network.DEVELOPMENT)
            files = await exported(blocks, CountingFiles(files.files))
            assert files.files == after
        else:
            assert writes > 2
            return
    raise AssertionError("it never came to an end")


async def test_a_folder_of_another_chain_or_of_other_files_is_refused_and_stays_as_it_is() -> None:
    files = await exported(chain(5))
    before = dict(files.files)
    refused = await export(files, source([], chain_id=ChainId(7)), verify)
    assert isinstance(refused, Refused)
    assert "chain 1337" in str(refused)
    other = CountingFiles({"photo.jpg": b"x"})
    assert isinstance(await export(other, source(chain(5)), verify), Refused)
    assert (files.files, other.files) == (before, {"photo.jpg": b"x"})


@pytest.mark.rule("CHN-005")
async def test_another_block_where_one_was_final_is_refused_by_its_height() -> None:
    files = await exported(old := chain(9))
    before = dict(files.files)
    other = old[:5] + chain(4, old[4], salt=7)
    refused = await export(files, source(other, finalized=6), verify)
    assert isinstance(refused, Refused)
    assert (refused.rule, "block 6" in refused.message) == ("CHN-005", True)
    assert files.files == before
    await exported(other, files, finalized=5)


async def test_a_node_that_shows_no_chain_is_not_exported() -> None:
    blocks = chain(6)
    blocks[3] = follows(blocks[2], parent=b"x" * 32)
    with pytest.raises(VerificationFailed, match="block 4 names another parent"):
        await export(CountingFiles(), source(blocks), verify)


# ------------------------------------------------------------------------------------------------ what is not true


def changed(files: CountingFiles, height: int, change: Callable[[dict[str, Any]], None]) -> CountingFiles:
    name = file_name(height)
    lines = files.files[name].split(b"\n")
    at = (height - 1) % 4
    values = json.loads(lines[at])
    change(values)
    lines[at] = json.dumps(values).encode()
    return CountingFiles(files.files | {name: b"\n".join(lines)})


def set_to(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values.update({field: value})


def other(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else ("1" if value[:1] == "0" else "0") + value[1:]


@pytest.mark.parametrize("field", sorted(FIELDS))
@pytest.mark.parametrize("height", [1, 4, 5, 9])
async def test_any_field_that_was_changed_is_found_in_its_block(field: str, height: int) -> None:
    files = await exported(chain(9))
    bad = changed(files, height, lambda values: values.update({field: other(values[field])}))
    with pytest.raises(VerificationFailed, match=f"block {height} |block {height + 1} does not follow"):
        await verified_chain(bad)


@pytest.mark.parametrize("field", sorted(FIELDS))
async def test_a_field_that_is_missing_or_of_another_kind_is_named(field: str) -> None:
    files = await exported(chain(9))
    with pytest.raises(Corrupt, match=f"block 6.*{field} is missing"):
        await verified_chain(changed(files, 6, lambda values: values.pop(field)))
    wrongs: tuple[Any, ...] = (None, True, -1, 2**64, 1.5, "XY", "abc", [])
    for wrong in wrongs:
        with pytest.raises(Corrupt, match=f"block 6.*{field}"):
            await verified_chain(changed(files, 6, set_to(field, wrong)))


async def test_a_header_signed_anew_by_a_stranger_does_not_pass_where_the_proposer_is_named() -> None:
    stranger = b"s" * 32

    def any_key(_: bytes, message: bytes, signature: bytes) -> bool:
        return signature == sign(message)

    blocks = chain(3)
    blocks += [follows(blocks[-1], proposer=stranger)]
    done = await export(files := CountingFiles(), source(blocks), any_key)
    assert isinstance(done, HeaderManifest)
    assert done.proposers == {PROPOSER.hex(): 1, stranger.hex(): 4}
    assert (await header_export.verify(files, any_key, frozenset({PROPOSER, stranger}))).head == blocks[-1]
    with pytest.raises(VerificationFailed, match=f"block 4 is signed by {stranger.hex()}"):
        await header_export.verify(files, any_key, frozenset({PROPOSER}))
    with pytest.raises(VerificationFailed, match="block 4 is not signed by its proposer"):
        await verified_chain(files)


async def test_lines_that_are_missing_exchanged_or_unreadable_are_found() -> None:
    files = await exported(chain(9))
    name = file_name(5)
    lines = files.files[name].split(b"\n")
    exchanged = b"\n".join([lines[1], lines[0], *lines[2:]])
    with pytest.raises(VerificationFailed, match="block 6 does not follow height 4"):
        await verified_chain(CountingFiles(files.files | {name: exchanged}))
    with pytest.raises(Corrupt, match="block 8 is missing"):
        await verified_chain(CountingFiles(files.files | {name: b"\n".join(lines[:3]) + b"\n"}))
    with pytest.raises(Corrupt, match="block 5 is missing"):
        await verified_chain(CountingFiles({each: raw for each, raw in files.files.items() if each != name}))
    with pytest.raises(Corrupt, match="block 7 cannot be read"):
        await verified_chain(CountingFiles(files.files | {name: b"\n".join([*lines[:2], lines[2][:-9], *lines[3:]])}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"head": "00" * 32}, "block 9 is "),
        ({"blocks": 8}, "block 8 is "),
        ({"genesis": "00" * 32}, "does not begin with"),
        ({"chain_id": 7}, "does not begin with"),
        ({"proposers": {}}, "other proposers"),
    ],
)
async def test_a_manifest_that_says_something_else_is_found(change: dict[str, Any], says: str) -> None:
    files = await exported(chain(9))
    manifest = json.dumps(json.loads(files.files[MANIFEST]) | change).encode()
    with pytest.raises(VerificationFailed, match=says):
        await verified_chain(CountingFiles(files.files | {MANIFEST: manifest}))


@pytest.mark.parametrize("manifest", [b"", b"{}", b"[]", b'{"format": 2}', b"\xff"])
async def test_a_manifest_that_cannot_be_read_is_called_so(manifest: bytes) -> None:
    files = await exported(chain(3))
    with pytest.raises(Corrupt, match=MANIFEST):
        await verified_chain(CountingFiles(files.files | {MANIFEST: manifest}))
    del files.files[MANIFEST]
    with pytest.raises(Corrupt, match=f"no {MANIFEST}"):
        await verified_chain(files)


# ------------------------------------------------------------------------------------------------ proofs


LEAVES = tuple(tx_leaf(TxKind.ADMISSION, EventNo(n), bytes([n]) * 32, b"about") for n in range(1, 6))


def proof_of(index: int) -> dict[str, Any]:
    """As `holdfast chain prove` prints it."""
    block = follows(genesis_signed(CHAIN, Network.DEVELOPMENT), leaves=LEAVES)
    shown = json.loads(encode_line(block))
    del shown["chain_id"]
    path = [step.hex() for step in prove_inclusion(LEAVES, index)]
    proof = {"leaf": LEAVES[index].hex(), "index": index, "size": len(LEAVES), "path": path}
    return {"chain_id": CHAIN, "block": shown, "proof": proof}


@pytest.mark.parametrize("index", range(5))
def test_a_proof_says_which_transaction_is_in_which_block(index: int) -> None:
    proved = check_tx_proof(*parse_tx_proof(proof_of(index), "it"), verify, [PROPOSER])
    assert (proved.kind, proved.event, proved.subject) == ("admission", index + 1, bytes([index + 1]) * 32)
    assert proved.signed.header.height == 1


def test_a_proof_signed_by_somebody_else_than_named_is_false() -> None:
    with pytest.raises(VerificationFailed, match="which is not one of the given keys"):
        check_tx_proof(*parse_tx_proof(proof_of(0), "it"), verify, [b"k" * 32])


@pytest.mark.parametrize("part", ["leaf", "index", "size", "path", "chain_id", *sorted(FIELDS.keys() - {"chain_id"})])
def test_a_proof_of_which_any_part_was_changed_is_false(part: str) -> None:
    shown = proof_of(2)
    place = shown["proof"] if part in shown["proof"] else shown["block"] if part in shown["block"] else shown
    place[part] = [other(place[part][0]), *place[part][1:]] if part == "path" else other(place[part])
    with pytest.raises(VerificationFailed):
        check_tx_proof(*parse_tx_proof(shown, "it"), verify)


@pytest.mark.parametrize(
    "shown",
    [
        None,
        [],
        {},
        proof_of(0) | {"chain_id": "x"},
        proof_of(0) | {"proof": []},
        proof_of(0) | {"block": None},
        proof_of(0) | {"proof": proof_of(0)["proof"] | {"leaf": 7}},
        proof_of(0) | {"proof": proof_of(0)["proof"] | {"path": ["zz"]}},
        proof_of(0) | {"proof": proof_of(0)["proof"] | {"index": True}},
    ],
)
def test_what_is_no_proof_is_called_unreadable(shown: object) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        parse_tx_proof(shown, "it")


def test_a_block_that_hashes_to_what_it_says_is_what_a_proof_needs() -> None:
    """A proof whose header was changed and hashed anew lacks the proposer's signature."""
    block, proof = parse_tx_proof(proof_of(1), "it")
    forged = msgspec.structs.replace(block.header, tx_count=9)
    anew = SignedHeader(forged, signed(forged).hash, block.signature)
    with pytest.raises(VerificationFailed, match="not signed by its proposer"):
        check_tx_proof(anew, TxProof(proof.leaf, proof.index, 9, proof.path), verify)
    assert isinstance(block.header, Header)

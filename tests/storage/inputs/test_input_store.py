"""Inputs on a node: whole or not there, each account's own, kept while a job needs them and some days longer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.simulation.world import SimulatedClock

from holdfast.adapters.inputs.input_store import UPLOADS_MAX, InputStore
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Digest
from holdfast.core.job.input_ref import input_digest, input_hasher

pytestmark = pytest.mark.rule("JOB-003")
ALICE, BOB = AccountId("alice"), AccountId("bob")


@pytest.fixture
def store(tmp_path: Path) -> InputStore:
    return InputStore(tmp_path / "inputs", SimulatedClock(), free_bytes_min=0)


async def uploaded(store: InputStore, account: AccountId, raw: bytes) -> Digest:
    digest = input_digest(raw)
    assert await store.write(account, digest, 0, raw) is None
    assert await store.finish(account, digest, len(raw)) is None
    return digest


async def contents(store: InputStore, digest: Digest) -> bytes | None:
    reader = await store.open(digest)
    if reader is None:
        return None
    raw = await reader.read(0, reader.size)
    await reader.close()
    return raw


def test_the_digest_of_parts_is_that_of_the_whole() -> None:
    hasher = input_hasher(5)
    for part in (b"ab", b"", b"cde"):
        hasher.update(part)
    assert hasher.digest() == input_digest(b"abcde")


async def test_an_upload_goes_on_where_it_broke_off_and_is_there_when_it_is_whole(store: InputStore) -> None:
    raw = os.urandom(3_000)
    digest = input_digest(raw)
    assert await store.offset(ALICE, digest) == (0, False)
    assert await store.write(ALICE, digest, 0, raw[:1_000]) is None
    assert await store.offset(ALICE, digest) == (1_000, False)
    wrong = await store.write(ALICE, digest, 999, raw[999:])
    assert isinstance(wrong, Refused)
    assert wrong.details == (("offset", "1000"),)
    assert (await store.use(ALICE, digest), await contents(store, digest)) == (None, None)
    assert await store.write(ALICE, digest, 1_000, raw[1_000:]) is None
    assert await store.finish(ALICE, digest, 3_000) is None
    assert await store.offset(ALICE, digest) == (3_000, True)
    assert (await store.use(ALICE, digest), await contents(store, digest)) == (3_000, raw)


async def test_bytes_of_another_digest_are_refused_and_deleted(store: InputStore) -> None:
    digest = input_digest(b"this")
    await store.write(ALICE, digest, 0, b"that")
    refused = await store.finish(ALICE, digest, 4)
    assert isinstance(refused, Refused)
    assert input_digest(b"that").hex() in refused.message
    assert (await store.offset(ALICE, digest), await contents(store, digest)) == ((0, False), None)


@pytest.mark.rule("JOB-010")
async def test_who_has_not_uploaded_all_bytes_can_neither_use_an_input_nor_learn_of_it(store: InputStore) -> None:
    large, small = await uploaded(store, ALICE, b"x" * 100), input_digest(b"small")
    await store.put_small(ALICE, small, b"small")
    for digest in (large, small):
        assert (await store.use(BOB, digest), await store.offset(BOB, digest)) == (None, (0, False))
    await uploaded(store, BOB, b"x" * 100)
    assert (await store.use(BOB, large), await store.use(ALICE, large)) == (100, 100)


async def test_small_inputs_of_concurrent_calls_are_all_held(store: InputStore) -> None:
    raws = [b"%d" % number for number in range(50)]
    await asyncio.gather(*(store.put_small(ALICE, input_digest(raw), raw) for raw in raws))
    assert [await contents(store, input_digest(raw)) for raw in raws] == raws
    assert await store.finish(ALICE, input_digest(b""), 0) is None
    assert await contents(store, input_digest(b"")) == b""


async def test_an_account_has_so_many_unfinished_uploads_and_no_more(store: InputStore) -> None:
    for number in range(UPLOADS_MAX):
        assert await store.write(ALICE, input_digest(b"%d" % number), 0, b"?") is None
    refused = await store.write(ALICE, input_digest(b"more"), 0, b"?")
    assert isinstance(refused, Refused)
    assert refused.name == "BackPressure"
    assert await store.write(BOB, input_digest(b"more"), 0, b"?") is None


async def test_what_was_named_is_kept_longer_and_bytes_as_long_as_anybody_has_them(tmp_path: Path) -> None:
    clock = SimulatedClock()
    store = InputStore(tmp_path / "inputs", clock, free_bytes_min=0)
    named, shared = await uploaded(store, ALICE, b"named"), await uploaded(store, ALICE, b"shared")
    await store.use(ALICE, named)
    now_ms = clock.wall_ms()
    assert await store.list_aged(now_ms, now_ms, 10) == []
    assert [each.digest for each in await store.list_aged(now_ms + 1, now_ms, 10)] == [shared]
    aged = await store.list_aged(now_ms + 1, now_ms + 1, 10)
    assert {(each.digest, each.is_named) for each in aged} == {(named, True), (shared, False)}
    await store.touch([each for each in aged if each.digest == named], now_ms + 5)
    clock.wall += 10
    await uploaded(store, BOB, b"shared")
    assert await store.delete(aged, now_ms + 1, now_ms + 1) == 1
    assert (await store.use(ALICE, shared), await contents(store, shared)) == (None, b"shared")
    assert await contents(store, named) == b"named"
    old = await store.list_aged(now_ms + 1_000, now_ms + 1_000, 10)
    assert await store.delete(old, now_ms + 1_000, now_ms + 1_000) == 2
    assert (await contents(store, shared), await contents(store, named)) == (None, None)

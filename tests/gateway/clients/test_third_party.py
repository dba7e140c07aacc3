"""What the gateway stores, checked by arbundles: full runs only, since that comes over the network."""

from __future__ import annotations

import pytest
from tests.gateway.running_gateway import Gateway
from tests.wire.third_party_items import third_party_ids

from holdfast.adapters.keys.signing import SigningKey
from holdfast.core.base.errors import Refused
from holdfast.wire.ans104 import build_item


@pytest.mark.full
@pytest.mark.rule("ARC-004")
async def test_arbundles_verifies_what_the_gateway_has_signed_and_what_it_was_given(running: Gateway) -> None:
    most = [{"key": f"k{number}", "value": "v" * 30} for number in range(100)]
    raw = [await running.upload(data, tags=tags) for data in (b"", b"hello", bytes(3 << 20)) for tags in (None, most)]
    private = await running.upload(b"hello", path="/upload/private", x_bucket_name="mine")
    proven = await running.upload(b"proven", offchain_provenance="true")
    item = build_item(SigningKey.from_seed(b"\1" * 32), [(b"a", b"b")], b"x" * 100_000)
    assert not isinstance(item, Refused)
    signed = await running.upload(item[1], signed="true")
    answers = [*raw, private, proven, signed]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    ids = [answer.json()["dataitem_id"] for answer in answers]
    ids.append(proven.json()["offchain_provenance_proof"])
    headers = {"authorization": f"Bearer {running.token}"}
    items = [(await running.http.get(f"/binary/{id_}", headers=headers)).content for id_ in ids]
    damaged = items[1][:-1] + bytes([items[1][-1] ^ 1])
    assert third_party_ids([*items, damaged]) == [*ids, "invalid"]

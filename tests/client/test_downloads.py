"""A download is resumed where the connection breaks, and is good only with the right digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.scripted_node import Asked, refusal, response, scripted_node

from holdfast import AsyncClient
from holdfast.client import NodeRefused, NodeUnreachable
from holdfast.client.answers import JobResult
from holdfast.core.base.errors import Corrupt
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("RES-009")
OUTPUT = bytes(range(200))
RECORD = JobResult(
    task_id="00" * 32,
    status="RESOLVED",
    height_resolved=1,
    readable_from=2,
    result_digest=result_digest(OUTPUT).hex(),
    result_size=len(OUTPUT),
    proof_nullifier="",
    da_commitment=None,
    leaf_index=0,
)


def sends(output: bytes, breaks_after: int | None = None, *, ignores_ranges: bool = False) -> Callable[[Asked], bytes]:
    """The bytes from where the client is, broken off after some of them."""

    def answer(asked: Asked) -> bytes:
        wanted = asked.headers.get("range")
        assert (asked.headers.get("if-range") is None) == (wanted is None)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and not ignores_ranges else 0
        rest = output[start:]
        return response(rest[:breaks_after], 206 if start else 200, length=len(rest))

    return answer


async def fetch(folder: Path, *answers: Callable[[Asked], bytes], timeout_s: float = 5.0) -> tuple[bytes, list[Asked]]:
    async with scripted_node(folder, *answers) as asked, AsyncClient(folder, timeout_s=timeout_s) as client:
        return await client.result(RECORD), asked


async def test_a_download_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    found, asked = await fetch(tmp_path, sends(OUTPUT, 0), sends(OUTPUT, 50), sends(OUTPUT, 100), sends(OUTPUT))
    assert found == OUTPUT
    assert [each.headers.get("range") for each in asked] == [None, None, "bytes=50-", "bytes=150-"]


async def test_a_node_that_sends_the_whole_again_is_understood(tmp_path: Path) -> None:
    assert (await fetch(tmp_path, sends(OUTPUT, 50), sends(OUTPUT, ignores_ranges=True)))[0] == OUTPUT


async def test_a_connection_that_always_breaks_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(NodeUnreachable):
        await fetch(tmp_path, sends(OUTPUT, 0), timeout_s=0.05)


@pytest.mark.parametrize("output", [OUTPUT[:-1] + b"x", OUTPUT + b"x", b"x" + OUTPUT[1:]])
async def test_other_bytes_than_those_of_the_chain_are_corrupt_and_no_file(tmp_path: Path, output: bytes) -> None:
    with pytest.raises(Corrupt):
        await fetch(tmp_path, sends(output))
    folder = tmp_path / "files"
    folder.mkdir()
    async with scripted_node(tmp_path, sends(output)), AsyncClient(tmp_path) as client:
        with pytest.raises(Corrupt):
            await client.download(RECORD, folder / "out")
    assert list(folder.iterdir()) == []


async def test_a_file_goes_on_in_a_later_process_and_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    node = scripted_node(tmp_path, sends(OUTPUT, 70), sends(OUTPUT, 0))
    async with node, AsyncClient(tmp_path, timeout_s=0.05) as client:
        with pytest.raises(NodeUnreachable):
            await client.download(RECORD, path)
    assert not path.exists()
    async with scripted_node(tmp_path, sends(OUTPUT)) as asked, AsyncClient(tmp_path) as client:
        await client.download(RECORD, path)
    assert path.read_bytes() == OUTPUT
    assert asked[0].headers["range"] == "bytes=70-"
    assert {each.name for each in tmp_path.iterdir()} == {"out", "http.sock"}


async def test_a_damaged_part_of_an_earlier_process_is_fetched_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    (tmp_path / f".out.{RECORD.result_digest[:16]}.part").write_bytes(b"wrong")
    async with scripted_node(tmp_path, sends(OUTPUT)) as asked, AsyncClient(tmp_path) as client:
        await client.download(RECORD, path)
    assert path.read_bytes() == OUTPUT
    assert [each.headers.get("range") for each in asked] == ["bytes=5-", None]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(refusal("Forbidden", 403), NodeRefused), (response(b"<html>", 404), NodeUnreachable)],
)
async def test_a_refusal_has_its_name_and_another_server_is_not_a_node(
    tmp_path: Path, answer: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await fetch(tmp_path, lambda _: answer)

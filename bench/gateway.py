"""The gateway against bare loops: uploads of 128 KiB, tag queries over a million index rows, memory while many upload.

The gateway is a real process on a real disk. The client writes requests that were made before, so that its own cost is
small; both share the machine's cores.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import apsw
import obstore.store
from tests.gateway.gateway_process import GatewayProcess
from tests.seaweedfs import server as seaweedfs

from bench.measure import Goal, Row, Table, Turn, interleave, show, table
from holdfast.adapters.item_index import ItemQuery, tag_key
from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.sql.item_queries import Search
from holdfast.adapters.sqlite.connect import connect, migrate
from holdfast.core.base.errors import Refused
from holdfast.gateway.key_file import KeyFile
from holdfast.wire.ans104 import build_item, item_id

ITEM_BYTES = 128 << 10
RECORD_BYTES = 400
CLIENTS = 16
INDEX_ROWS, TAGS_EACH = 1_000_000, 4
BIG_UPLOADS, BIG_BYTES = 100, 100_000_000
MEMORY_GOAL_MB = 512
BOUNDARY = "bench"
MB = 1_000_000
Put = Callable[[int], Awaitable[None]]


async def run(folder: Path, *, is_quick: bool) -> list[Table]:
    """Every comparison, printed as soon as it is measured."""
    rounds, uploads, rows = (2, 40, 20_000) if is_quick else (5, 1_000, INDEX_ROWS)
    big = (8, 4 * MB) if is_quick else (BIG_UPLOADS, BIG_BYTES)
    tables = []
    comparisons: tuple[Awaitable[Table], ...] = (
        compare_uploads(folder / "local", rounds, uploads, None),
        compare_uploads(folder / "remote", rounds, uploads, "seaweedfs"),
        compare_queries(folder / "queries", rounds, rows, 100 if is_quick else 500),
        measure_memory(folder / "memory", *big),
    )
    for comparison in comparisons:
        found = await comparison
        print(show(found), end="\n\n", flush=True)
        tables.append(found)
    return tables


# ------------------------------------------------------------------------------------------------ uploads


async def compare_uploads(folder: Path, rounds: int, count: int, remote: str | None) -> Table:
    """Signed items of 128 KiB, 16 at a time: answered uploads against puts of the same bytes."""
    where = "SeaweedFS" if remote else "a local folder"
    ours, bare = f"gateway, {where}", f"bare obstore put, {where}"
    synced, three = "one synced file by hand", "the gateway's three files by hand"
    items = [_item(b"%d" % number) for number in range(count * rounds)]
    server = seaweedfs.SeaweedServer() if remote else None
    if server is not None:
        server.start()
    gateway, token = _gateway(folder, server)
    gateway.start()
    started_s = _cpu_s(gateway.pid)
    store = _bare_store(folder / "bare", server)

    async def through_gateway(number: int) -> Mapping[str, float]:
        chunk = items[number * count : (number + 1) * count]
        requests = [_request(token, raw) for _, raw in chunk]
        return {ours: await _rate(count, _HttpPool(gateway.port, requests).send)}

    async def through_obstore(number: int) -> Mapping[str, float]:
        async def put(at: int) -> None:
            id_, raw = items[number * count + at]
            await obstore.put_async(store, f"items/{id_}", raw, use_multipart=False)

        return {bare: await _rate(count, put)}

    async def by_hand(number: int) -> Mapping[str, float]:
        async def put(at: int) -> None:
            id_, raw = items[number * count + at]
            await asyncio.to_thread(_write_synced, folder / "synced", id_, raw)

        return {synced: await _rate(count, put)}

    async def three_by_hand(number: int) -> Mapping[str, float]:
        async def put(at: int) -> None:
            id_, raw = items[number * count + at]
            folder_of_all = folder / "three"
            await asyncio.gather(
                asyncio.to_thread(_write_synced, folder_of_all, f"{id_}.data", raw),
                asyncio.to_thread(_write_synced, folder_of_all, f"{id_}.item", raw[:RECORD_BYTES]),
            )
            await asyncio.to_thread(_write_synced, folder_of_all, f"{id_}.meta", raw[:RECORD_BYTES])

        return {three: await _rate(count, put)}

    turns: list[Turn] = [through_gateway, through_obstore]
    turns += [] if remote else [by_hand, three_by_hand]
    try:
        figures = await interleave(turns, rounds)
        cpu_s = _cpu_s(gateway.pid) - started_s
    finally:
        gateway.stop()
        if server is not None:
            server.stop()
    order = [bare, ours] if remote else [bare, synced, three, ours]
    name = f"gateway-uploads-{'s3' if remote else 'local'}"
    found = table(name, f"Uploads of 128 KiB to {where}, {CLIENTS} at a time", "uploads/s", figures, order, bare)
    found.notes.append(
        "an upload is three objects in folders of their own and an index row; obstore's folder syncs nothing"
    )
    found.notes.append(f"the gateway's processor time: {cpu_s / count / rounds * 1000:.2f} ms an upload")
    return found


def _bare_store(folder: Path, server: seaweedfs.SeaweedServer | None) -> obstore.store.ObjectStore:
    if server is None:
        folder.mkdir()
        return obstore.store.LocalStore(folder)
    return obstore.store.S3Store(
        "bare-bucket",
        endpoint=server.endpoint,
        access_key_id=seaweedfs.ACCESS_KEY,
        secret_access_key=seaweedfs.SECRET_KEY,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def _write_synced(folder: Path, name: str, raw: bytes) -> None:
    folder.mkdir(exist_ok=True)
    temp = folder / f".{name}"
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, raw)
    os.fsync(file)
    os.close(file)
    (folder / name).hardlink_to(temp)
    temp.unlink()
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


# ------------------------------------------------------------------------------------------------ queries


async def compare_queries(folder: Path, rounds: int, rows: int, count: int) -> Table:
    """Pages of 25 by one tag of about a thousand items, and by two tags, against the same SQL without a server."""
    gateway, token = _gateway(folder, None)
    items = await asyncio.to_thread(_fill_index, folder / "gateway" / "index.db", rows)
    gateway.start()
    started_s = _cpu_s(gateway.pid)
    db = apsw.Connection(str(folder / "gateway" / "index.db"), flags=apsw.SQLITE_OPEN_READONLY)
    groups = max(1, items // 1_000)
    bare, ours, two = "bare SQLite query", "gateway, one tag", "gateway, two tags"

    def ask(*names: str) -> Callable[[int], bytes]:
        def request(at: int) -> bytes:
            values = {"group": f"{at % groups}", "kind": "blob"}
            filters = ",".join(f'{{"key":"{name}","value":"{values[name]}"}}' for name in names)
            return _json_request(f'{{"filters":[{filters}]}}'.encode(), token)

        return request

    async def by_hand(_: int) -> Mapping[str, float]:
        began = time.perf_counter()
        for at in range(count):
            search = Search(ItemQuery((tag_key(b"group", b"%d" % (at % groups)),)), is_numbered=False)
            assert len(list(db.execute(search.find(26), search.values))) > 0
        return {bare: count / (time.perf_counter() - began)}

    async def of_one(_: int) -> Mapping[str, float]:
        return {ours: await _rate(count, _HttpPool(gateway.port, [ask("group")(at) for at in range(count)]).send)}

    async def of_two(_: int) -> Mapping[str, float]:
        requests = [ask("kind", "group")(at) for at in range(count)]
        return {two: await _rate(count, _HttpPool(gateway.port, requests).send)}

    try:
        figures = await interleave([by_hand, of_one, of_two], rounds)
        cpu_s = _cpu_s(gateway.pid) - started_s
    finally:
        db.close()
        gateway.stop()
    title = f"Tag queries over {rows} rows of tags, {CLIENTS} at a time"
    found = table("gateway-queries", title, "queries/s", figures, [bare, ours, two], bare)
    found.notes.append(f"the gateway's processor time: {cpu_s / count / rounds / 2 * 1000:.2f} ms a query")
    return found


def _fill_index(file: Path, rows: int) -> int:
    """As the gateway would, in one transaction; the number of items."""
    file.parent.mkdir(parents=True, exist_ok=True)
    db, items = connect(file, "NORMAL"), rows // TAGS_EACH
    migrate(db, "items")
    groups = max(1, items // 1_000)
    kind = tag_key(b"kind", b"blob")
    with db:
        for number in range(items):
            id_ = item_id(b"%d" % number)
            row = (id_, number, ITEM_BYTES, "a/b", item_id(b"owner"), "", b"", "key", 1)
            db.execute("INSERT INTO gateway_item VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            own = [tag_key(b"n%d" % at, b"%d" % number) for at in range(TAGS_EACH - 2)]
            tags = [kind, tag_key(b"group", b"%d" % (number % groups)), *own]
            db.executemany("INSERT INTO gateway_tag VALUES (?, ?, ?)", [(tag, number, id_) for tag in tags])
        db.execute("INSERT INTO gateway_state VALUES ('complete', 1)")
    db.close()
    return items


# ------------------------------------------------------------------------------------------------ memory


async def measure_memory(folder: Path, uploads: int, size: int) -> Table:
    """The most memory that the process ever had while all uploads ran at once."""
    gateway, token = _gateway(folder, None)
    if (free := shutil.disk_usage(folder).free) < 2 * uploads * size:
        size = free // (4 * uploads)
    gateway.start()
    before = _peak_mb(gateway.pid)
    began = time.perf_counter()
    try:
        await asyncio.gather(*(_upload_slowly(gateway.port, token, number, size) for number in range(uploads)))
        seconds, after = time.perf_counter() - began, _peak_mb(gateway.pid)
    finally:
        gateway.stop()
    rows = [
        Row("before", [before]),
        Row("at most", [after]),
        Row("bytes received, MB/s", [uploads * size / MB / seconds]),
    ]
    goal = Goal(f"peak memory ≤ {MEMORY_GOAL_MB} MB", f"{after:.0f} MB", after <= MEMORY_GOAL_MB)
    title = f"Memory with {uploads} uploads of {size // MB} MB at once"
    return Table("gateway-memory", title, "MB", None, rows, [goal], [f"took {seconds:.0f} s"])


async def _upload_slowly(port: int, token: str, number: int, size: int) -> None:
    """All at the same pace, so that all are in the middle at once."""
    start, end = _form(b"").split(b"\r\n\r\n\r\n")
    start += b"\r\n\r\n" + b"%d " % number
    end = b"\r\n" + end
    head = _head("/upload", token, f"multipart/form-data; boundary={BOUNDARY}", len(start) + size + len(end))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + start)
    for at in range(0, size, MB):
        writer.write(bytes(min(MB, size - at)))
        await writer.drain()
    writer.write(end)
    answer = await reader.read(100)
    assert b" 200 " in answer, answer
    writer.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


# ------------------------------------------------------------------------------------------------ requests


def _gateway(folder: Path, server: seaweedfs.SeaweedServer | None) -> tuple[GatewayProcess, str]:
    keys = KeyFile(folder / "gateway" / "keys.json")
    _, token = keys.create(1, "bench", is_admin=False, quota_bytes=None, quota_items=None)
    limits = {f"HOLDFAST_GATEWAY__{name}": "1000000" for name in ("KEY_PER_S", "KEY_BURST", "ADDRESS_PER_S")}
    limits["HOLDFAST_GATEWAY__ADDRESS_BURST"] = "1000000"
    if server is not None:
        limits |= server.environment
        limits |= {
            "HOLDFAST_GATEWAY__OBJECTS": f"{server.bucket()}/archive",
            "HOLDFAST_GATEWAY__ENDPOINT": server.endpoint,
        }
    return GatewayProcess(folder, **limits), token


def _item(number: bytes) -> tuple[str, bytes]:
    item = build_item(_KEY, [(b"Content-Type", b"a/b"), (b"number", number)], number.ljust(ITEM_BYTES, b"x"))
    assert not isinstance(item, Refused)
    return item


_KEY = SigningKey.from_seed(bytes(32))


def _form(data: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="file"\r\ncontent-type: a/b\r\n\r\n'
    return head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()


def _request(token: str, item: bytes) -> bytes:
    body = _form(item)
    return _head("/upload", token, f"multipart/form-data; boundary={BOUNDARY}", len(body), "signed: true\r\n") + body


def _json_request(body: bytes, token: str) -> bytes:
    return _head("/tags/query", token, "application/json", len(body)) + body


def _head(path: str, token: str, kind: str, length: int, more: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n"
        f"content-type: {kind}\r\ncontent-length: {length}\r\n{more}\r\n"
    ).encode()


class _HttpPool:
    """Keeps connections open and sends whole requests over them."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._port, self._requests = port, requests
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, at: int) -> None:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._requests[at])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200"), body
        self._idle.append((reader, writer))


async def _rate(count: int, work: Put) -> float:
    """Calls a second, `CLIENTS` at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:  # the workers share it
            await work(number)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(CLIENTS)))
    return count / (time.perf_counter() - began)

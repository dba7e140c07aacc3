"""One peer's append loop, run by the Python of `.venv-peers`: `peer_process.py PEER FOLDER RECORDS PER_COMMIT`.

It needs nothing but the standard library and the peer itself, and prints the seconds that the loop took.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

LINE = b"x" * 300


def lmdb(folder: Path, records: int, per_commit: int) -> float:
    """A transaction per commit, synced; keys in order."""
    import lmdb as library  # noqa: PLC0415

    store = library.open(str(folder), map_size=4 << 30, sync=True, metasync=True)
    began = time.perf_counter()
    for done in range(0, records, per_commit):
        with store.begin(write=True) as transaction:
            for number in range(done, done + per_commit):
                transaction.put(number.to_bytes(8, "big"), LINE, append=True)
    took = time.perf_counter() - began
    store.close()
    return took


def persist_queue(folder: Path, records: int, per_commit: int) -> float:
    """Its queue on SQLite (WAL, synchronous FULL by default), committed by `task_done`."""
    import persistqueue  # noqa: PLC0415

    queue = persistqueue.SQLiteQueue(str(folder), auto_commit=per_commit == 1)
    began = time.perf_counter()
    for _ in range(0, records, per_commit):
        for _ in range(per_commit):
            queue.put(LINE)
        if per_commit > 1:
            queue.task_done()
    return time.perf_counter() - began


def nats(folder: Path, records: int, per_commit: int) -> float:
    """JetStream on files with `sync_interval: always`; N publishes at once, then all of their acks."""
    port = _free_port()
    config = folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "store"}", sync_interval: always }}\n'
    )
    program = Path(sys.executable).parent / "nats-server"
    server = subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return asyncio.run(_published(port, records, per_commit))
    finally:
        server.terminate()
        server.wait()


async def _published(port: int, records: int, per_commit: int) -> float:
    import nats as library  # noqa: PLC0415

    for _ in range(200):
        try:
            client = await library.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            break
        except OSError:
            await asyncio.sleep(0.05)
    stream = client.jetstream()
    await stream.add_stream(name="spool", subjects=["spool"])
    began = time.perf_counter()
    for _ in range(0, records, per_commit):
        await asyncio.gather(*[stream.publish("spool", LINE) for _ in range(per_commit)])
    took = time.perf_counter() - began
    await client.close()
    return took


def _free_port() -> int:
    for port in range(23_400, 23_900):
        with socket.socket() as each:
            if each.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise SystemExit("no free port")


PEERS = {"lmdb": lmdb, "persist-queue": persist_queue, "nats": nats}

if __name__ == "__main__":
    name, where, count, chunk = sys.argv[1:]
    Path(where).mkdir(parents=True)
    print(PEERS[name](Path(where), int(count), int(chunk)))

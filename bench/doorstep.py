"""Servers to be knocked at, each in a process of its own: our HTTP door on SQLite, and bare Starlette on uvicorn.

`python -m bench.doorstep ours FOLDER` or `bare`: prints the port, serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from bench.ours import close_engine, new_engine
from bench.stores import Spot
from holdfast.adapters.clock import MachineClock
from holdfast.core.key import MakeKey, Role, secret_hash
from holdfast.core.values import KeyId
from holdfast.doors.desk import Desk
from holdfast.doors.http.door import HttpDoor
from holdfast.doors.http.server import config_of, listening_socket
from holdfast.doors.http.settings import HttpSettings

MUCH = 10_000_000
SETTINGS = HttpSettings(
    port=0, key_per_s=MUCH, key_burst=MUCH, address_per_s=MUCH, address_burst=MUCH, subscribers_max=20_000
)
KEY, SECRET = KeyId("be" * 8), "bench-" + "b" * 26
TOKEN = f"hf_{KEY}_{SECRET}"
ACCOUNT = {"owner": "alice", "available": 10**12, "held": 0, "pending": 0}


# ------------------------------------------------------------------------------------------------ the servers


async def ours(folder: Path) -> None:
    engine = await new_engine(Spot(folder))
    await engine.submit(MakeKey(KEY, secret_hash(SECRET.encode()), Role.OPERATOR))
    door = HttpDoor(Desk(engine, engine.submit), MachineClock(), SETTINGS)
    await door.open()
    gc.collect()
    gc.freeze()
    print(door.port, flush=True)
    await _stdin_ends()
    await door.close()
    await close_engine(engine)


async def answer(request: Request) -> JSONResponse:
    """As much as a handler can do that does nothing: read JSON, answer JSON of the same size."""
    asked = await request.json()
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": ACCOUNT})


async def talk(wire: WebSocket) -> None:
    await wire.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            asked = await wire.receive_json()
            await wire.send_json({"jsonrpc": "2.0", "id": asked["id"], "result": ACCOUNT})


async def bare() -> None:
    """The same uvicorn, parser, socket library and settings, without our protocols."""
    app = Starlette(routes=[Route("/rpc", answer, methods=["POST"]), WebSocketRoute("/ws", talk)])
    config = config_of(app, SETTINGS)
    config.http, config.ws = "httptools", "websockets-sansio"
    sock = listening_socket(SETTINGS)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]))
    gc.collect()
    gc.freeze()
    print(sock.getsockname()[1], flush=True)
    await _stdin_ends()
    server.should_exit = True
    await serving


async def _stdin_ends() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# ------------------------------------------------------------------------------------------------ starting them


class Step:
    """A running server: its port and its process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def memory_kib(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@asynccontextmanager
async def started(*words: Any) -> AsyncIterator[Step]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.doorstep",
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while not (line := (await process.stdout.readline()).strip()).isdigit():
            assert line, f"{words} did not start"
        yield Step(int(line), process.pid)
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(bare() if sys.argv[1] == "bare" else ours(Path(sys.argv[2])))

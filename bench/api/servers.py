"""Servers under test, each in a process of its own: our HTTP server on SQLite, and bare Starlette on uvicorn.

`python -m bench.api.servers ours FOLDER`, `guarded FOLDER` or `bare`: prints the port, serves until its input ends.
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

from bench.engine.contestant import new_engine
from bench.engine.opened import close_engine
from bench.stores import StorePlace
from holdfast.adapters.clock import MachineClock
from holdfast.api.http.server import HttpServer
from holdfast.api.http.settings import HttpSettings
from holdfast.api.http.uvicorn_server import listening_socket, uvicorn_config
from holdfast.api.node_access import NodeAccess
from holdfast.core.base.values import AccountId, KeyId
from holdfast.core.key.messages import CreateKey
from holdfast.core.key.model import Role, secret_hash

UNLIMITED = 10_000_000
SETTINGS = HttpSettings(
    port=0,
    key_per_s=UNLIMITED,
    key_burst=UNLIMITED,
    address_per_s=UNLIMITED,
    address_burst=UNLIMITED,
    subscribers_max=20_000,
)
KEY, SECRET = KeyId("be" * 8), "bench-" + "b" * 26
TOKEN = f"hf_{KEY}_{SECRET}"
OTHER_KEY = KeyId("ab" * 8)
OTHER_TOKEN = f"hf_{OTHER_KEY}_{SECRET}"
GUARDED = HttpSettings(port=0)
"""With the limits that a node has."""
ACCOUNT = {"owner": "alice", "available": 10**12, "held": 0, "pending": 0}


# ------------------------------------------------------------------------------------------------ the servers


async def serve_holdfast(folder: Path, settings: HttpSettings = SETTINGS) -> None:
    engine = await new_engine(StorePlace(folder))
    hashed = secret_hash(SECRET.encode())
    await engine.submit(CreateKey(KEY, hashed, Role.OPERATOR))
    await engine.submit(CreateKey(OTHER_KEY, hashed, Role.REQUESTER, account=AccountId("mallory")))
    server = HttpServer(NodeAccess(engine, engine.submit), MachineClock(), settings)
    await server.open()
    gc.collect()
    gc.freeze()
    print(server.port, flush=True)
    await _stdin_ends()
    await server.close()
    await close_engine(engine)


async def answer_rpc(request: Request) -> JSONResponse:
    """As much as a handler can do that does nothing: read JSON, answer JSON of the same size."""
    asked = await request.json()
    return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": ACCOUNT})


async def answer_websocket(wire: WebSocket) -> None:
    await wire.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            asked = await wire.receive_json()
            await wire.send_json({"jsonrpc": "2.0", "id": asked["id"], "result": ACCOUNT})


async def serve_bare() -> None:
    """The same uvicorn, parser, socket library and settings, without our protocols."""
    app = Starlette(routes=[Route("/rpc", answer_rpc, methods=["POST"]), WebSocketRoute("/ws", answer_websocket)])
    config = uvicorn_config(app, SETTINGS)
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


class ServerProcess:
    """A running server: its port and its process."""

    def __init__(self, port: int, pid: int) -> None:
        self.port, self.pid = port, pid

    def memory_kib(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@asynccontextmanager
async def running_server(*words: Any) -> AsyncIterator[ServerProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.api.servers",
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
        yield ServerProcess(int(line), process.pid)
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(serve_bare())
    else:
        asyncio.run(serve_holdfast(Path(sys.argv[2]), GUARDED if sys.argv[1] == "guarded" else SETTINGS))

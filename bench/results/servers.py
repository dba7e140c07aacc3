"""A node with a fresh and an old result behind its HTTP server, and bare Starlette that answers with as many bytes.

`python -m bench.results.servers ours FOLDER` or `bare ANSWER`: prints a line of JSON, serves until its input ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.api.servers import KEY, SECRET, SETTINGS
from bench.engine.opened import close_engine
from bench.queue import contestant
from bench.stores import StorePlace
from holdfast.adapters.clock import MachineClock
from holdfast.api.http.server import HttpServer
from holdfast.api.http.uvicorn_server import listening_socket, uvicorn_config
from holdfast.api.node_access import NodeAccess
from holdfast.core.key.messages import CreateKey
from holdfast.core.key.model import Role, secret_hash


async def serve_holdfast(folder: Path) -> None:
    engine = await contestant.open_engine_with_providers(StorePlace(folder), providers=1)
    await engine.submit(CreateKey(KEY, secret_hash(SECRET.encode()), Role.OPERATOR))
    tasks = []
    for _ in ("old", "fresh"):
        tasks += await contestant.enqueue_all(engine, contestant.make_enqueues(engine, 1))
        await contestant.drain_all(engine)
        if not tasks[1:]:
            await contestant.finalize_and_project(engine)  # the first one is history: a row
    await contestant.seal_blocks(engine)
    server = HttpServer(NodeAccess(engine, engine.submit), MachineClock(), SETTINGS)
    await server.open()
    await _serve({"port": server.port, "tasks": [task.hex() for task in tasks]})
    await server.close()
    await close_engine(engine)


async def serve_bare(answer: Any) -> None:
    """The same uvicorn, parser and settings, without our protocols: reads JSON, answers JSON."""

    async def handle(request: Request) -> JSONResponse:
        asked = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": answer})

    config = uvicorn_config(Starlette(routes=[Route("/rpc", handle, methods=["POST"])]), SETTINGS)
    config.http = "httptools"
    sock = listening_socket(SETTINGS)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]))
    await _serve({"port": sock.getsockname()[1]})
    server.should_exit = True
    await serving


async def _serve(told: dict[str, Any]) -> None:
    gc.collect()
    gc.freeze()
    print(json.dumps(told), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@asynccontextmanager
async def running_server(*words: Any) -> AsyncIterator[dict[str, Any]]:
    """What the server said of itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.results.servers",
        *map(str, words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while not (line := await process.stdout.readline()).startswith(b'{"port"'):
            assert line, f"{words[0]} did not start"
        yield json.loads(line)
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(serve_bare(json.loads(sys.argv[2])) if sys.argv[1] == "bare" else serve_holdfast(Path(sys.argv[2])))

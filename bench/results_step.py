"""A node with a fresh and an old result at its HTTP door, and bare Starlette that answers with as many bytes.

`python -m bench.results_step ours FOLDER` or `bare ANSWER`: prints a line of JSON, serves until its input ends.
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

from bench import queue_ours
from bench.doorstep import KEY, SECRET, SETTINGS
from bench.ours import close_engine
from bench.stores import Spot
from holdfast.adapters.clock import MachineClock
from holdfast.core.key import MakeKey, Role, secret_hash
from holdfast.doors.desk import Desk
from holdfast.doors.http.door import HttpDoor
from holdfast.doors.http.server import config_of, listening_socket


async def ours(folder: Path) -> None:
    engine = await queue_ours.opened(Spot(folder), providers=1)
    await engine.submit(MakeKey(KEY, secret_hash(SECRET.encode()), Role.OPERATOR))
    tasks = []
    for _ in ("old", "fresh"):
        tasks += await queue_ours.enqueued(engine, queue_ours.asked(engine, 1))
        await queue_ours.drained(engine)
        if not tasks[1:]:
            await queue_ours.rested(engine)  # the first one is history: a row
    await queue_ours.sealed(engine)
    door = HttpDoor(Desk(engine, engine.submit), MachineClock(), SETTINGS)
    await door.open()
    await _serve({"port": door.port, "tasks": [task.hex() for task in tasks]})
    await door.close()
    await close_engine(engine)


async def bare(answer: Any) -> None:
    """The same uvicorn, parser and settings, without our protocols: reads JSON, answers JSON."""

    async def handle(request: Request) -> JSONResponse:
        asked = await request.json()
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": answer})

    config = config_of(Starlette(routes=[Route("/rpc", handle, methods=["POST"])]), SETTINGS)
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
async def started(*words: Any) -> AsyncIterator[dict[str, Any]]:
    """What the server said of itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.results_step",
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
    asyncio.run(bare(json.loads(sys.argv[2])) if sys.argv[1] == "bare" else ours(Path(sys.argv[2])))

"""The agent's own socket in its folder: who can open it asks how the agent is, pauses it, or lets it drain and end.

A request is one line, a word; the answer is one line of JSON.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.core.base.errors import Unavailable

SOCKET_NAME: Final = "agent.sock"
STATUS, PAUSE, RESUME, DRAIN = "status", "pause", "resume", "drain"
WITHIN_S: Final = 5.0
Answer = Callable[[], dict[str, Any]]


class ControlSocket:
    """Answers the words of a table; only the user of the folder can open it."""

    def __init__(self, folder: Path, answers: dict[str, Answer]) -> None:
        self._path, self._answers = folder / SOCKET_NAME, answers
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """The folder's lock is ours: a socket that is there was left by a crash."""
        with suppress(FileNotFoundError):
            await asyncio.to_thread(self._path.unlink)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path)
        except OSError as fault:
            raise Unavailable("EVD-006", f"{self._path}: {fault.strerror}", "use a shorter --data path") from fault
        await asyncio.to_thread(self._path.chmod, 0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(FileNotFoundError):
                await asyncio.to_thread(self._path.unlink)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                word = (await reader.readline()).decode("utf-8", "replace").strip()
                answer = self._answers.get(word)
                said = {"error": f"{word!r:.40} is none of {', '.join(self._answers)}"} if answer is None else answer()
                writer.write(msgspec.json.encode(said) + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass  # the other side has left, or is not one of ours
        finally:
            writer.close()


def ask_agent(folder: Path, word: str) -> dict[str, Any]:
    """The answer of the agent that runs in this folder; Unavailable where none does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(WITHIN_S)
        connection.connect(str(folder / SOCKET_NAME))
        connection.sendall(word.encode() + b"\n")
        with connection.makefile("rb") as answers:
            answer: dict[str, Any] = msgspec.json.decode(answers.readline())
    except (OSError, msgspec.DecodeError) as fault:
        raise Unavailable("EVD-006", f"no agent answers in {folder}", "pass the agent's folder with --data") from fault
    finally:
        connection.close()
    return answer

"""Objects in memory that fail on command: before anything happened, or after it happened and before it was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.adapters.objects.keys import check_key
from holdfast.core.base.errors import Unavailable
from holdfast.ports.objects import StoredObject


class SimulatedObjects:
    """A store that a test can look into, damage and interrupt."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.fail_before: set[str] = set()
        """Operations that fail without effect: put_once, replace, size, read, list, delete."""
        self.fail_after: set[str] = set()
        """Operations that have their effect and then fail: the answer is lost."""
        self.puts_left: int | None = None
        """How many writes succeed before the store fails; None for all."""

    async def put_once(self, key: str, source: bytes | Path) -> bool:
        check_key(key)
        self._begin("put_once")
        if self.puts_left is not None:
            if self.puts_left == 0:
                raise _down()
            self.puts_left -= 1
        is_new = key not in self.stored
        if is_new:
            self.stored[key] = _content(source)
        self._end("put_once")
        return is_new

    async def replace(self, key: str, source: bytes | Path) -> None:
        self._begin("replace")
        self.stored[check_key(key)] = _content(source)
        self._end("replace")

    async def size(self, key: str) -> int | None:
        self._begin("size")
        raw = self.stored.get(check_key(key))
        return None if raw is None else len(raw)

    async def read(self, key: str, start: int = 0, length: int | None = None) -> bytes | None:
        self._begin("read")
        raw = self.stored.get(check_key(key))
        return None if raw is None else raw[start : None if length is None else start + length]

    async def list(self, folder: str, after: str = "") -> AsyncIterator[StoredObject]:
        self._begin("list")
        for key in sorted(self.stored):
            if key.startswith(f"{check_key(folder)}/") and key > after:
                yield StoredObject(key, len(self.stored[key]))

    async def delete(self, key: str) -> None:
        self._begin("delete")
        self.stored.pop(check_key(key), None)

    async def close(self) -> None:
        self.calls["close"] += 1

    def damage(self, key: str, at: int = 0) -> None:
        """Flip a bit."""
        raw = bytearray(self.stored[key])
        raw[at] ^= 1
        self.stored[key] = bytes(raw)

    def _begin(self, operation: str) -> None:
        self.calls[operation] += 1
        if operation in self.fail_before:
            raise _down()

    def _end(self, operation: str) -> None:
        if operation in self.fail_after:
            raise _down()


def _content(source: bytes | Path) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _down() -> Unavailable:
    return Unavailable("ARC-004", "object store: down", "this is a test")

"""Blocking file operations in a thread, with OSError translated once for every adapter."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.core.base.errors import Unavailable

T = TypeVar("T")
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


async def run_file_io(rule: str, work: Callable[..., T], *args: object) -> T:
    """What `work` returns in a thread; Unavailable, with this rule, if it raises OSError."""
    try:
        return await asyncio.to_thread(work, *args)
    except OSError as fault:
        raise unavailable(rule, fault) from fault


def unavailable(rule: str, fault: OSError) -> Unavailable:
    file = f": {fault.filename}" if fault.filename else ""
    hint = "free some disk space" if fault.errno in _FULL else "check the disk and the permissions"
    return Unavailable(rule, f"{fault.strerror}{file}", hint)

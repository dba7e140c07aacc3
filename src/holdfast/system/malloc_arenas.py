"""The heaps of the C library: by default it gives nearly every thread one, and what is free in each stays there."""

from __future__ import annotations

import ctypes
import os
from typing import Final

ARENAS_MAX: Final = 2
"""Threads of Python mostly wait for each other anyway."""
_M_ARENA_MAX: Final = -8  # <malloc.h> of glibc
_SETTING: Final = "MALLOC_ARENA_MAX"


def limit_malloc_arenas() -> None:
    """Before threads are started. What the environment sets stays, and so does a library that has no such limit."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and _SETTING not in os.environ:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)

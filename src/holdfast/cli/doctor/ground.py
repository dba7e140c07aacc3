"""What a node stands on: its folder, the disk below it, the path of its socket, and who may read its keys."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.keys.secretfile import read_secret
from holdfast.adapters.keys.signing import SigningKey
from holdfast.cli.doctor.finding import Finding
from holdfast.client import SOCKET
from holdfast.core.refusal import Unavailable
from holdfast.doors.local import SOCKET_PATH_MAX

FREE_BYTES_MIN: Final = 1 << 30
KEYS: Final = "keys"
NODE_KEY: Final = "node.pem"


def folder(data: Path) -> Iterator[Finding]:
    if not data.exists():
        yield Finding(True, "folder", f"{data} does not exist yet", "the first start makes it")
    else:
        status = data.stat()
        mode = stat.S_IMODE(status.st_mode)
        private = mode & 0o077 == 0 and status.st_uid == os.getuid()
        yield Finding(private, "folder", f"{data} has mode {mode:04o}", "" if private else f"chmod 700 {data}")
        writable = os.access(data, os.W_OK | os.X_OK)
        yield Finding(writable, "write", "can be written" if writable else "cannot be written by this user")
    there = next(folder for folder in (data.absolute(), *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    hint = "" if free >= FREE_BYTES_MIN else "a full disk stops the node until there is room; nothing confirmed is lost"
    yield Finding(free >= FREE_BYTES_MIN, "disk", f"{free // 2**20} MiB free", hint)


def socket(data: Path) -> Iterator[Finding]:
    size = len(os.fsencode(data.absolute() / SOCKET))
    good = size <= SOCKET_PATH_MAX
    hint = "" if good else "use a data folder with a shorter path"
    yield Finding(good, "socket", f"its path has {size} of at most {SOCKET_PATH_MAX} bytes", hint)


def keys(data: Path) -> Iterator[Finding]:
    """SEC-001: the node's own key, and every other one beside it; none may be read by others."""
    path = data / KEYS / NODE_KEY
    if not path.exists():
        yield Finding(True, "key", "there is none yet", "the first start makes it, or holdfast init")
    else:
        try:
            yield Finding(True, "key", f"{path}, public {SigningKey.load(path).public.hex()}")
        except Unavailable as fault:
            yield Finding(False, "key", fault.says, fault.hint)
    for other in sorted((data / KEYS).glob("*.key")):
        try:
            read_secret(other)
        except Unavailable as fault:
            yield Finding(False, "key", fault.says, fault.hint)

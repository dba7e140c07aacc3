"""The node's host: its folder, the disk below it, the path of its socket, and who may read its keys."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.keys.secret_file import read_secret
from holdfast.adapters.keys.signing import SigningKey
from holdfast.api.rpc.unix_socket import SOCKET_PATH_MAX
from holdfast.cli.doctor.finding import HostFinding
from holdfast.cli.terminal.key_files import KEYS_FOLDER, NODE_KEY_FILE
from holdfast.client import SOCKET_NAME
from holdfast.core.base.errors import Unavailable

FREE_BYTES_MIN: Final = 1 << 30


def check_folder(data: Path) -> Iterator[HostFinding]:
    if not data.exists():
        yield HostFinding(True, "folder", f"{data} does not exist yet", "the first start creates it")
    else:
        status = data.stat()
        mode = stat.S_IMODE(status.st_mode)
        private = mode & 0o077 == 0 and status.st_uid == os.getuid()
        yield HostFinding(private, "folder", f"{data} has mode {mode:04o}", "" if private else f"chmod 700 {data}")
        writable = os.access(data, os.W_OK | os.X_OK)
        yield HostFinding(writable, "write", "can be written" if writable else "cannot be written by this user")
    existing = next(folder for folder in (data.absolute(), *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    hint = (
        "" if free >= FREE_BYTES_MIN else "a full disk stops the node until there is space; nothing confirmed is lost"
    )
    yield HostFinding(free >= FREE_BYTES_MIN, "disk", f"{free // 2**20} MiB free", hint)


def check_socket(data: Path) -> Iterator[HostFinding]:
    size = len(os.fsencode(data.absolute() / SOCKET_NAME))
    good = size <= SOCKET_PATH_MAX
    hint = "" if good else "use a data folder with a shorter path"
    yield HostFinding(good, "socket", f"its path has {size} of at most {SOCKET_PATH_MAX} bytes", hint)


def check_keys(data: Path) -> Iterator[HostFinding]:
    """SEC-001: the node's own key and every other key beside it; no other user may read them."""
    path = data / KEYS_FOLDER / NODE_KEY_FILE
    if not path.exists():
        yield HostFinding(True, "key", "there is none yet", "the first start or holdfast init creates it")
    else:
        try:
            yield HostFinding(True, "key", f"{path}, public {SigningKey.load(path).public.hex()}")
        except Unavailable as fault:
            yield HostFinding(False, "key", fault.message, fault.hint)
    for other in sorted((data / KEYS_FOLDER).glob("*.key")):
        try:
            read_secret(other)
        except Unavailable as fault:
            yield HostFinding(False, "key", fault.message, fault.hint)

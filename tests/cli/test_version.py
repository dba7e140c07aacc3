"""`holdfast version`: the version, and with --verbose what a bug report needs, without a secret or a name of yours."""

from __future__ import annotations

import json
import os
import platform
import socket
from pathlib import Path

from tests.stories.cli_runner import holdfast

from holdfast import __version__


def test_the_version_is_one_line() -> None:
    assert holdfast("version").out == f"holdfast {__version__}\n"
    assert holdfast("--version").out == f"holdfast {__version__}\n"
    assert holdfast("version", "--json").json == {"holdfast": __version__}


def test_a_bug_report_has_python_system_and_libraries() -> None:
    facts = holdfast("version", "--verbose", "--json").json
    assert facts["python"].endswith(platform.python_version())
    assert facts["apsw"].startswith("3."), "which is the version of SQLite, too"
    assert {"apsw", "grpcio", "asyncpg", "msgspec"} <= set(facts)
    text = holdfast("version", "--verbose").out
    assert all(line.split(maxsplit=1)[0] in facts for line in text.splitlines())


def test_a_bug_report_names_no_secret_no_host_and_no_path(tmp_path: Path) -> None:
    secrets = {"HOLDFAST_TOKEN": "hf_secret", "HOLDFAST_POSTGRES__DSN": "postgresql://me:hidden@db/x"}
    text = json.dumps(holdfast("version", "--verbose", "--json", environ=secrets).json)
    for word in ("hf_secret", "hidden", socket.gethostname(), str(Path.home()), str(Path.cwd()), str(tmp_path)):
        assert word not in text, word
    assert os.environ.get("USER", "nobody in particular") not in text

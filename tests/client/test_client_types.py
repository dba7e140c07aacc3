"""The client is typed, the blocking one is made from the asynchronous one, and neither is loaded before it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from holdfast import AsyncClient, Client, JobRequest

def work(client: Client) -> int:
    receipt = client.enqueue({{"kind": "AI"}}, 100)
    result = client.wait(receipt)
    return result.{field} + receipt.nonce

def work_with_inputs(client: Client) -> list[bytes]:
    return list(client.map([JobRequest({{"kind": "COMPUTE"}}, 100, input=b"text")]))

async def work_later(client: AsyncClient) -> bytes:
    async for outcome in client.as_completed([await client.enqueue({{}}, 1)]):
        return await client.result(outcome.unwrap())
    return b""
"""


def check_types(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.rule("RPC-001")
def test_a_misspelt_field_is_found_by_the_type_checker(tmp_path: Path) -> None:
    good = check_types(PROGRAM.format(field="result_size"), tmp_path)
    assert good.returncode == 0, good.stdout
    misspelt = check_types(PROGRAM.format(field="resultsize"), tmp_path)
    assert misspelt.returncode == 1
    assert '"JobResult" has no attribute "resultsize"' in misspelt.stdout


def test_the_blocking_client_is_what_the_generator_makes() -> None:
    command = [sys.executable, str(ROOT / "tools/generate_sync.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("imported", ["holdfast", "holdfast.spool", "holdfast.client"])
def test_an_import_that_needs_no_client_loads_none(imported: str) -> None:
    program = f"import sys, {imported}; sys.exit('httpx' in sys.modules or 'holdfast.engine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

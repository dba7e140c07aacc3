"""A job's payload from a JSON file, and refusals of payload options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.cli.terminal.input_files import UnreadableInput, read_json
from holdfast.core.base.errors import Refused


def payload_from_file(file: Path) -> dict[str, Any] | Refused:
    try:
        return read_json(file, dict[str, Any])
    except UnreadableInput as fault:
        hint = 'expected {"kind": "AI", "spec": {"model": …, "prompt": …}}'
        return invalid_option(f"--file: {file}: {fault}", hint)


def invalid_option(message: str, hint: str) -> Refused:
    return Refused("JOB-003", message, hint, "InvalidParams")

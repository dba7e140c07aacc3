"""A job's payload from options or a JSON file, and refusals of payload options."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from holdfast.cli.terminal.input_files import UnreadableInput, read_bytes, read_json
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Kind
from holdfast.core.job.input_ref import INLINE_BYTES_MAX


def payload_from_file(file: Path) -> dict[str, Any] | Refused:
    try:
        return read_json(file, dict[str, Any])
    except UnreadableInput as fault:
        hint = 'expected {"kind": "AI", "spec": {"model": …, "prompt": …}}'
        return invalid_option(f"--file: {file}: {fault}", hint)


def read_input(file: Path) -> str | Refused:
    """The bytes of an input that goes with its job, as base64."""
    try:
        raw = read_bytes(file, INLINE_BYTES_MAX)
    except UnreadableInput as fault:
        return invalid_option(f"--input: {file}: {fault}", f"at most {INLINE_BYTES_MAX} bytes go with a job")
    return base64.b64encode(raw).decode()


def invalid_option(message: str, hint: str) -> Refused:
    return Refused("JOB-003", message, hint, "InvalidParams")


def payload_from_options(kind: Kind | None, ai: dict[str, Any], compute: dict[str, Any]) -> dict[str, Any] | Refused:
    """The payload of an AI or a COMPUTE job; `ai` and `compute` are the specs that the options give."""
    if ai and compute:
        return invalid_option("--model and --runtime: pass one of them", "a model is AI, a runtime is COMPUTE")
    kind = kind or (Kind.COMPUTE if compute else Kind.AI)
    if kind is Kind.QUANTUM:
        hint = '{"kind": "QUANTUM", "spec": {"circuit": …, "shots": 1000, "width": 2, "depth": 3}}'
        return invalid_option(f"--file: a {kind} job is described in a file", hint)
    if kind is Kind.COMPUTE:
        if ai or "runtime" not in compute:
            return invalid_option("--runtime: needed for a COMPUTE job", "or --file with the whole payload")
        return {"kind": kind.value, "spec": compute}
    if compute or "model" not in ai:
        return invalid_option("--model: needed for an AI job", "or --runtime for COMPUTE, or --file")
    return {"kind": kind.value, "spec": ai}


def compute_spec(runtime: str | None, args: list[str] | None, resources: dict[str, int]) -> dict[str, Any]:
    """The spec of a COMPUTE job, without what was not given."""
    needs = {name: value for name, value in resources.items() if value}
    given = {"runtime": runtime, "args": args or None, "resources": needs or None}
    return {name: value for name, value in given.items() if value is not None}

"""The process of `--python`: imports a function once, then calls it for job after job.

Requests are lines of JSON on standard input, answers lines on what standard output was; what the function prints goes
to standard error. A function takes the input's bytes and, if it wants, its `FunctionJob`; it returns bytes or text.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO


class FunctionJob:
    """What a function may know of its job."""

    def __init__(self, request: dict[str, Any], progress: Callable[..., None]) -> None:
        self.spec: dict[str, Any] = request["spec"]
        self.task_id: str = request["task_id"]
        self.deadline_ms: int = request["deadline_ms"]
        self.output_dir = Path(request["output_dir"])
        self.media_type: str = request["media_type"]
        self.progress = progress
        """Percent and text, for the caller."""


def load(target: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; the current folder is searched, too."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is not a function")
    return found  # type: ignore[no-any-return]


def serve(target: str, answers: TextIO) -> None:
    function = load(target)
    takes_job = len(inspect.signature(function).parameters) > 1
    _say(answers, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)

        def progress(percent: int, text: str = "") -> None:
            _say(answers, {"progress": [int(percent), str(text)]})

        job = FunctionJob(request, progress)
        try:
            raw = Path(request["input_file"]).read_bytes()
            output = function(raw, job) if takes_job else function(raw)
            if isinstance(output, str):
                output = output.encode()
            if output is not None:
                Path(request["stdout"]).write_bytes(output)
        except BaseException as fault:
            names = [kind.__name__ for kind in type(fault).__mro__]
            _say(answers, {"failed": [names, str(fault)[:400]]})
            if not isinstance(fault, Exception):
                raise
        else:
            _say(answers, {"done": True})


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for folder in reversed(sys.argv[2:]):
        sys.path.insert(0, folder)
    serve(sys.argv[1], answers)


if __name__ == "__main__":
    main()

"""The jobs of the story, of every kind: what each asks for, how it must end, and with which bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.client.job_lines import JobRequest
from holdfast.core.base.canonical import canonical
from holdfast.core.job.model import JobState
from holdfast.core.job.spec import read_work_payload
from holdfast.workloads.circuit import run_circuit

MAX_FEE = 100
WORD = "osprey-kestrel"
"""It is in every payload, input and output, and nowhere else."""
INLINE_BYTES_MAX = 2_000
"""The policy's limit in this story: a larger output leaves the store, and the node."""
LARGE_BYTES = 150_000
"""More than one blob holds, and more than an input may have inline."""


class StoryJob(NamedTuple):
    """One job and its only right end."""

    payload: dict[str, Any]
    state: JobState = JobState.COMPLETED
    output: bytes = b""
    input: bytes | None = None

    @property
    def is_uploaded(self) -> bool:
        return self.input is not None and len(self.input) > INLINE_BYTES_MAX

    @property
    def is_large(self) -> bool:
        return len(self.output) > INLINE_BYTES_MAX

    def request(self, ref: dict[str, object] | None) -> JobRequest:
        """As a line of a bulk request; `ref` is the input that was uploaded before."""
        if ref is not None:
            return JobRequest(self.payload | {"input": ref}, MAX_FEE)
        return JobRequest(self.payload, MAX_FEE, input=self.input)


def echo(number: int) -> StoryJob:
    """The node computes it again: a lie is found."""
    prompt = f"{WORD} {number}"
    return StoryJob(
        {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "proof": "recompute"}, output=prompt.encode()
    )


def long_echo(number: int) -> StoryJob:
    prompt = f"{WORD} {number} is long. ".ljust(INLINE_BYTES_MAX + 1_000, "x")
    return StoryJob(
        {"kind": "AI", "spec": {"model": "echo", "prompt": prompt}, "proof": "recompute"}, output=prompt.encode()
    )


def chat(number: int) -> StoryJob:
    """A server in the shape of OpenAI's does it."""
    body = f'{{"messages": ["{WORD} {number}"]}}'.encode()
    return StoryJob({"kind": "AI", "spec": {"model": "chat"}}, output=b"data: " + body + b"\n\n", input=body)


def circuit(number: int) -> StoryJob:
    width = 2 + number % 3
    chain = "".join(f"cx q[{at}], q[{at + 1}];\n" for at in range(width - 1))
    text = f"OPENQASM 3.0;\n// {WORD} {number}\nqubit[{width}] q;\nbit[{width}] c;\nh q[0];\n{chain}c = measure q;\n"
    spec = {"circuit": text, "shots": 16, "width": width, "depth": width + 1}
    payload = {"kind": "QUANTUM", "spec": spec | {"trap_ppm": 250_000}, "proof": "traps"}
    if number % 2:
        payload = {"kind": "QUANTUM", "spec": spec, "proof": "recompute"}
    return StoryJob(payload, output=run_circuit(read_work_payload(canonical(payload))))


def shout(number: int) -> StoryJob:
    """A shell program of the provider."""
    return StoryJob(_shout("plain"), output=_word(number).upper(), input=_word(number))


def long_shout(number: int) -> StoryJob:
    text = _word(number).ljust(LARGE_BYTES, b"s")
    return StoryJob(_shout("plain"), output=text.upper(), input=text)


def killed_once(number: int) -> StoryJob:
    """The program dies by a signal the first time."""
    return StoryJob(_shout(f"once-{number}"), output=_word(number).upper(), input=_word(number))


def forking(number: int) -> StoryJob:
    """The program leaves a process behind."""
    return StoryJob(_shout("fork"), output=_word(number).upper(), input=_word(number))


def invalid(number: int) -> StoryJob:
    """The program says that the input is the fault."""
    return StoryJob(_shout("bad"), JobState.FAILED, input=_word(number))


def double(number: int) -> StoryJob:
    """A Python function of the provider."""
    text = _word(number).ljust(LARGE_BYTES // 2, b"d")
    return StoryJob({"kind": "COMPUTE", "spec": {"runtime": "double"}}, output=text * 2, input=text)


def cancelled(number: int) -> StoryJob:
    """Nobody offers it: its caller cancels it."""
    return StoryJob({"kind": "AI", "spec": {"model": "none", "prompt": f"{WORD} {number}"}}, JobState.CANCELLED)


def _word(number: int) -> bytes:
    return f"{WORD} {number}".encode()


def _shout(word: str) -> dict[str, Any]:
    return {"kind": "COMPUTE", "spec": {"runtime": "shout", "args": [word]}}


TEMPLATES: dict[str, tuple[Callable[[int], StoryJob], ...]] = {
    "AI": (echo, chat, long_echo, echo, chat, cancelled),
    "QUANTUM": (circuit,),
    "COMPUTE": (shout, long_shout, double, killed_once, invalid, forking),
}
"""In turns."""


def story_jobs(of_each_kind: int) -> list[StoryJob]:
    return [
        templates[number % len(templates)](number) for number in range(of_each_kind) for templates in TEMPLATES.values()
    ]

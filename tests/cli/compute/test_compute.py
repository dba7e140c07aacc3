"""`holdfast compute` answers: anybody recomputes any id offline, and gets what a naive reading of the rules gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.compute.compute_inputs import GOOD, compute, faults, spelt, without_hint
from tests.core import naive
from typer.testing import CliRunner

from holdfast import __version__
from holdfast.cli import VERBS, app
from holdfast.cli.compute import FORMULAS, summary_of

HOLDFAST = Path(sys.executable).parent / "holdfast"
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "compute.json").read_text("utf-8"))
TITLES = [f"{vector['name']}: {vector['about']}" for vector in VECTORS]


# ------------------------------------------------------------------------------------------------ right answers


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("vector", VECTORS, ids=TITLES)
def test_every_vector_is_recomputed(vector: dict[str, Any]) -> None:
    code, out, err = compute(vector["name"], json.dumps(vector["input"]))
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert json.loads(out) == vector["output"]


@pytest.mark.rule("CMP-001")
def test_the_vectors_are_what_a_naive_reading_gives() -> None:
    assert [naive.ANSWERS[vector["name"]](**vector["input"]) for vector in VECTORS] == [v["output"] for v in VECTORS]


@pytest.mark.rule("CMP-001")
def test_there_are_vectors_for_every_name() -> None:
    assert {vector["name"] for vector in VECTORS} == set(FORMULAS) == set(GOOD)


@pytest.mark.rule("CMP-001")
def test_text_written_raw_or_escaped_is_the_same_text() -> None:
    raw, escaped = '"𝄞ä"', '"\\ud834\\udd1e\\u00e4"'
    assert compute("task-id", spelt("task-id", "payload", raw)) == compute(
        "task-id", spelt("task-id", "payload", escaped)
    )


@pytest.mark.rule("CMP-001", "CAN-005")
def test_an_unknown_field_is_ignored() -> None:
    known = compute("seed", json.dumps(GOOD["seed"]))
    assert compute("seed", json.dumps(GOOD["seed"] | {"later": {"x": [10**400]}})) == known


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("name", ["task-id", "nullifier"])
def test_null_is_a_value_but_leaving_the_field_out_is_not(name: str) -> None:
    field = {"task-id": "payload", "nullifier": "body"}[name]
    assert compute(name, spelt(name, field, "null"))[0] == 0
    assert without_hint(faults(name, json.dumps(GOOD[name]).replace(f'"{field}"', '"x"'))) == [f"{field}: missing"]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("size", [1, 64])
def test_a_caller_has_one_to_sixty_four_bytes(size: int) -> None:
    assert compute("task-id", json.dumps(GOOD["task-id"] | {"caller": "ab" * size}))[0] == 0


# ------------------------------------------------------------------------------------------------ help


@pytest.mark.rule("CMP-001")
def test_the_help_says_what_each_name_reads_and_prints() -> None:
    page = CliRunner().invoke(app, ["compute", "--help"]).stdout
    for name, formula in FORMULAS.items():
        line = next(line for line in page.splitlines() if line.split()[:1] == [name])
        assert line.endswith(summary_of(formula))
        own = CliRunner().invoke(app, ["compute", name, "--help"]).stdout
        assert formula.rule in own
        assert all(field in own for field in (*formula.reads, *formula.prints))


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(("typo", "meant"), [("taskid", "task-id"), ("leaseid", "lease-id"), ("nulifier", "nullifier")])
def test_an_unknown_name_is_answered_with_the_nearest_known_one(typo: str, meant: str) -> None:
    code, out, err = compute(typo, "{}")
    assert (code, out) == (2, "")
    assert f"Did you mean '{meant}'?" in err


def test_the_command_line_knows_its_version_and_its_verbs() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"holdfast {__version__}\n"
    page = CliRunner().invoke(app, ["--help"]).stdout
    assert all(verb in page for verb in VERBS)
    assert "Did you mean 'compute'?" in CliRunner().invoke(app, ["compte"]).stderr


# ------------------------------------------------------------------------------------------------ the real command


def run(*words: str, text: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([HOLDFAST, *words], input=text, capture_output=True, timeout=60, check=False, **options)


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("name", GOOD)
def test_the_installed_command_gives_the_answer_in_one_line(name: str) -> None:
    done = run("compute", name, text=json.dumps(GOOD[name]).encode(), env={"LC_ALL": "C"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == naive.ANSWERS[name](**GOOD[name])


@pytest.mark.rule("CMP-001")
def test_the_installed_command_ends_with_two_and_says_nothing_on_standard_output() -> None:
    done = run("compute", "task-id", text=b"[" * 100_000, env={"LC_ALL": "C"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"holdfast compute task-id: CMP-001: standard input: nested deeper than 256\n"


@pytest.mark.rule("CMP-001")
def test_a_closed_standard_input_is_named() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{HOLDFAST}' compute seed <&-"], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, b"standard input: closed" in done.stderr) == (2, True)


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize("words", [("compute", "result-digest"), ("--help",)])
def test_a_reader_that_went_away_causes_no_traceback(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    text = json.dumps(GOOD["result-digest"]).encode()
    done = subprocess.run(
        [HOLDFAST, *words], input=text, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.rule("CMP-001")
def test_an_answer_that_cannot_be_written_is_not_a_success() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [HOLDFAST, "compute", "result-digest"],
            input=json.dumps(GOOD["result-digest"]).encode(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"holdfast: ")
    assert b"Traceback" not in done.stderr


@pytest.mark.rule("CMP-001")
def test_an_interrupt_ends_it_quietly() -> None:
    ours, its = os.openpty()
    with subprocess.Popen([HOLDFAST, "compute", "seed"], stdin=its, stderr=subprocess.PIPE) as running:
        assert running.stderr
        # On a terminal it says that it waits for input; that is the moment to interrupt it.
        assert b"reading one JSON object" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    os.close(ours)
    os.close(its)
    assert (running.returncode, err) == (130, b"")


@pytest.mark.rule("CMP-001")
def test_computing_loads_neither_rich_nor_pydantic_nor_a_database() -> None:
    program = (
        "import sys; sys.argv = ['holdfast', 'compute', 'seed']\n"
        "from holdfast.cli import main\n"
        "try: main()\n"
        "finally: print(sorted({'rich', 'pydantic', 'apsw', 'asyncio'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(GOOD["seed"]).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"[]\n")


@pytest.mark.rule("CMP-001", "RTY-002")
def test_backoff_takes_the_policy_and_refuses_a_factor_of_none() -> None:
    asked = {"kind": "AI", "job_id": "00" * 32, "failure": 1}
    delays = []
    for factor in (2, 20):
        code, said, _ = compute("backoff", json.dumps(asked | {"policy": {"backoff_factor": factor}}))
        assert code == 0
        delays.append(json.loads(said)["delay_ms"])
    assert delays[0] == json.loads(compute("backoff", json.dumps(asked))[1])["delay_ms"]
    assert 9 <= delays[1] // delays[0] <= 10
    assert compute("backoff", json.dumps(asked | {"policy": {"backoff_factor": 0}}))[0] == 2

"""Before a command goes to the owner: inputs of built-in work are checked as a whole, and so is what can be proved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.api.rpc.rpc_callers import ALICE, rpc_node
from tests.core.commands import DEVELOPMENT

from holdfast.api.rpc import admission
from holdfast.api.rpc.admission import CIRCUIT_BYTES_MAX, INLINE_BYTES_MAX, InputChecker
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Kind, Tier
from holdfast.core.job.spec import QuantumSpec
from holdfast.core.policy import ProofPolicy
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue
from holdfast.workloads.circuit import circuit_fault

BELL = "qubit[2] q;\nbit[2] c;\nh q[0];\ncx q[0], q[1];\nc = measure q;\n"


def circuit(text: str = BELL, **told: Any) -> dict[str, Any]:
    return {"circuit": text, "shots": 1, "width": 2, "depth": 3} | told


@pytest.fixture
async def checker() -> AsyncIterator[InputChecker]:
    made = InputChecker()
    yield made
    await made.close()


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(
    ("kind", "spec", "says"),
    [
        ("QUANTUM", circuit("OPENQASM 3;"), "payload.spec.circuit: it measures nothing"),
        ("QUANTUM", circuit(BELL[:-2]), "payload.spec.circuit: line 5: the last statement does not end with ';'"),
        ("QUANTUM", circuit(width=3), "payload.spec.circuit: width: 3, but the circuit has 2 bits"),
        ("QUANTUM", circuit(depth=2), "payload.spec.circuit: depth: 2, but the circuit has 3"),
        ("QUANTUM", circuit(gates=["h"]), "payload.spec.circuit: gates: the circuit also has cx"),
        ("QUANTUM", circuit(BELL + "//" * CIRCUIT_BYTES_MAX), "payload.spec.circuit: 524348 bytes, at most 262144"),
        ("AI", {"model": "digits", "prompt": "###"}, "payload.spec.prompt: a picture is 8 lines of 8 signs"),
        ("AI", {"model": "digits", "prompt": "." * 5_000}, "payload.spec.prompt: 5000 characters, at most 4096"),
    ],
)
async def test_an_input_that_can_never_be_computed_is_refused_with_its_path(
    kind: str, spec: dict[str, Any], says: str
) -> None:
    async with rpc_node() as node:
        await node.mint()
        asked = {"payload": {"kind": kind, "spec": spec}, "max_fee": 10}
        for method in ("cap.enqueue", "cap.getQuote"):
            name, rule, message = await node.refusal(ALICE, method, **asked)
            assert (name, rule) == ("InvalidParams", "JOB-003")
            assert says in message


@pytest.mark.rule("JOB-003")
@pytest.mark.parametrize(("size", "is_admitted"), [(-1, True), (0, True), (1, False)])
async def test_a_circuit_has_a_size_that_it_may_reach_and_no_more(
    checker: InputChecker, monkeypatch: pytest.MonkeyPatch, size: int, is_admitted: bool
) -> None:
    """In bytes, not in characters; what is too long reaches no parser."""
    parsed = list[int]()

    def note(spec: QuantumSpec, _: int) -> None:
        parsed.append(len(spec.circuit.encode()))

    monkeypatch.setattr(admission, "circuit_fault", note)
    monkeypatch.setattr(admission, "INLINE_BYTES_MAX", 2 * CIRCUIT_BYTES_MAX)
    wanted = CIRCUIT_BYTES_MAX + size
    text = BELL + "//"
    text += "ä" * ((wanted - len(text)) // 2) + "x" * ((wanted - len(text)) % 2)
    refusal = await checker.why_not(Kind.QUANTUM, circuit(text))
    assert (refusal is None, parsed) == (is_admitted, [wanted] if is_admitted else [])
    assert refusal is None or f"{wanted} bytes, at most {CIRCUIT_BYTES_MAX}" in refusal.message


@pytest.mark.rule("JOB-003")
async def test_what_only_other_hardware_runs_is_admitted(checker: InputChecker) -> None:
    text = BELL.replace("h q[0]", "ry(0.7853) q[0]")
    assert await checker.why_not(Kind.QUANTUM, circuit(text)) is None
    assert await checker.why_not(Kind.QUANTUM, circuit(text, gates=["cx", "ry"])) is None
    assert await checker.why_not(Kind.AI, {"model": "anything", "prompt": "###"}) is None


@pytest.mark.rule("JOB-003")
async def test_a_large_circuit_is_checked_by_another_process_and_a_hostile_one_does_not_hold_it(
    checker: InputChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = BELL.replace("h q", "x q[0];\nx q[0];\n" * 500 + "h q")
    assert len(large) > INLINE_BYTES_MAX
    assert await checker.why_not(Kind.QUANTUM, circuit(large, depth=1_003)) is None
    hostile = await checker.why_not(Kind.QUANTUM, circuit("/* " * 40_000))
    assert hostile is not None
    assert "a comment is not closed" in hostile.message
    monkeypatch.setattr(admission, "ANSWER_S_MAX", 0.0)
    late = await checker.why_not(Kind.QUANTUM, circuit(large, depth=1_003))
    assert late is not None
    assert "in time" in late.message
    monkeypatch.setattr(admission, "WAITING_MAX", 0)
    full = await checker.why_not(Kind.QUANTUM, circuit(large))
    assert full is not None
    assert full.name == "BackPressure"


@pytest.mark.rule("JOB-003")
def test_a_check_has_its_processor_time_and_no_more() -> None:
    spec = QuantumSpec(circuit=BELL, shots=1, width=2, depth=3)
    assert circuit_fault(spec, 50) is None
    assert circuit_fault(spec, -1) == "circuit, line 1: it takes too long to be checked"


# ------------------------------------------------------------------------------------------------ what can be proved


def asked(proof: str, model: str = "echo", **more: Any) -> dict[str, Any]:
    return {"kind": "AI", "spec": {"model": model, "prompt": "hi"}, "proof": proof, **more}


INPUT = {"digest": "ab" * 32, "size": 70_000, "media_type": "text/plain"}


@pytest.mark.rule("JOB-011")
@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (asked("zk-foo"), "payload.proof: no verifier 'zk-foo'"),
        (asked("zk-foo", quorum={"n": 2, "m": 3}), "payload.proof: no verifier 'zk-foo'"),
        (asked("recompute", "llama"), "payload.proof: AI:llama cannot be computed again here"),
        (asked("recompute", "llama", quorum={"n": 2, "m": 3}), "payload.proof: AI:llama cannot"),
        (asked("recompute", input=INPUT), "payload.proof: the node does not compute jobs with an input again"),
        (asked("traps"), "payload.proof: traps are runs of a circuit"),
    ],
)
async def test_what_no_verifier_can_accept_is_not_admitted(payload: dict[str, Any], says: str) -> None:
    async with rpc_node() as node:
        await node.mint()
        name, _, message = await node.refusal(ALICE, "cap.enqueue", payload=payload, max_fee=10)
        assert name == "InvalidParams"
        assert says in message


@pytest.mark.rule("JOB-011")
def test_the_names_of_verifiers_and_recomputers_are_policy() -> None:
    proof = ProofPolicy(methods=("zk-foo", "recompute"), recomputers=("AI:llama",))
    policy = msgspec.structs.replace(DEVELOPMENT, proof=proof)

    def command(payload: dict[str, Any]) -> Enqueue | Refused:
        return build_enqueue(policy, AccountId("alice"), Tier.FREE, payload, 10, 1)

    assert isinstance(command(asked("zk-foo")), Enqueue)
    assert isinstance(command(asked("recompute", "llama")), Enqueue)
    assert isinstance(command(asked("recompute")), Refused)
    assert isinstance(command(asked("attested")), Refused)

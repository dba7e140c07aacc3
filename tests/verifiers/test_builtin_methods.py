"""The methods that come with Holdfast: what each takes for a proof, and what not."""

from __future__ import annotations

import time

import msgspec
import pytest
from tests.verifiers.verification_inputs import ai, circuit, verification_input, verify

from holdfast.adapters.keys.signing import SigningKey
from holdfast.adapters.keys.signing import verify as verify_ed25519
from holdfast.core.base.canonical import H, canonical
from holdfast.core.proof.envelope import signed_bytes
from holdfast.ports.verifier import Isolation, VerificationInput
from holdfast.verifiers import registry
from holdfast.verifiers.attested import attested_method
from holdfast.verifiers.recompute import recompute_method
from holdfast.verifiers.settings import VerifierSettings
from holdfast.verifiers.traps import traps_method
from holdfast.workloads.echo import echo
from holdfast.workloads.traps import plan_traps
from holdfast.workloads.traps import trap_circuit as trap_circuit  # noqa: PLC0414

pytestmark = pytest.mark.rule("PRF-002")
ECHOED = b"hi"

# ------------------------------------------------------------------------------------------------ attested, recompute


def test_attested_is_the_signature_of_the_leased_provider_over_this_very_body() -> None:
    case = verification_input(ai(), ECHOED)
    method = attested_method(verify)
    assert method.isolation is Isolation.THREAD
    assert method.verify(case).is_good
    assert not method.verify(msgspec.structs.replace(case, public_key=b"x" * 32)).is_good


def test_a_real_signature_of_another_body_is_refused() -> None:
    key = SigningKey.generate()
    case = verification_input(ai(), ECHOED)
    proof = case.envelope
    signature = key.sign(signed_bytes(proof.type, proof.method, proof.body))
    good = msgspec.structs.replace(
        case, envelope=msgspec.structs.replace(proof, signature=signature), public_key=key.public
    )
    method = attested_method(verify_ed25519)
    assert method.verify(good).is_good
    other = msgspec.structs.replace(good.envelope, body=proof.body[:-1] + b"\x01")
    assert not method.verify(msgspec.structs.replace(good, envelope=other)).is_good


@pytest.mark.parametrize("model", ["echo", "sleep"])
def test_work_that_is_done_again_must_give_the_same_bytes(model: str) -> None:
    method = recompute_method(verify)
    assert method.verify(verification_input(ai(model=model), ECHOED)).is_good
    found = method.verify(verification_input(ai(model=model), b"something else"))
    assert (found.is_good, found.reasons) == (False, "computed again it gives other bytes")
    assert not method.verify(verification_input(ai(), ECHOED, signature=b"forged")).is_good


def test_work_that_the_node_cannot_compute_again_is_not_the_providers_fault() -> None:
    with pytest.raises(LookupError, match="this node cannot compute AI:gpt again"):
        recompute_method(verify).verify(verification_input(ai(model="gpt"), ECHOED))
    plugged = recompute_method(verify, {"AI:gpt": echo})
    assert plugged.verify(verification_input(ai(model="gpt"), ECHOED)).is_good


def test_a_sample_is_drawn_by_chance_that_comes_after_the_work() -> None:
    """About a quarter of wrong results is found out, and which ones depends on chance."""
    method = recompute_method(verify, sample_ppm=250_000)
    wrong = verification_input(ai(), b"something else")
    drawn = [
        not method.verify(msgspec.structs.replace(wrong, sampling_seed=bytes([n]) * 32)).is_good for n in range(200)
    ]
    assert 30 < sum(drawn) < 70
    none = recompute_method(verify, sample_ppm=0)
    assert none.verify(wrong).is_good
    assert "not in the sample" in none.verify(wrong).reasons


# ------------------------------------------------------------------------------------------------ traps


def runs(payload: dict[str, object], wrong: int = 0) -> bytes:
    """What an honest provider submits, with this many wrong answers to traps."""
    spec = payload["spec"]
    assert isinstance(spec, dict)
    planned = plan_traps(canonical(payload), spec["shots"], spec["width"], spec["trap_ppm"])
    found = ["0" * planned.width] * planned.shots
    for number, (at, answer) in enumerate(planned.answers.items()):
        flipped = ("1" if answer[0] == "0" else "0") + answer[1:]
        found[at] = flipped if number < wrong else answer
    return canonical({"shots": found})


def trapped(payload: dict[str, object], output: bytes, signature: bytes = b"good") -> VerificationInput:
    return verification_input(payload, output, signature, kind=2, method="traps")


@pytest.mark.parametrize(("wrong", "is_good"), [(0, True), (2, True), (3, False), (20, False)])
def test_nine_of_ten_traps_must_have_the_right_answer(wrong: int, is_good: bool) -> None:
    payload = circuit(shots=200, trap_ppm=100_000)  # 20 traps
    found = traps_method(verify).verify(trapped(payload, runs(payload, wrong)))
    assert found.is_good == is_good
    assert found.reasons.startswith(f"{20 - wrong} of 20 traps have the right answer")


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (b"\xff", "not a list of runs"),
        (canonical({"shots": ["00000"] * 199}), "199 runs were submitted"),
        (canonical({"shots": ["0000"] * 200}), "5 bits"),
        (canonical({"shots": ["0000x"] * 200}), "5 bits"),
        (canonical({"shots": ["00000"] * 200}), "traps have the right answer"),
    ],
)
def test_what_is_no_run_or_too_few_of_them_is_no_proof(output: bytes, says: str) -> None:
    found = traps_method(verify).verify(trapped(circuit(), output))
    assert not found.is_good
    assert says in found.reasons


def test_a_job_that_asks_for_no_traps_proves_nothing_by_them() -> None:
    """The requester asked for it: whoever did the work is not to blame."""
    for payload in (circuit(trap_ppm=0), ai()):
        with pytest.raises(LookupError, match="the job has no traps"):
            traps_method(verify).verify(trapped(payload, canonical({"shots": ["00000"] * 200})))
    with pytest.raises(LookupError, match="1000001 runs"):
        traps_method(verify).verify(trapped(circuit(shots=1_000_001), canonical({"shots": []})))
    assert not traps_method(verify).verify(trapped(circuit(), runs(circuit()), b"forged")).is_good


@pytest.mark.parametrize(("shots", "ppm", "count"), [(1, 1, 1), (10, 100_000, 1), (11, 100_000, 2), (7, 1_000_000, 7)])
def test_the_share_of_traps_is_rounded_up_and_drawn_without_repetition(shots: int, ppm: int, count: int) -> None:
    planned = plan_traps(b"payload", shots, 40, ppm)
    assert len(planned.answers) == count
    assert all(0 <= at < shots and len(answer) == 40 for at, answer in planned.answers.items())
    assert planned == plan_traps(b"payload", shots, 40, ppm)
    assert planned != plan_traps(b"another", shots, 40, ppm)


@pytest.mark.parametrize("width", [1, 8, 256, 257])
def test_traps_are_drawn_by_the_hash_that_is_written_down(width: int) -> None:
    payload = b"what the job asks for"
    at = int.from_bytes(H("holdfast.trap.v1", payload, 0)[:8], "big") % 10
    words = H("holdfast.trap.v1", payload, 0, 0) + H("holdfast.trap.v1", payload, 0, 1)
    bits = "".join(f"{byte:08b}" for byte in words)
    assert plan_traps(payload, 10, width, 1).answers == {at: bits[:width]}


def test_a_large_circuit_is_hashed_once_and_not_for_every_trap() -> None:
    """A mebibyte and two thousand traps: hashing it for each of them would take longer than a verifier may."""
    begun = time.process_time()
    assert len(plan_traps(bytes(1 << 20), 2_000, 5, 1_000_000).answers) == 2_000
    assert time.process_time() - begun < 5


def test_a_trap_is_a_circuit_that_flips_exactly_the_qubits_of_its_answer() -> None:
    text = trap_circuit("0110")
    assert [line for line in text.splitlines() if line.startswith("x")] == ["x q[1];", "x q[2];"]


# ------------------------------------------------------------------------------------------------ the registry


class Entry:
    """What an installed package says about a plug-in."""

    def __init__(self, name: str, found: object) -> None:
        self.name, self._found = name, found

    def load(self) -> object:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def test_methods_plug_in_by_name_and_a_broken_one_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    plugged = {
        registry.METHODS_GROUP: [
            Entry("mine", attested_method),
            Entry("attested", recompute_method),
            Entry("broken", ImportError("no such module")),
        ],
        registry.RECOMPUTERS_GROUP: [Entry("AI:mine", echo)],
    }
    monkeypatch.setattr(registry, "entry_points", lambda group: plugged[group])
    found = registry.load_methods(verify, VerifierSettings())
    assert sorted(found) == ["attested", "mine", "recompute", "traps"]
    assert found["attested"].verify(verification_input(ai(), ECHOED)).is_good
    assert found["recompute"].verify(verification_input(ai(model="mine"), ECHOED)).is_good

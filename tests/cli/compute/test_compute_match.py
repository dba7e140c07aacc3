"""`holdfast compute match`: a described world is matched as a node would; each fault in it is named with its path."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from tests.cli.compute.compute_inputs import GOOD, JOB, PROVIDER, compute, faults, without_hint

Path = tuple[str | int, ...]
QUANTUM: dict[str, Any] = {"gates": ["h"], "depth": 2, "width": 3}
U64 = 2**64 - 1


def world(**changes: Any) -> dict[str, Any]:
    return deepcopy(GOOD["match"]) | changes


def changed(where: Path, value: object) -> dict[str, Any]:
    """A good world in which one thing is another; `...` takes it away."""
    asked = world()
    inner: Any = asked
    for step in where[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return asked


def assignments(asked: dict[str, Any]) -> list[list[str]]:
    code, out, err = compute("match", json.dumps(asked))
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == ["assignments"]
    return found["assignments"]  # type: ignore[no-any-return]


@pytest.mark.rule("CMP-001", "MAT-002", "QUO-001")
@pytest.mark.parametrize(
    ("where", "just", "too_much"),
    [
        (("providers", 0, "status"), "ACTIVE", "REGISTERED"),
        (("providers", 0, "stake"), 10_000, 9_999),
        (("providers", 0, "health_ppm"), 600_000, 599_999),
        (("providers", 0, "leases_active"), 0, 1),
        (("providers", 0, "leases_max"), 1, 0),
        (("providers", 0, "units_max"), {"AI": 1}, {"QUANTUM": 1}),
        (("providers", 0, "units_used"), {"QUANTUM": 1}, {"AI": 1}),
        (("providers", 0, "capabilities"), {"AI": {"models": ["elm", "oak"]}}, {"AI": {"models": ["elm"]}}),
        (("providers", 0, "capabilities"), {"AI": {"models": ["oak"]}}, {}),
        (("jobs", 0, "units"), 1, 2),
        (("jobs", 0, "requirements"), {"model": "oak", "region": "eu"}, {"model": "oak", "region": "us"}),
    ],
)
def test_each_filter_lets_through_what_is_just_enough_and_nothing_less(where: Path, just: Any, too_much: Any) -> None:
    assert assignments(changed(where, just)) == [["01", "02"]]
    assert assignments(changed(where, too_much)) == []


@pytest.mark.rule("CMP-001", "MAT-002")
@pytest.mark.parametrize(
    ("needs", "is_fit"),
    [
        *[({}, True), ({"depth": 5}, True), ({"depth": 6}, False), ({"width": 5}, True), ({"width": 6}, False)],
        *[({"gates": []}, True), ({"gates": ["h", "t"]}, True), ({"gates": ["h", "cx"]}, False)],
    ],
)
def test_a_quantum_job_asks_for_gates_depth_and_width(needs: dict[str, Any], is_fit: bool) -> None:
    job = JOB | {"kind": "QUANTUM", "requirements": QUANTUM | needs}
    can = {"QUANTUM": {"gates": ["h", "t"], "depth_max": 5, "width_max": 5}}
    provider = PROVIDER | {"capabilities": can, "stake": 50_000, "units_max": {"QUANTUM": 1}}
    assert assignments(world(jobs=[job], providers=[provider])) == ([["01", "02"]] if is_fit else [])


@pytest.mark.rule("CMP-001")
def test_there_is_no_limit_of_a_batch() -> None:
    jobs = [JOB | {"job_id": f"{n:04x}"} for n in range(600)]
    provider = PROVIDER | {"leases_max": 1_000, "units_max": {"AI": 1_000}}
    assert len(assignments(world(jobs=jobs, providers=[provider]))) == 600


@pytest.mark.rule("CMP-001", "PRI-002")
def test_numbers_are_as_large_as_they_may_be_and_still_in_order() -> None:
    late = [JOB | {"job_id": f"0{n}", "enqueue_ts_ms": U64 - n, "size_bytes": U64, "max_fee": U64} for n in range(3)]
    many = PROVIDER | {"leases_max": U64, "units_max": {"AI": U64}, "stake": U64, "health_ppm": U64}
    found = assignments(world(jobs=late, providers=[many], counter=U64))
    assert [job for job, _ in found] == ["02", "01", "00"]


@pytest.mark.rule("CMP-001", "CAN-005")
def test_unknown_fields_are_ignored_except_in_the_policy() -> None:
    asked = changed(("jobs", 0, "later"), 1)
    asked["providers"][0]["capabilities"]["STORAGE"] = {"bytes": 1}
    assert assignments(asked) == [["01", "02"]]
    assert without_hint(faults("match", json.dumps(changed(("policy", "k"), 1)))) == ["policy.k: unknown field"]


WRONG: list[tuple[Path, object, list[str]]] = [
    *[(("jobs", 0, name), ..., [f"jobs[0].{name}: missing"]) for name in JOB],
    *[(("providers", 0, name), ..., [f"providers[0].{name}: missing"]) for name in PROVIDER],
    *[(("policy", name), ..., [f"policy.{name}: missing"]) for name in ("order", "interleave_every")],
    (("policy", "order"), "random", ['policy.order: unknown name "random"']),
    (("policy", "interleave_every"), -1, [f"policy.interleave_every: outside 0 to {U64}"]),
    (("policy",), None, ["policy: null, expected an object"]),
    (("jobs",), {}, ["jobs: an object, expected an array"]),
    (("jobs", 0), [], ["jobs[0]: an array, expected an object"]),
    (("jobs", 0, "job_id"), "0X", ["jobs[0].job_id: begins with 0x"]),
    (("jobs", 0, "kind"), "ai", ['jobs[0].kind: unknown name "ai"']),
    (("jobs", 0, "kind"), 3, ["jobs[0].kind: an integer, expected a name"]),
    (("jobs", 0, "tier"), "GOLD", ['jobs[0].tier: unknown name "GOLD"']),
    (("jobs", 0, "units"), True, ["jobs[0].units: a boolean, expected an integer"]),
    (("jobs", 0, "requirements"), {}, ["jobs[0].requirements.model: missing"]),
    (("jobs", 0, "requirements"), "oak", ["jobs[0].requirements: text, expected an object"]),
    (("jobs", 0, "requirements", "region"), None, ["jobs[0].requirements.region: null, expected text"]),
    (("jobs", 0, "kind"), "QUANTUM", [f"jobs[0].requirements.{name}: missing" for name in QUANTUM]),
    (("jobs",), [JOB, JOB], ["jobs[1].job_id: the same as jobs[0].job_id"]),
    (("providers",), [PROVIDER] * 2, ["providers[1].provider_id: the same as providers[0].provider_id"]),
    (("providers", 0, "status"), "active", ['providers[0].status: unknown name "active"']),
    (("providers", 0, "stake"), 2**64, [f"providers[0].stake: outside 0 to {U64}"]),
    (("providers", 0, "region"), 1, ["providers[0].region: an integer, expected text"]),
    (("providers", 0, "capabilities"), [], ["providers[0].capabilities: an array, expected an object"]),
    (("providers", 0, "capabilities", "AI"), {}, ["providers[0].capabilities.AI.models: missing"]),
    (
        ("providers", 0, "capabilities", "AI", "models"),
        ["oak", 1],
        ["providers[0].capabilities.AI.models[1]: an integer, expected text"],
    ),
    (("providers", 0, "units_max"), 5, ["providers[0].units_max: an integer, expected an object"]),
    (("providers", 0, "units_used", "AI"), "1", ["providers[0].units_used.AI: text, expected an integer"]),
]


@pytest.mark.rule("CMP-001")
@pytest.mark.parametrize(("where", "value", "says"), WRONG)
def test_a_fault_anywhere_in_a_world_is_named_with_its_path(where: Path, value: object, says: list[str]) -> None:
    assert without_hint(faults("match", json.dumps(changed(where, value)))) == says


@pytest.mark.rule("CMP-001")
def test_all_faults_of_a_world_are_reported_at_once() -> None:
    asked = changed(("jobs", 0, "units"), "1")
    asked["providers"][0]["region"] = None
    asked["policy"]["order"] = 1
    assert {fault.partition(":")[0] for fault in faults("match", json.dumps(asked))} == {
        *("jobs[0].units", "providers[0].region", "policy.order")
    }


@pytest.mark.rule("CMP-001", "MAT-002")
@pytest.mark.parametrize("name", ["cpu_milli", "memory_mb", "gpus"])
def test_a_compute_job_needs_its_runtime_and_at_most_the_resources_of_a_slot(name: str) -> None:
    job = {**JOB, "kind": "COMPUTE", "requirements": {"runtime": "wc", name: 4}}
    can = {"runtimes": ["wc"], name: 4}
    provider = {**PROVIDER, "capabilities": {"COMPUTE": can}, "units_used": {}, "units_max": {"COMPUTE": 1}}
    assert assignments(world(jobs=[job], providers=[provider])) == [["01", "02"]]
    for change in ({"runtimes": ["sort"]}, {name: 3}):
        less = {**provider, "capabilities": {"COMPUTE": can | change}}
        assert assignments(world(jobs=[job], providers=[less])) == []
    assert assignments(world(jobs=[job], providers=[provider | {"units_max": {"AI": 1}}])) == []
    priced = {**provider, "price": {"wc": JOB["max_fee"] + 1, "*": 0}}
    assert assignments(world(jobs=[job], providers=[priced])) == []
    assert assignments(world(jobs=[job], providers=[priced | {"price": {"wc": JOB["max_fee"], "*": 10**9}}])) != []

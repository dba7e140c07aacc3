"""Matching read a second time, naively (MAT-002 … MAT-005): every job against every provider, nothing kept between.

Written from the specification over plain values, as `holdfast compute match` reads them, and what a node knows besides:
it imports nothing of Holdfast. `python -m tests.core.match.naive_match` makes tests/vectors/assignments.json.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.core import naive

World = dict[str, Any]
STAKE = {"AI": 10_000, "QUANTUM": 50_000, "COMPUTE": 10_000}
VECTORS = Path(__file__).parent.parent.parent / "vectors" / "assignments.json"


def match(world: World) -> list[tuple[bytes, bytes]]:
    """What is given to whom, in the order in which it is given; ids are bytes."""
    world = dict(world, by_id={job["job_id"]: job for job in world["jobs"]})
    policy, given = world["policy"], list[tuple[bytes, bytes]]()
    listed = {p["provider_id"]: p for p in world["providers"] if is_listed(p, world)}
    order = naive.shuffle(list(listed), naive.words(world["seed"]))
    waiting = [job for job in world["jobs"] if job.get("not_before_ms", 0) <= world.get("now_ms", 0)]
    while len(given) < policy.get("batch", len(world["jobs"])):
        number, k = world["counter"] + len(given) + 1, policy["interleave_every"]
        is_guarded = k > 0 and number % k == 0
        pair = first(sorted(waiting, key=age if is_guarded else rank), order, listed, world, given)
        if pair is None:
            break
        given.append(pair)
        waiting = [job for job in waiting if job["job_id"] != pair[0]]
    return given


def first(
    waiting: list[World], order: list[bytes], listed: dict[bytes, World], world: World, given: list[tuple[bytes, bytes]]
) -> tuple[bytes, bytes] | None:
    for job in waiting:
        fit = [id_ for id_ in order if fits(listed[id_], job, world, given)]
        if fit:
            return job["job_id"], chosen(fit, job, listed, world, given)
    return None


def chosen(
    fit: list[bytes], job: World, listed: dict[bytes, World], world: World, given: list[tuple[bytes, bytes]]
) -> bytes:
    if world["policy"]["order"] == "shuffle":
        return fit[0]
    if world["policy"]["order"] == "spread":
        return min(fit, key=lambda id_: listed[id_]["leases_active"] + received(id_, given))  # of equals the first
    score = {id_: listed[id_]["stake"] * listed[id_]["health_ppm"] for id_ in fit}
    best = [id_ for id_ in fit if score[id_] == max(score.values())]
    return min(best, key=lambda id_: naive.h("AICF|match", job["job_id"], id_, world["seed"]))


def rank(job: World) -> tuple[int, int, bytes]:
    key = naive.priority(job["max_fee"], job["size_bytes"], job["tier"], job["enqueue_ts_ms"], {})
    return -key, job["enqueue_ts_ms"], job["job_id"]


def age(job: World) -> tuple[int, bytes]:
    return job["enqueue_ts_ms"], job["job_id"]


def received(id_: bytes, given: list[tuple[bytes, bytes]]) -> int:
    return sum(taker == id_ for _, taker in given)


def is_listed(provider: World, world: World) -> bool:
    now_ms: int = world.get("now_ms", 0)
    return (
        provider["status"] == "ACTIVE"
        and provider["stake"] >= sum(STAKE[kind] for kind in provider["capabilities"])
        and provider["health_ppm"] >= 600_000
        and now_ms < int(provider.get("attested_until_ms", now_ms)) + 180_000
        and now_ms < int(provider.get("heartbeat_ms", now_ms)) + 180_000
        and not provider.get("is_draining", False)
        and provider.get("cooling_until_ms", 0) <= now_ms
    )


def fits(provider: World, job: World, world: World, given: list[tuple[bytes, bytes]]) -> bool:
    id_, kind, needs, now_ms = provider["provider_id"], job["kind"], job["requirements"], world.get("now_ms", 0)
    if provider["leases_active"] + received(id_, given) >= provider["leases_max"]:
        return False
    jobs = world.get("by_id") or {each["job_id"]: each for each in world["jobs"]}
    mine = [jobs[job_id] for job_id, taker in given if taker == id_]
    units = provider["units_used"].get(kind, 0) + sum(each["units"] for each in mine if each["kind"] == kind)
    if units + job["units"] > provider["units_max"].get(kind, 0):
        return False
    if price_of(provider, job) * job["units"] > job["max_fee"] // job.get("shares", 1):
        return False
    attestors = world["policy"].get("attestors", {}).get(kind)
    if attestors and provider["attestor"] not in attestors:
        return False
    if provider.get("denied_by_list") or kind in world.get("paused", ()):
        return False
    if "region" in needs and needs["region"] != provider["region"]:
        return False
    named = {id_, id_.hex()}  # a payload names providers in hex
    if named & set(needs.get("deny", ())) or not named & set(needs.get("allow", [id_])):
        return False
    if world.get("denials", {}).get((id_, kind, naive.cbor(needs)), 0) > now_ms:
        return False
    if job.get("parent"):
        taken = {taker for job_id, taker in given if jobs[job_id]["parent"] == job["parent"]}
        if id_ in taken or id_ in world["holders"].get(job["parent"], ()):
            return False
    if kind not in provider["capabilities"] or not is_able(provider["capabilities"][kind], needs):
        return False
    return is_allowed(job, jobs, world, given)


def price_of(provider: World, job: World) -> int:
    """MAT-002: an integer, or by model with the others under `*`; QUANTUM uses `*`."""
    price: Any = provider.get("price", 0)
    prices: World = price if isinstance(price, dict) else {"*": price}
    model = job["requirements"]["model"] if job["kind"] == "AI" else "*"
    named: int = prices[model] if model in prices else prices.get("*", 0)
    return named


def is_able(can: World, needs: World) -> bool:
    if "model" in needs and needs["model"] not in can["models"]:
        return False
    if "precision" in needs and needs["precision"] not in can.get("precisions", []):
        return False
    if any(gate not in can["gates"] for gate in needs.get("gates", [])):
        return False
    return all(needs[what] <= can[f"{what}_max"] for what in ("depth", "width") if what in needs)


def is_allowed(job: World, jobs: dict[bytes, World], world: World, given: list[tuple[bytes, bytes]]) -> bool:
    """The window of its requester, where there is one."""
    policy = world["policy"]
    weight = policy.get("weights", {}).get(job["tier"], 1)
    if not policy.get("window_jobs") or not weight:
        return True
    lately = sum(count for until_ms, count in world["windows"].get(job["caller"], []) if until_ms > world["now_ms"])
    now = sum(jobs[job_id]["caller"] == job["caller"] for job_id, _ in given)
    return bool(lately + now < policy["window_jobs"] * weight)


# ------------------------------------------------------------------------------------------------ as text


def answer(**asked: Any) -> dict[str, Any]:
    """What `holdfast compute match` must print."""
    world = dict(asked, seed=bytes.fromhex(asked["seed"]))
    world["jobs"] = [dict(job, job_id=bytes.fromhex(job["job_id"])) for job in asked["jobs"]]
    world["providers"] = [dict(each, provider_id=bytes.fromhex(each["provider_id"])) for each in asked["providers"]]
    return {"assignments": [[job_id.hex(), provider_id.hex()] for job_id, provider_id in match(world)]}


MODELS, GATES, REGIONS, TIERS = ("ash", "oak", "elm"), ("cx", "h", "t"), ("eu", "us"), ("FREE", "PRO", "PREMIUM")


def some_requirements(chance: random.Random, kind: str) -> World:
    if kind == "AI":
        needs: World = {"model": chance.choice((*MODELS, *MODELS, "nobody's"))}
    else:
        gates = sorted(chance.sample(GATES, chance.randrange(3)))
        needs = {"gates": gates, "depth": chance.choice((1, 5, 10, 11)), "width": chance.choice((1, 5, 5, 6))}
    return needs | ({"region": chance.choice(REGIONS)} if chance.random() < 0.2 else {})


def some_job(chance: random.Random) -> World:
    kind = chance.choice(("AI", "AI", "QUANTUM"))
    return {
        "job_id": chance.randbytes(32).hex(),
        "kind": kind,
        "max_fee": chance.choice((1, 1_000, 999_999, 1_000_000, 5_000_000)),
        "size_bytes": chance.choice((0, 100, 65_536)),
        "tier": chance.choice(TIERS),
        "enqueue_ts_ms": 1_700_000_000_000 + chance.randrange(5) * 1_000,
        "units": chance.choice((1, 1, 2, 5)),
        "requirements": some_requirements(chance, kind),
    }


def some_provider(chance: random.Random) -> World:
    can: World = {}
    if chance.random() < 0.9:
        can["AI"] = {"models": sorted(chance.sample(MODELS, chance.randrange(1, 4)))}
    if chance.random() < 0.5:
        gates = sorted(chance.sample(GATES, chance.randrange(1, 4)))
        can["QUANTUM"] = {"gates": gates, "depth_max": chance.choice((5, 10)), "width_max": 5}
    used = chance.randrange(4)
    return {
        "provider_id": chance.randbytes(32).hex(),
        "status": chance.choice(("ACTIVE",) * 14 + ("SUSPENDED", "JAILED")),
        "health_ppm": chance.choice((1_000_000,) * 4 + (800_000, 800_000, 600_000, 599_999)),
        "stake": chance.choice((60_000,) * 5 + (120_000, 120_000, 75_000, 59_999, 10_000)),
        "region": chance.choice(REGIONS),
        "capabilities": can,
        "leases_active": chance.randrange(3),
        "leases_max": chance.choice((1, 2, 4, 16)),
        "units_used": {"AI": used} if chance.random() < 0.7 else {},
        "units_max": {"AI": used + chance.choice((0, 4, 1_000, 1_000)), "QUANTUM": chance.choice((3, 1_000))},
    }


def priced(chance: random.Random, provider: World) -> World:
    """With a price: a number, or one for some models. The fees of `some_job` pay some of them."""
    one, other = (chance.choice((0, 1, 2, 999, 200_000, 1_000_001)) for _ in range(2))
    return provider | {"price": chance.choice((one, one, {"*": one, "oak": other}, {"ash": other}))}


def some_world(chance: random.Random, order: str, jobs: int, providers: int) -> World:
    return {
        "seed": chance.randbytes(32).hex(),
        "counter": chance.randrange(50),
        "policy": {"order": order, "interleave_every": chance.choice((0, 1, 2, 3, 20))},
        "jobs": [some_job(chance) for _ in range(jobs)],
        "providers": [some_provider(chance) for _ in range(providers)],
    }


def by_hand() -> list[tuple[str, World]]:
    """Small enough to be followed with a pencil."""
    ids = [bytes([n]) * 32 for n in range(1, 5)]

    def job(at: int, fee: int, **more: Any) -> World:
        told = {"kind": "AI", "max_fee": fee, "size_bytes": 0, "tier": "FREE", "enqueue_ts_ms": 1_000 + at, "units": 1}
        return told | {"job_id": ids[at].hex(), "requirements": {"model": "oak"}} | more

    def provider(at: int, **more: Any) -> World:
        told = {"status": "ACTIVE", "health_ppm": 1_000_000, "stake": 60_000, "region": "eu", "leases_active": 0}
        told |= {"provider_id": ids[at].hex(), "capabilities": {"AI": {"models": ["oak"]}}, "leases_max": 16}
        return told | {"units_used": {}, "units_max": {"AI": 100}} | more

    def world(jobs: list[World], providers: list[World], order: str = "shuffle", k: int = 0, counter: int = 0) -> World:
        policy = {"order": order, "interleave_every": k}
        return {"seed": "00" * 32, "counter": counter, "policy": policy, "jobs": jobs, "providers": providers}

    rising = [job(n, 10 * (n + 1)) for n in range(4)]
    return [
        ("the highest fee goes first: jobs 4, 3, 2, 1", world(rising, [provider(0)])),
        ("every second is the oldest: jobs 4, 1, 3, 2", world(rising, [provider(0)], k=2)),
        ("the counter goes on from before: jobs 1, 4, 2, 3", world(rising, [provider(0)], k=2, counter=1)),
        ("two slots are two jobs: 4, 3", world(rising, [provider(0, leases_max=2)])),
        (
            "quota for three units: job 4 takes two of them, job 3 one",
            world([*rising[:3], job(3, 40, units=2)], [provider(0, units_max={"AI": 3})]),
        ),
        (
            "a job too large for the quota lets the smaller pass: 3, 2, 1",
            world([*rising[:3], job(3, 40, units=4)], [provider(0, units_max={"AI": 3})]),
        ),
        (
            "nobody in that region: 4, 2, 1",
            world([*rising[:2], job(2, 30, requirements={"model": "oak", "region": "us"}), rising[3]], [provider(0)]),
        ),
        (
            "the emptier provider first, then in turn",
            world(rising, [provider(0, leases_active=2), provider(1)], "spread"),
        ),
        (
            "the higher stake takes all it can, then the other",
            world(rising, [provider(0), provider(1, stake=70_000, leases_max=3)], "scored"),
        ),
        (
            "health weighs as much as stake: 70 000 · 0.8 is below 60 000",
            world(rising[:1], [provider(0), provider(1, stake=70_000, health_ppm=800_000)], "scored"),
        ),
        (
            "a stake just too low, a health just too low, just enough of both",
            world(
                rising[:1],
                [
                    provider(0, stake=9_999),
                    provider(1, health_ppm=599_999),
                    provider(2, stake=10_000, health_ppm=600_000),
                ],
            ),
        ),
        (
            "a price of 21 a unit is too much for jobs 1 and 2: 4, 3",
            world(rising, [provider(0, price=21)]),
        ),
        (
            "the price counts by units: job 4 pays 20 for each of its two",
            world([*rising[:3], job(3, 40, units=2)], [provider(0, price=21), provider(1, price=20, leases_max=1)]),
        ),
        (
            "oak is cheaper than what is not named",
            world(rising, [provider(0, price={"*": 1_000, "oak": 30}), provider(1, price={"ash": 1, "*": 41})]),
        ),
    ]


def make_vectors() -> str:
    chance, worlds = random.Random(2024), by_hand()
    for jobs, providers in [(0, 2), (2, 0), (1, 1), (3, 2), (6, 4), (10, 5), (24, 8), (24, 3)] * 2:
        for order in ("shuffle", "spread", "scored"):
            worlds.append((f"{order}, {jobs} jobs, {providers} providers", some_world(chance, order, jobs, providers)))
    for order in ("shuffle", "spread", "scored"):
        world = some_world(chance, order, 24, 8)
        world["providers"] = [priced(chance, each) for each in world["providers"]]
        worlds.append((f"{order}, with prices", world))
    vectors = [{"about": about, "input": world, "output": answer(**world)} for about, world in worlds]
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    VECTORS.write_text(make_vectors(), "utf-8")

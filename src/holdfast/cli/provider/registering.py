"""The work behind `holdfast provider register`: a key file, a challenge answered, and how the provider stands then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.agent.client import NodeClient, Standing
from holdfast.agent.dial import Dial, Fault, refusal_of, said
from holdfast.agent.executors import Registry, built_in
from holdfast.agent.settings import AgentSettings, Tls, faults, host_of
from holdfast.cli.agent import tls_of
from holdfast.cli.speak import given, refuse, told
from holdfast.core.policy.knobs import DAY_MS
from holdfast.core.refusal import Refused, Unavailable
from holdfast.doors.loopback import is_loopback


class Wanted(msgspec.Struct, frozen=True):
    """What the flags say."""

    node: str
    name: str
    account: str
    models: tuple[str, ...]
    circuits: bool
    slots: int
    price: int
    region: str
    attest_days: int


def registered(
    key: Path, wanted: Wanted, files: tuple[Path | None, Path | None, Path | None], *, allow_plain: bool
) -> dict[str, object]:
    """Register, or say in one sentence why not; `files` are the authority, a certificate and its key."""
    fields = msgspec.structs.asdict(wanted)
    settings = AgentSettings(data=key.parent, attested_ms=fields.pop("attest_days") * DAY_MS, **fields)
    for fault in faults(settings):
        refuse(fault)
    executors = given(built_in(settings.models, circuits=settings.circuits))
    with told():
        tls = tls_of(*files)
        if tls is None and not allow_plain and not is_loopback(host_of(settings.node)):
            says = f"node: {settings.node} is another machine and there is no TLS"
            refuse(Refused("SEC-001", says, "name --ca, or say --allow-plain", "BadConfig"))
        signer = SigningKey.load_or_create(key)
        standing = given(asyncio.run(_asked(settings, executors, signer, tls)))
    return {
        "provider": standing.provider_id.hex(),
        "public": signer.public.hex(),
        "status": standing.status,
        "stake": f"{standing.stake} of {standing.stake_min}",
    }


async def _asked(
    settings: AgentSettings, executors: Registry, signer: SigningKey, tls: Tls | None
) -> Standing | Refused:
    dial = Dial(settings.node, tls)
    try:
        return await NodeClient(dial, settings, executors.capabilities(), signer, MachineClock()).register()
    except Fault as fault:
        no = refusal_of(fault)
        if no is None:
            raise Unavailable("PRV-001", f"{settings.node}: {said(fault)}", "is a node up there?") from fault
        return no
    finally:
        await dial.close()

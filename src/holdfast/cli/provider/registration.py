"""The work of `holdfast provider register`: load the key, answer the challenge, show the provider's status."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.signing import SigningKey
from holdfast.agent.executors.built_in import built_in_executors
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.settings import AgentSettings, check_settings
from holdfast.agent.transport.node_client import NodeClient, RegistrationStatus
from holdfast.cli.agent import load_tls, why_not_plain
from holdfast.cli.terminal.reporting import refuse, report_errors, value_or_exit
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.policy import DAY_MS
from holdfast.shipping.node_connection import NodeConnection, RpcFault, Tls, describe_fault, refusal_of


class RegistrationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say; the fields are named as in `AgentSettings`, except `attest_days`."""

    node: str
    name: str
    account: str
    models: tuple[str, ...]
    circuits: bool
    slots: int
    price: int
    prices: dict[str, int]
    region: str
    attest_days: int
    invitation: str = ""


def register_provider(
    key: Path,
    options: RegistrationOptions,
    tls_files: tuple[Path | None, Path | None, Path | None],
    *,
    allow_plain: bool,
) -> dict[str, object]:
    """Register, or exit with one sentence that says why not; `tls_files` are CA, client certificate and its key."""
    fields = msgspec.structs.asdict(options)
    settings = AgentSettings(data=key.parent, attested_ms=fields.pop("attest_days") * DAY_MS, **fields)
    for fault in check_settings(settings):
        refuse(fault)
    executors = value_or_exit(built_in_executors(settings.models, circuits=settings.circuits))
    with report_errors():
        tls = load_tls(*tls_files)
        if refusal := why_not_plain(settings.node, tls, allow_plain=allow_plain):
            refuse(refusal)
        signer = SigningKey.load_or_create(key)
        status = value_or_exit(asyncio.run(_register(settings, executors, signer, tls)))
    return {
        "provider": status.provider_id.hex(),
        "public": signer.public.hex(),
        "status": status.status,
        "stake": f"{status.stake} of {status.stake_min}",
    }


async def _register(
    settings: AgentSettings, executors: ExecutorRegistry, signer: SigningKey, tls: Tls | None
) -> RegistrationStatus | Refused:
    connection = NodeConnection(settings.node, tls)
    try:
        client = NodeClient(
            connection=connection,
            settings=settings,
            capabilities=executors.capabilities(),
            signer=signer,
            clock=MachineClock(),
        )
        return await client.register()
    except RpcFault as fault:
        refusal = refusal_of(fault)
        if refusal is None:
            message = f"{settings.node}: {describe_fault(fault)}"
            raise Unavailable("PRV-001", message, "check --node, and that a node is up there") from fault
        return refusal
    finally:
        await connection.close()

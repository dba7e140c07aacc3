"""`holdfast agent`: a provider's process, which takes work from a node, does it and hands it in."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.adapters.keys.secretfile import read_public, read_secret
from holdfast.agent.executors import built_in
from holdfast.agent.settings import AgentSettings, Tls, faults, host_of
from holdfast.cli import Command, Group, verb
from holdfast.cli.speak import BAD_INPUT, given, log_as, refuse, told
from holdfast.config import Log, LogFormat, LogLevel
from holdfast.core.policy.knobs import DAY_MS, SECOND_MS
from holdfast.core.provider.record import ProviderStatus
from holdfast.core.refusal import Refused
from holdfast.doors.loopback import is_loopback

if TYPE_CHECKING:
    from holdfast.agent.client import Standing
    from holdfast.agent.runner import Agent

RUN, ROTATE = "run", "rotate-key"
Models = Annotated[
    list[str] | None, typer.Option(help="A model to offer, once for each: digits, echo, sleep (for params.ms).")
]
AllowPlain = Annotated[
    bool, typer.Option("--allow-plain", help="Speak without TLS to another machine: only where something adds it.")
]
Circuits = Annotated[bool, typer.Option("--circuits", help="Run QUANTUM jobs of Clifford gates, on a simulator.")]


class Agents(Group):
    """`holdfast agent …` runs one; only a word that names something else does something else."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in ([RUN], [ROTATE]) else [RUN, *args])


app = verb(Agents)


@app.command(RUN, cls=Command)
def agent(
    node: Annotated[str, typer.Option(metavar="HOST:PORT", help="The node's gRPC door.")],
    data: Annotated[Path, typer.Option(help="Folder of the agent's key, work and evidence; its own, not the node's.")],
    name: Annotated[str, typer.Option(help="What people call this provider.")],
    account: Annotated[str, typer.Option(help="Where fees go and the stake comes from.")],
    model: Models = None,
    circuits: Circuits = False,
    slots: Annotated[int, typer.Option(help="Jobs that are worked on at a time.")] = 4,
    price: Annotated[int, typer.Option(help="For a unit of work, in the smallest unit of money.")] = 1,
    region: Annotated[str, typer.Option(help="Where it runs, as jobs may ask for it.")] = "",
    attest_days: Annotated[
        int, typer.Option(min=1, help="What it says of itself holds this long; renewed in time.")
    ] = 30,
    timeout_s: Annotated[int, typer.Option(min=1, help="An execution that takes longer has failed.")] = 1_800,
    drain_s: Annotated[int, typer.Option(min=0, help="When told to stop, let running work finish for this long.")] = 20,
    ca: Annotated[
        Path | None, typer.Option(help="The authority that signed the node's certificate; turns TLS on.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="What the agent shows where the node asks for it.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", help="Serve what it counts for Prometheus on this loopback port.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much it says on standard error.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="For people or for machines.")] = LogFormat.TEXT,
) -> None:
    """Run a provider's agent until Ctrl-C or SIGTERM: take work, do it, keep its evidence until the node has it.

    Its key is made at the first start in DATA/keys/agent.pem; whoever has it is this provider. The agent says its
    provider id, and what is missing before it gets work: usually a stake, `holdfast provider stake ID AMOUNT`.

    It may be killed at any point: at the next start it goes on with what is in DATA. When told to stop it takes no more
    work, finishes what runs within --drain-s, gives the rest back, and delivers its evidence.

    `holdfast agent rotate-key --node HOST:PORT --data DATA` changes the key of one that is stopped; it stays the same
    provider.
    """
    log_as(Log(level=log_level, format=log_format))
    settings = AgentSettings(
        node=node,
        data=data,
        name=name,
        account=account,
        models=tuple(model or ()),
        circuits=circuits,
        slots=slots,
        price=price,
        region=region,
        attested_ms=attest_days * DAY_MS,
        execution_ms_max=timeout_s * SECOND_MS,
        drain_ms=drain_s * SECOND_MS,
        metrics_port=metrics,
    )
    with told():
        tls = tls_of(ca, certificate, key)
        made = _assembled(settings, tls, allow_plain=allow_plain)
        print(f"provider {made.id.hex()}", flush=True)
        asyncio.run(_until_told(made))


@app.command(ROTATE, cls=Command)
def rotate_key(
    node: Annotated[str, typer.Option(metavar="HOST:PORT", help="The node's gRPC door.")],
    data: Annotated[Path, typer.Option(help="Folder of the agent.")],
    ca: Annotated[Path | None, typer.Option(help="The authority that signed the node's certificate.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="What is shown where the node asks for it.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
) -> None:
    """Change the key of a stopped agent: the node hears it from the old key and the new one, and the old one is void.

    The agent stays the same provider, with its stake and history. Where this is interrupted, say it again: it goes on
    from where it was.
    """
    with told():
        tls = tls_of(ca, certificate, key)
        if tls is None and not allow_plain and not is_loopback(host_of(node)):
            _refuse_plain(node)
        if not (data / "keys").exists():
            refuse(Refused("PRV-003", f"{data}: no agent has a key there", "name the agent's folder with --data"))
        from holdfast.app import rotate_agent_key  # noqa: PLC0415 - settings are judged before anything heavy is loaded

        id_, public = given(asyncio.run(rotate_agent_key(data, node, tls)))
        print(f"provider {id_.hex()}")
        print(f"signs with {public.hex()} from now on")


def _refuse_plain(node: str) -> None:
    says, hint = f"node: {node} is another machine and there is no TLS", "name the node's authority with --ca"
    refuse(Refused("SEC-001", says, f"{hint}, or say --allow-plain", "BadConfig"))


def _assembled(settings: AgentSettings, tls: Tls | None, *, allow_plain: bool) -> Agent:
    """The agent, or every fault of its settings on standard error and exit code 2."""
    executors = built_in(settings.models, circuits=settings.circuits)
    wrong = [*faults(settings), *([executors] if isinstance(executors, Refused) else [])]
    if (settings.data / "keys" / "node.pem").exists():
        hint = "an agent has its own: --data ./oak"
        wrong.append(Refused("SEC-001", f"data: {settings.data} is a node's folder", hint, "BadConfig"))
    if not wrong and tls is None and not allow_plain and not is_loopback(host_of(settings.node)):
        says = f"node: {settings.node} is another machine and there is no TLS"
        wrong.append(Refused("SEC-001", says, "name the node's authority with --ca, or say --allow-plain", "BadConfig"))
    if wrong or isinstance(executors, Refused):
        for fault in wrong:
            print(f"holdfast: {fault}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    from holdfast.app import agent as assembled  # noqa: PLC0415 - settings are judged before anything heavy is loaded

    return assembled(settings, executors, tls, lambda id_: _Saying(settings.data, id_).standing)


def tls_of(ca: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    """Files to bytes; TLS is on as soon as one is named."""
    if ca is None and certificate is None and key is None:
        return None
    if (certificate is None) != (key is None):
        print("holdfast: SEC-001: --certificate and --key are given together", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    return Tls(
        _certificate(ca) if ca is not None else None,
        _certificate(certificate) if certificate is not None else None,
        read_secret(key) if key is not None else None,
    )


def _certificate(path: Path) -> bytes:
    """Its bytes, or at once why they are none: gRPC would try for ever with whatever it is given."""
    from holdfast.adapters.keys.certificate import describe  # noqa: PLC0415 - only where there is TLS

    raw = read_public(path)
    describe(raw, str(path))
    return raw


async def _until_told(made: Agent) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await made.run(stop)


class _Saying:
    """Says on standard output how the provider stands, when that changes."""

    def __init__(self, data: Path, id_: bytes) -> None:
        self._data, self._id = data, id_.hex()

    def standing(self, now: Standing) -> None:
        if now.status == ProviderStatus.ACTIVE:
            _say(f"active, with {now.stake} at stake: work may come")
            return
        _say(f"known to the node as {now.status}, with {now.stake} of {now.stake_min} at stake")
        if now.missing:
            _say(f"  to get work: holdfast provider stake {self._id} {now.missing}")


def _say(line: str) -> None:
    """Where nobody reads any more, or the disk is full, a line is lost, never the agent that speaks."""
    with suppress(OSError, ValueError):
        print(line, flush=True)

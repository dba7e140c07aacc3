"""`holdfast agent`: a provider's process, which takes leases from a node, runs the jobs and submits the results."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.adapters.keys.secret_file import read_public, read_secret
from holdfast.agent.executors.all_executors import make_registry
from holdfast.agent.executors.built_in import find_built_in
from holdfast.agent.settings import AgentSettings, check_settings, host_of
from holdfast.agent.settings_file import FILE_NAME, TEMPLATE
from holdfast.api.loopback import is_loopback
from holdfast.app.log_output import configure_logging
from holdfast.cli import VerbGroup, make_app
from holdfast.cli.agent import control, options
from holdfast.cli.agent.options import AgentCa, AgentCertificate, AllowPlain, NodeOption
from holdfast.cli.exit_codes import BAD_INPUT
from holdfast.cli.terminal.key_files import KEYS_FOLDER, NODE_KEY_FILE
from holdfast.cli.terminal.labels import parse_labels
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.reporting import refuse, report_errors, value_or_exit
from holdfast.cli.terminal.tables import print_outcome
from holdfast.config import LogFormat, LogLevel, LogSettings
from holdfast.core.base.errors import Refused
from holdfast.core.provider.model import ProviderStatus
from holdfast.shipping.node_connection import Tls
from holdfast.system.durable_files import write_once

if TYPE_CHECKING:
    from holdfast.agent.runner import Agent
    from holdfast.agent.transport.node_client import RegistrationStatus

RUN, ROTATE, INIT = "run", "rotate-key", "init"


class AgentGroup(VerbGroup):
    """`holdfast agent …` runs an agent unless the first word names another command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = args[:1] and args[0] in (RUN, ROTATE, INIT, *control.VERBS)
        return super().parse_args(ctx, args if is_named else [RUN, *args])


app = make_app(AgentGroup)
for word, verb in control.VERBS.items():
    app.command(word, example=f"holdfast agent {word} --data ./oak")(verb)


@app.command(
    RUN,
    example="holdfast agent --data ./oak --node 127.0.0.1:8452 --name oak --account oak --exec 'wc=wc -c'\n"
    "holdfast agent run --data ./oak",
)
def agent(
    data: Annotated[Path, typer.Option(help="Folder of the agent's key, work and evidence; its own, not the node's.")],
    node: options.OptionalNode = None,
    name: options.Name = None,
    account: options.Account = None,
    exec_: options.Execs = None,
    python: options.Functions = None,
    http: options.Servers = None,
    executor: options.Plugins = None,
    model: options.Models = None,
    circuits: options.Circuits = False,
    cpu_milli: options.CpuMilli = None,
    memory_mb: options.MemoryMb = None,
    gpus: options.Gpus = None,
    slots: options.SlotsOption = None,
    price: options.Prices = None,
    region: options.Region = None,
    label: options.Labels = None,
    attest_days: options.AttestDays = None,
    timeout_s: options.TimeoutS = None,
    drain_s: options.DrainS = None,
    invitation: options.Invitation = None,
    ca: AgentCa = None,
    certificate: AgentCertificate = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
    metrics: options.MetricsPort = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged to standard error.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="For people or for machines.")] = LogFormat.TEXT,
) -> None:
    """Run a provider's agent until Ctrl-C or SIGTERM: take leases, run jobs, keep evidence until the node has it.

    What it offers: your own work (--exec, --python, --http, --executor) and what comes with Holdfast (--model,
    --circuits). DATA/agent.toml may say the same as the options, and more: `holdfast agent init --data DATA`.

    Its key is created at the first start in DATA/keys/agent.pem; whoever has that file is this provider. The agent
    prints its provider id, and what it still needs to get work: usually a stake, `holdfast provider stake ID AMOUNT`.

    It may be killed at any time: the next start continues with what is in DATA. After a stop signal it takes no more
    leases, finishes running jobs within --drain-s, returns the rest to the queue, and delivers its evidence.
    """
    given: dict[str, Any] = {"node": node, "name": name, "account": account, "circuits": circuits, "region": region}
    given |= {"slots": slots}
    given |= {"labels": value_or_exit(parse_labels(label)) if label else None}
    given |= {"models": tuple(model) if model else None, "metrics_port": metrics, "attest_days": attest_days}
    given |= {"cpu_milli": cpu_milli, "memory_mb": memory_mb, "gpus": gpus, "timeout_s": timeout_s, "drain_s": drain_s}
    given |= {"invitation": options.read_invitation_file(invitation) if invitation is not None else None}
    executors = value_or_exit(options.read_executors(exec_, python, http, executor))
    configure_logging(LogSettings(level=log_level, format=log_format))
    settings = value_or_exit(options.settings_from(data, given, price, executors))
    with report_errors():
        tls = load_tls(ca, certificate, key)
        provider_agent = _assemble(settings, tls, allow_plain=allow_plain)
        print(f"provider {provider_agent.id.hex()}", flush=True)
        asyncio.run(_run_until_stopped(provider_agent))


@app.command(INIT, example="holdfast agent init --data ./oak --node 127.0.0.1:8452 --name oak")
def init(
    data: Annotated[Path, typer.Option(help="The agent's folder; made where it does not exist.")],
    node: NodeOption = "127.0.0.1:7411",
    name: Annotated[str, typer.Option(help="The provider's display name.")] = "my-agent",
    account: Annotated[str, typer.Option(help="The account that receives fees and pays the stake.")] = "my-agent",
    as_json: Json = False,
) -> None:
    """Write a commented agent.toml into the agent's folder. Nothing is ever overwritten."""
    with report_errors():
        path = data / FILE_NAME
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not write_once(path, TEMPLATE.format(node=node, name=name, account=account).encode()):
            refuse(Refused("SEC-001", f"{path} is there already", "edit it"))
        outcome = f"wrote {path}; start the agent with: holdfast agent --data {data}"
        print_outcome({"file": str(path)}, outcome, as_json=as_json)


@app.command(ROTATE, example="holdfast agent rotate-key --data ./oak --node 127.0.0.1:8452")
def rotate_key(
    node: NodeOption,
    data: Annotated[Path, typer.Option(help="The agent's folder.")],
    ca: AgentCa = None,
    certificate: AgentCertificate = None,
    key: Annotated[Path | None, typer.Option(help="The key of that certificate.")] = None,
    allow_plain: AllowPlain = False,
    as_json: Json = False,
) -> None:
    """Change the key of a stopped agent: both keys sign the change, and from then on the old one is void.

    The agent stays the same provider, with its stake and history. If this is interrupted, run it again: it continues
    where it was.
    """
    with report_errors():
        tls = load_tls(ca, certificate, key)
        if refusal := why_not_plain(node, tls, allow_plain=allow_plain):
            refuse(refusal)
        if not (data / KEYS_FOLDER).exists():
            refuse(Refused("PRV-003", f"{data}: no agent has a key there", "pass the agent's folder with --data"))
        from holdfast.app.provider_agent import rotate_agent_key  # noqa: PLC0415 - heavy

        id_, public = value_or_exit(asyncio.run(rotate_agent_key(data, node, tls)))
        lines = (f"provider {id_.hex()}", f"signs with {public.hex()} from now on")
        print_outcome({"provider": id_.hex(), "public_key": public.hex()}, *lines, as_json=as_json)


def why_not_plain(node: str, tls: Tls | None, *, allow_plain: bool) -> Refused | None:
    """SEC-001: a connection without TLS stays on this machine, unless the user allows it."""
    if tls is not None or allow_plain or is_loopback(host_of(node)):
        return None
    message = f"node: {node} is another machine and there is no TLS"
    return Refused("SEC-001", message, "pass --ca or --allow-plain", "BadConfig")


def _assemble(settings: AgentSettings, tls: Tls | None, *, allow_plain: bool) -> Agent:
    """The agent, or every fault of its settings on standard error and exit code 2."""
    faults = [*check_settings(settings)]
    built_in = find_built_in(settings.models, circuits=settings.circuits)
    faults += [built_in] if isinstance(built_in, Refused) else []
    executors = (
        Refused("SEC-001", "the settings are faulty", "correct those that are named")
        if faults
        else make_registry(settings)
    )
    if (settings.data / KEYS_FOLDER / NODE_KEY_FILE).exists():
        hint = "an agent has its own: --data ./oak"
        faults.append(Refused("SEC-001", f"data: {settings.data} is a node's folder", hint, "BadConfig"))
    if not faults and (refusal := why_not_plain(settings.node, tls, allow_plain=allow_plain)):
        faults.append(refusal)
    if faults or isinstance(executors, Refused):
        for fault in faults:
            print(f"holdfast: {fault}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    from holdfast.app.provider_agent import make_agent  # noqa: PLC0415 - heavy: after the settings are checked

    return make_agent(settings, executors, tls, lambda id_: _StatusPrinter(id_).show_status)


def load_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> Tls | None:
    """The files' contents; TLS is on as soon as one of them is passed."""
    if ca is None and certificate is None and key is None:
        return None
    if (certificate is None) != (key is None):
        hint = "a client certificate is used with its key"
        refuse(Refused("SEC-001", "--certificate and --key: pass both or none", hint, "BadConfig"))
    return Tls(
        _read_certificate(ca) if ca is not None else None,
        _read_certificate(certificate) if certificate is not None else None,
        read_secret(key) if key is not None else None,
    )


def _read_certificate(path: Path) -> bytes:
    """The certificate's bytes. It is parsed here, since gRPC would retry for ever with an invalid one."""
    from holdfast.adapters.keys.certificate import describe  # noqa: PLC0415 - only where there is TLS

    raw = read_public(path)
    describe(raw, str(path))
    return raw


async def _run_until_stopped(provider_agent: Agent) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await provider_agent.run(stop)


class _StatusPrinter:
    """Prints the provider's status on standard output when it changes."""

    def __init__(self, id_: bytes) -> None:
        self._id = id_.hex()

    def show_status(self, status: RegistrationStatus) -> None:
        if status.status == ProviderStatus.ACTIVE:
            _print_line(f"active, with {status.stake} at stake: work may come")
            return
        _print_line(f"registered as {status.status}, with {status.stake} of {status.stake_min} at stake")
        if status.stake_missing:
            _print_line(f"  to get work: holdfast provider stake {self._id} {status.stake_missing}")


def _print_line(line: str) -> None:
    """If the reader is gone or the disk is full, a line is lost; the agent runs on."""
    with suppress(OSError, ValueError):
        print(line, flush=True)

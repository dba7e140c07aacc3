"""Options of `holdfast agent`, and the settings that they and the settings file give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.agent.executors.own_work import OwnExecutor, WorkSource, read_option
from holdfast.agent.settings import AgentSettings
from holdfast.agent.settings_file import read_settings_file
from holdfast.cli.terminal.input_files import UnreadableInput, read_bytes
from holdfast.cli.terminal.reporting import refuse
from holdfast.core.base.errors import Refused
from holdfast.core.policy import DAY_MS, SECOND_MS

INVITATION_BYTES_MAX: Final = 1 << 20
Models = Annotated[
    list[str] | None, typer.Option(help="A model to offer: digits, echo, sleep (for params.ms). May be repeated.")
]
AllowPlain = Annotated[
    bool, typer.Option("--allow-plain", help="Connect to another machine without TLS, if something else encrypts.")
]
NodeOption = Annotated[str, typer.Option("--node", metavar="HOST:PORT", help="The node's gRPC address.")]
OptionalNode = Annotated[str | None, typer.Option("--node", metavar="HOST:PORT", help="The node's gRPC address.")]
AgentCa = Annotated[
    Path | None, typer.Option("--ca", help="CA certificate that signed the node's certificate; turns TLS on.")
]
AgentCertificate = Annotated[
    Path | None, typer.Option("--certificate", help="Client certificate, if the node requires one.")
]
Invitation = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file with an operator's invitation; `-` is standard input.")
]
Circuits = Annotated[bool, typer.Option("--circuits", help="Run QUANTUM jobs of Clifford gates on a simulator.")]


Prices = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[MODEL=]PRICE",
        help="Price of a unit of work, in the smallest unit of money; of one model with its name. [default: 1]",
    ),
]


def read_invitation_file(file: Path) -> str:
    """SEC-002: the token, as `holdfast provider invite` has printed it. Its form is checked with the other settings."""
    try:
        return read_bytes(file, INVITATION_BYTES_MAX).decode("ascii", "replace").strip()
    except UnreadableInput as fault:
        refuse(
            Refused(
                "SEC-002",
                f"{file}: {fault}",
                "pass the file that `holdfast provider invite` was written to",
                "InvalidParams",
            )
        )


def read_prices(options: list[str] | None) -> dict[str, Any] | Refused:
    """The settings `price`, of `3`, and `prices` of models that have their own: `oak=5`."""
    prices = dict[str, int]()
    for option in options or ():
        model, _, price = option.rpartition("=")
        if not price.isdecimal() or model in prices:
            return Refused(
                "SEC-001",
                f"price: {option!r} is not [MODEL=]PRICE, each once",
                "--price 3, or --price echo=5",
                "BadConfig",
            )
        prices[model] = int(price)
    return {"price": prices.pop("", 1), "prices": prices}


Execs = Annotated[
    list[str] | None,
    typer.Option("--exec", metavar="[KIND:]NAME=COMMAND", help="A program to offer as a COMPUTE runtime: 'wc=wc -c'."),
]
Functions = Annotated[
    list[str] | None,
    typer.Option("--python", metavar="[KIND:]NAME=MODULE:FUNCTION", help="A Python function to offer, kept warm."),
]
Servers = Annotated[
    list[str] | None,
    typer.Option(
        "--http", metavar="[KIND:]NAME=URL", help="A server to offer as an AI model; inputs are posted to it."
    ),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--executor", metavar="[KIND:]NAME", help="An installed executor: an entry point of the group."),
]


def read_executors(
    exec_: list[str] | None, python: list[str] | None, http: list[str] | None, plugin: list[str] | None
) -> tuple[OwnExecutor, ...] | Refused:
    """The provider's own work, in the order of the options' kinds."""
    given = zip(WorkSource, (exec_, python, http, plugin), strict=True)
    read = [read_option(source, option) for source, options in given for option in options or ()]
    refused = next((each for each in read if isinstance(each, Refused)), None)
    return refused or tuple(each for each in read if isinstance(each, OwnExecutor))


Name = Annotated[str | None, typer.Option(help="The provider's display name.")]
Account = Annotated[str | None, typer.Option(help="The account that receives fees and pays the stake.")]
CpuMilli = Annotated[int | None, typer.Option(min=0, help="Thousandths of a processor that a slot has.")]
MemoryMb = Annotated[
    int | None, typer.Option(min=0, help="Memory of a slot, and the limit of programs. [default: none]")
]
Gpus = Annotated[int | None, typer.Option(min=0, help="GPUs that a slot has.")]
SlotsOption = Annotated[int | None, typer.Option("--slots", help="How many jobs run at the same time. [default: 4]")]
Region = Annotated[str | None, typer.Option(help="Where it runs; jobs may require a region.")]
Labels = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Jobs may require it: gpu=a100. May be repeated.")
]
AttestDays = Annotated[
    int | None, typer.Option(min=1, help="How long an attestation is valid; it is renewed in time. [default: 30]")
]
TimeoutS = Annotated[int | None, typer.Option(min=1, help="A job that runs longer has failed. [default: 1800]")]
DrainS = Annotated[
    int | None, typer.Option(min=0, help="After a stop signal, let running jobs finish for this long. [default: 20]")
]
MetricsPort = Annotated[
    int | None, typer.Option(metavar="PORT", help="Serve metrics for Prometheus on this loopback port.")
]
UNITS: Final = {
    "attest_days": ("attested_ms", DAY_MS),
    "timeout_s": ("execution_ms_max", SECOND_MS),
    "drain_s": ("drain_ms", SECOND_MS),
}
REQUIRED: Final = ("node", "name", "account")


def settings_from(
    data: Path, given: dict[str, Any], prices: list[str] | None, executors: tuple[OwnExecutor, ...]
) -> AgentSettings | Refused:
    """Options count before the file of the agent's folder; executors and models of both are offered."""
    file = read_settings_file(data)
    if isinstance(file, Refused):
        return file
    fields: dict[str, Any] = {"models": (), "drain_ms": 20 * SECOND_MS} | file
    for name, value in given.items():
        field, unit = UNITS.get(name, (name, 1))
        if value is not None and value is not False:
            fields[field] = value * unit if field != name else value
    if prices is not None:
        read = read_prices(prices)
        if isinstance(read, Refused):
            return read
        fields |= read
    fields["executors"] = (*fields.get("executors", ()), *executors)
    if missing := [name for name in REQUIRED if not fields.get(name)]:
        hint = f"pass --{missing[0]}, or write it into {data}/agent.toml: `holdfast agent init --data {data}`"
        return Refused("SEC-001", f"{missing[0]}: not given", hint, "BadConfig")
    return AgentSettings(data=data, **fields)

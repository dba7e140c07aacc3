"""The settings file of an agent, `agent.toml`: what the options say, and what is too much for options."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.agent.executors.own_work import OwnExecutor
from holdfast.agent.settings import AgentSettings
from holdfast.core.base.errors import Refused

FILE_NAME: Final = "agent.toml"
_OWN_FIELDS: Final = frozenset(OwnExecutor.__struct_fields__) | {"price"}
_FIELDS: Final = frozenset(AgentSettings.__struct_fields__) - {"data"}
TEMPLATE: Final = """# Settings of a Holdfast agent: `holdfast agent --data FOLDER` reads this file from FOLDER.
# Options count before it.

node = "{node}"          # HOST:PORT of the node's gRPC server
name = "{name}"
account = "{account}"    # receives the fees and pays the stake
slots = 4                # how many jobs run at a time
price = 1                # of a unit of work
# region = "eu"
# labels = {{ gpu = "a100" }}   # jobs may require them
# cpu_milli = 1000       # what each slot has, for COMPUTE jobs
# memory_mb = 2048       # also the limit of a program's memory
# models = ["echo"]      # work that comes with Holdfast
# execution_ms_max = 1800000

# Your own work: a program that reads the input on standard input and writes the output to standard output.
[[executors]]
source = "exec"          # exec, python, http or plugin
name = "wc"
target = "wc -c"         # a command, package.module:function, a URL, or an entry point
# kind = "COMPUTE"       # of AI, QUANTUM and COMPUTE
# slots = 1              # how many of its jobs run at a time
# price = 5              # of a unit of its work
# memory_mb = 512
# network = false        # whether it may use the network
# env = ["CUDA_VISIBLE_DEVICES"]
"""


def read_settings_file(folder: Path) -> dict[str, Any] | Refused:
    """The fields that the file sets; none where there is no file."""
    path = folder / FILE_NAME
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        return _bad(path, str(fault))
    if unknown := sorted(raw.keys() - _FIELDS):
        return _bad(path, f"{unknown[0]}: no such setting; there are {', '.join(sorted(_FIELDS))}")
    tables: list[dict[str, Any]] = raw.get("executors", [])
    prices = dict(raw.get("prices", {}))
    for table in tables:
        if unknown := sorted(table.keys() - _OWN_FIELDS):
            return _bad(path, f"executors: {unknown[0]}: no such setting")
        if "price" in table:
            prices[str(table.get("name"))] = table["price"]
    own = [{name: value for name, value in table.items() if name != "price"} for table in tables]
    try:
        found = msgspec.convert(raw | {"executors": own, "prices": prices}, _FileFields)
    except msgspec.ValidationError as fault:
        return _bad(path, str(fault))
    set_fields = {*raw, *(("prices",) if prices else ())}
    return {name: getattr(found, name) for name in set_fields}


_FileFields: Any = msgspec.defstruct(
    "_FileFields",
    [
        (field.name, field.type, None if field.default is msgspec.NODEFAULT else field.default)
        for field in msgspec.structs.fields(AgentSettings)
        if field.name != "data"
    ],
)


def _bad(path: Path, message: str) -> Refused:
    return Refused("SEC-001", f"{path}: {message}", "compare `holdfast agent init`", "BadConfig")

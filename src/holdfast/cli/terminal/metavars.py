"""How values are named in help: FILE and N instead of a Python type, choices as they are written, in any case."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, get_args

METAVARS: Final = {
    "agent_data": "DIR",
    "data": "DIR",
    "url": "URL",
    "account": "ACCOUNT",
    "actor": "KEY",
    "arg": "TEXT",
    "caller": "ACCOUNT",
    "channel": "CHANNEL",
    "detail": "TEXT",
    "drain_s": "SECONDS",
    "every": "SECONDS",
    "expires": "DURATION",
    "grace": "DURATION",
    "host": "HOST",
    "key": "KEY",
    "keys": "KEY",
    "label": "TEXT",
    "markers": "DIR",
    "memo": "TEXT",
    "model": "MODEL",
    "name": "NAME",
    "note": "TEXT",
    "node": "NAME",
    "owner": "ACCOUNT",
    "port": "PORT",
    "prompt": "TEXT",
    "reason": "TEXT",
    "reference": "REFERENCE",
    "region": "REGION",
    "root": "DIR",
    "runtime": "PROGRAM",
    "scope": "METHOD",
    "seconds": "SECONDS",
    "seed": "HEX",
    "session": "SESSION",
    "timeout": "DURATION",
    "timeout_s": "SECONDS",
    "to": "DIR",
    "ttl": "DURATION",
    "type_": "EVENT",
    "watch_s": "SECONDS",
}
"""By the parameter's name, where its type says too little."""
BY_TYPE: Final[dict[object, str]] = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE"}


def name_values(param: Any) -> None:
    """Give a parameter its name for people, unless it has one, and let its choices be written in any case."""
    descriptor = getattr(param, "type_descriptor", None)
    if descriptor is None:
        return
    choices = descriptor.choices
    if choices is not None:
        descriptor.parameter_info.case_sensitive = False
    if param.param_type_name == "argument":
        _name_argument(param)
    if param.metavar is not None or getattr(param, "is_flag", False) or param.param_type_name == "argument":
        return
    if choices is not None:
        param.metavar = "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    else:
        type_ = next(iter(get_args(descriptor.annotation)), descriptor.annotation)
        named = METAVARS.get(param.name)
        is_misnamed = type_ is Path and named != "DIR"  # `--key` is a key's text or the file of one
        param.metavar = BY_TYPE.get(type_, "VALUE") if named is None or is_misnamed else named


def _name_argument(param: Any) -> None:
    """By its name alone, in brackets where it can be left out; typer would add braces and its Python type."""
    name = param.metavar or param.name.upper()
    shown = name if param.nargs == 1 or "…" in name else f"{name}…"
    param.get_usage_pieces = lambda _: [shown if param.required else f"[{shown}]"]
    param.display_type_rich = lambda ctx: None

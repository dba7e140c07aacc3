"""Settings of a node, from the table of their types, the defaults in the code, and what the settings file says."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_origin

from tools.reference.markdown import code, head, table

from holdfast.cli.init.sections import SECTIONS, Section
from holdfast.cli.init.template import setting_defaults
from holdfast.config import LEAVES
from holdfast.core.base.values import Network

ABOUT: Final = """\
A setting is read from `holdfast.toml`, from the environment (`HOLDFAST_HTTP__PORT` is `port` of `[http]`)
or from an option; the later of these overrides the earlier. `holdfast init` writes all of them into the
file, as they are here. Two defaults are those of a development and of a production network. Settings of
`policy` are the network's: `holdfast policy apply` changes them on a running one."""


def page() -> str:
    defaults = {network: setting_defaults(network) for network in (Network.DEVELOPMENT, Network.PRODUCTION)}
    return "\n".join([head("Settings", ABOUT), *(_section(each, defaults) for each in SECTIONS)])


def _section(section: Section, defaults: dict[Network, dict[str, object]]) -> str:
    rows = []
    for setting in section.settings:
        path = f"{section.name}.{setting.name}".removeprefix(".")
        shown = list(dict.fromkeys(_value(defaults[network][path]) for network in defaults))
        rows.append((code(setting.name), _kind(LEAVES[path]), ", ".join(shown), setting.comment))
    told = "\n".join(section.comment)
    about = f"{told}\n\n" if told else ""
    title = section.name or "The node"
    return f"## {title}\n\n{about}" + table(("setting", "value", "default", "meaning"), rows)


def _value(value: object) -> str:
    if value is None:
        return "not set"
    return code(json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False))


def _kind(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        base, *limits = get_args(kind)
        return f"{_kind(base)}{''.join(_limit(each) for each in limits)}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(code(each.value) for each in kind)
    if args := [each for each in get_args(kind) if each not in (type(None), Ellipsis)]:
        return f"list of {_kind(args[0])}s" if get_origin(kind) is tuple else _kind(args[0])
    return {int: "integer", str: "text", bool: "true or false"}[kind]


def _limit(limit: Any) -> str:
    low, high = getattr(limit, "low", getattr(limit, "ge", None)), getattr(limit, "high", getattr(limit, "le", None))
    if low is not None and high is not None:
        return f", {low:,} to {high:,}".replace(",", " ").replace("  ", ", ", 1).lstrip()
    pattern = getattr(limit, "pattern", None)
    return f", {code(pattern)}" if pattern else ""

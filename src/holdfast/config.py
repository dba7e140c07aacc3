"""What the operator wants: a TOML file, below the environment, below flags; read once, every fault named at once.

    data = "./holdfast-data"
    network = "development"
    chain_id = 1337

    [policy.lease]
    ai_ms = 600000

The same leaf is `HOLDFAST_POLICY__LEASE__AI_MS` in the environment and `policy.lease.ai_ms` among the flags.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from holdfast.adapters.postgres.settings import LEAVES as POSTGRES
from holdfast.adapters.postgres.settings import Postgres, Secret
from holdfast.core.policy import Policy, faults
from holdfast.core.refusal import Refused
from holdfast.core.values import Network
from holdfast.doors.grpc.settings import LEAVES as GRPC
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.doors.grpc.settings import why_not_open as why_not_grpc
from holdfast.doors.http.settings import LEAVES as HTTP
from holdfast.doors.http.settings import HttpSettings
from holdfast.doors.http.settings import faults as http_faults
from holdfast.verifiers.settings import LEAVES as VERIFIERS
from holdfast.verifiers.settings import VerifierSettings

FILE: Final = Path("holdfast.toml")
"""Read from the working directory when no file is named and it exists."""
PREFIX: Final = "HOLDFAST_"
NAMES_FILE: Final = "HOLDFAST_CONFIG"
NOT_SETTINGS: Final = frozenset({NAMES_FILE, "HOLDFAST_TOKEN", "HOLDFAST_FULL"})
"""Variables of ours that are no leaf: the file's name, a client's token, and the test suite's full counts."""


class LogLevel(StrEnum):
    """How much the node says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How the node says it: for a human or for a machine."""

    TEXT = "text"
    JSON = "json"


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """What goes to standard error."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


class Store(StrEnum):
    """Where journal and tables are kept."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a node is told at its start; network and chain id are inside the policy."""

    data: Path = Path("holdfast-data")
    node: str = "node"
    standby: bool = False
    store: Store = Store.SQLITE
    postgres: Postgres = Postgres()
    http: HttpSettings | None = None
    """None where the door stays shut: a node opens no port unless it is told to."""
    grpc: GrpcSettings | None = None
    asrun_folder: Path | None = None
    """Where as-run logs of v0.1 channels are kept, where they are wanted."""
    verifiers: VerifierSettings = VerifierSettings()
    log: Log = Log()
    policy: Policy = Policy.for_network(Network.DEVELOPMENT)


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Config | list[Refused]:
    """The configuration, or every fault it has (SEC-001); a flag that is None was not given."""
    wrong: list[Refused] = []
    leaves: dict[str, Any] = {}
    for source in (_from_file(file, environ), _from_environment(environ), _from_flags(flags)):
        for leaf in source:
            if isinstance(leaf, Refused):
                wrong.append(leaf)
            else:
                leaves[leaf[0]] = leaf[1]
    if "postgres.dsn_file" in leaves:
        _read_dsn(leaves, wrong)
    config = _assemble(leaves)
    for fault in faults(config.policy):
        path = fault.path if fault.path in LEAVES else f"policy.{fault.path}"
        wrong.append(Refused(fault.rule, f"{path}: {fault.says}", fault.hint, BAD))
    wrong += _unsafe_doors(config)
    return wrong or config


def _unsafe_doors(config: Config) -> Iterator[Refused]:
    for no in http_faults(config.http) if config.http is not None else ():
        yield Refused(no.rule, f"http.{no.says}", no.hint, BAD)
    if config.grpc is not None and (why := why_not_grpc(config.grpc)) is not None:
        yield Refused(why.rule, f"grpc.{why.says}", why.hint, BAD)


BAD: Final = "BadConfig"


# ------------------------------------------------------------------------------------------------ what can be set


def _leaves_of(struct: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _leaves_of(field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.type


NodeName = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9-]{0,62}$")]

LEAVES: Final[Mapping[str, Any]] = {
    "data": Annotated[str, msgspec.Meta(min_length=1)],
    "node": NodeName,
    "standby": bool,
    "network": Network,
    "chain_id": int,
    "store": Store,
    "asrun_folder": Annotated[str, msgspec.Meta(min_length=1)],
    **{f"postgres.{name}": kind for name, kind in POSTGRES.items()},
    "http.enabled": bool,
    **{f"http.{name}": kind for name, kind in HTTP.items()},
    "grpc.enabled": bool,
    **{f"grpc.{name}": kind for name, kind in GRPC.items()},
    **{f"verifiers.{name}": kind for name, kind in VERIFIERS.items()},
    **dict(_leaves_of(Log, "log.")),
    **{path: kind for path, kind in _leaves_of(Policy, "policy.") if path.count(".") == 2},
}
"""Path and type of all that can be set. Network and chain id stand at the top, where a reader looks for them."""

SECRETS: Final = frozenset({"postgres.dsn"})
"""Not in the file, which gets copied and committed; not among the flags, which everybody on the machine can read."""

TABLES: Final = frozenset(path[:at] for path in LEAVES for at, sign in enumerate(path) if sign == ".")


# ------------------------------------------------------------------------------------------------ reading


def _from_file(file: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, object] | Refused]:
    named = file or (Path(environ[NAMES_FILE]) if environ.get(NAMES_FILE) else None)
    source = named or FILE
    try:
        table = tomllib.loads(source.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            yield _bad(str(source), "no such file", "name a file that exists, or none for the defaults")
        return
    except (OSError, ValueError) as error:
        yield _bad(str(source), f"not readable as TOML: {error}", "fix the file, or name another one")
        return
    for path, value in _flatten(table, ""):
        yield _open_leaf(path, value, f"in {source}", strict=True)


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path in TABLES:
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, object] | Refused]:
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            path = name.removeprefix(PREFIX).lower().replace("__", ".")
            yield _leaf(path, environ[name], f"from {name}", strict=False)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object] | Refused]:
    for path, value in flags.items():
        if value is not None:
            yield _open_leaf(path, str(value) if isinstance(value, Path) else value, "from a flag", strict=False)


def _open_leaf(path: str, value: object, source: str, *, strict: bool) -> tuple[str, object] | Refused:
    """A leaf from where everybody can read it."""
    if path in SECRETS:
        return _bad(path, "a secret is set in the environment or in a file of its own", f"{source}; {_HOW_DSN}")
    return _leaf(path, value, source, strict=strict)


def _leaf(path: str, value: object, source: str, *, strict: bool) -> tuple[str, object] | Refused:
    if path in TABLES:
        return _bad(path, "a table of settings, not a value", f"{source}; set {_below(path)} instead")
    if path not in LEAVES:
        return _bad(path, "no such setting", f"{source}{_nearest(path)}")
    try:
        return path, msgspec.convert(value, LEAVES[path], strict=strict)
    except msgspec.ValidationError as error:
        return _bad(path, str(error), source)


def _bad(path: str, says: str, hint: str) -> Refused:
    return Refused("SEC-001", f"{path}: {says}", hint, BAD)


def _below(table: str) -> str:
    return next(path for path in LEAVES if path.startswith(f"{table}."))


def _nearest(path: str) -> str:
    """The setting most likely meant: the same name elsewhere, else the closest spelling."""
    name = path.rpartition(".")[2]
    same = [known for known in LEAVES if known.rpartition(".")[2] == name]
    close = same or get_close_matches(path, [*LEAVES, *sorted(TABLES)], n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _read_dsn(leaves: dict[str, Any], wrong: list[Refused]) -> None:
    """The DSN from the file that is named for it; the environment's own is above it."""
    path = Path(leaves["postgres.dsn_file"]).expanduser()
    try:
        leaf = _leaf("postgres.dsn", path.read_text("utf-8").strip(), f"in {path}", strict=True)
    except (OSError, ValueError) as error:
        says = getattr(error, "strerror", None) or "not readable as text"
        leaf = _bad("postgres.dsn_file", f"{path}: {says}", "name a file that holds nothing but the DSN")
    if isinstance(leaf, Refused):
        wrong.append(leaf)
    else:
        leaves.setdefault(*leaf)


def why_not_stored(config: Config) -> Refused | None:
    """What is missing for journal and tables to be opened; a verb that only speaks to a node needs neither."""
    if config.store is not Store.POSTGRES:
        return None
    if config.postgres.dsn is None:
        return _bad("postgres.dsn", "not set", _HOW_DSN)
    if find_spec("asyncpg") is None:
        return _bad("store", "postgres needs asyncpg, which is not installed", "pip install 'holdfast[postgres]'")
    return None


_HOW_DSN: Final = "set HOLDFAST_POSTGRES__DSN=postgresql://user:password@host/database, or postgres.dsn_file"


# ------------------------------------------------------------------------------------------------ joining

S = TypeVar("S", bound=msgspec.Struct)


def _assemble(leaves: Mapping[str, Any]) -> Config:
    """Good leaves over the network's defaults; those that were refused keep their default."""
    base = Config()
    network, chain_id = leaves.get("network", base.policy.network), leaves.get("chain_id", base.policy.chain_id)
    policy = _replaced(Policy.for_network(network, chain_id), leaves, "policy.")
    data = Path(leaves["data"]).expanduser() if "data" in leaves else base.data
    dsn = {"postgres.dsn": Secret(leaves["postgres.dsn"])} if "postgres.dsn" in leaves else {}
    return Config(
        data=data,
        node=leaves.get("node", base.node),
        standby=leaves.get("standby", base.standby),
        store=leaves.get("store", base.store),
        postgres=_replaced(base.postgres, {**leaves, **dsn}, "postgres."),
        http=_door(HttpSettings(), leaves, "http."),
        grpc=_door(GrpcSettings(), leaves, "grpc."),
        asrun_folder=Path(leaves["asrun_folder"]).expanduser() if "asrun_folder" in leaves else None,
        verifiers=_replaced(base.verifiers, leaves, "verifiers."),
        log=_replaced(base.log, leaves, "log."),
        policy=policy,
    )


def _door(settings: S, leaves: Mapping[str, Any], prefix: str) -> S | None:
    """A door that is opened, with its settings; files are named by paths."""
    if not leaves.get(f"{prefix}enabled", False):
        return None
    files = {
        path: Path(leaves[path]).expanduser()
        for name in ("certificate", "key", "client_ca")
        if (path := f"{prefix}{name}") in leaves
    }
    return _replaced(settings, {**leaves, **files}, prefix)


def _replaced(struct: S, leaves: Mapping[str, Any], prefix: str) -> S:
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        path, value = f"{prefix}{field.name}", getattr(struct, field.name)
        if path in leaves:
            changes[field.name] = leaves[path]
        elif isinstance(value, msgspec.Struct):
            changes[field.name] = _replaced(value, leaves, f"{path}.")
    return msgspec.structs.replace(struct, **changes)

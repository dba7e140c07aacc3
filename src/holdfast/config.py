"""The settings of a node. The environment overrides the TOML file, and flags override both.

    data = "./holdfast-data"
    network = "development"
    chain_id = 1337

    [policy.lease]
    ai_ms = 600000

The same setting is `HOLDFAST_POLICY__LEASE__AI_MS` in the environment and `policy.lease.ai_ms` among the flags.
Settings are read once, and every fault is reported at once (SEC-001).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from holdfast.adapters.archive.settings import LEAVES as ARCHIVE
from holdfast.adapters.archive.settings import PATHS as ARCHIVE_PATHS
from holdfast.adapters.archive.settings import ArchiveSettings, ProviderKind
from holdfast.adapters.archive.settings import faults as archive_faults
from holdfast.adapters.kzg.trusted_setup import why_not_installed as why_not_blobs
from holdfast.adapters.objects.settings import LEAVES as OBJECTS
from holdfast.adapters.objects.settings import SharedObjects
from holdfast.adapters.objects.settings import faults as objects_faults
from holdfast.adapters.postgres.settings import LEAVES as POSTGRES
from holdfast.adapters.postgres.settings import PostgresSettings, Secret
from holdfast.api.grpc.settings import LEAVES as GRPC
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.grpc.settings import why_not_open as why_not_grpc
from holdfast.api.http.settings import LEAVES as HTTP
from holdfast.api.http.settings import HttpSettings
from holdfast.api.http.settings import faults as http_faults
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy
from holdfast.core.policy.limits import check_policy
from holdfast.engine.ownership.settings import LEAVES as OWNER
from holdfast.engine.ownership.settings import OwnerSettings
from holdfast.engine.ownership.settings import why_not as why_not_owner
from holdfast.gateway.settings import LEAVES as GATEWAY
from holdfast.gateway.settings import PATHS as GATEWAY_PATHS
from holdfast.gateway.settings import GatewaySettings, why_not_libraries
from holdfast.system.did_you_mean import closest
from holdfast.verifiers.settings import LEAVES as VERIFIERS
from holdfast.verifiers.settings import VerifierSettings

DEFAULT_FILE: Final = Path("holdfast.toml")
"""Read from the working directory when no file is named and it exists."""
ENV_PREFIX: Final = "HOLDFAST_"
CONFIG_VARIABLE: Final = "HOLDFAST_CONFIG"
LOOPBACK: Final = "127.0.0.1"
GATEWAY_TOKEN: Final = "keys/gateway.token"  # noqa: S105 - a file of the data folder
"""The key that a node has at the gateway it runs."""
NOT_SETTINGS: Final = frozenset({CONFIG_VARIABLE, "HOLDFAST_URL", "HOLDFAST_TOKEN", "HOLDFAST_FULL"})
"""Variables that are not settings: the file's name, a client's token, and the test suite's full counts."""


class LogLevel(StrEnum):
    """The least severe message that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Log lines for people or for machines."""

    TEXT = "text"
    JSON = "json"


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What goes to standard error."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


class Store(StrEnum):
    """The database of journal and tables."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a node; network and chain id are inside the policy."""

    data: Path = Path("holdfast-data")
    node: str = "node"
    standby: bool = False
    store: Store = Store.SQLITE
    postgres: PostgresSettings = PostgresSettings()
    http: HttpSettings | None = None
    """None where it is disabled: a node opens no port by default."""
    grpc: GrpcSettings | None = None
    archive: ArchiveSettings = ArchiveSettings()
    objects: SharedObjects = SharedObjects()
    """Where outputs, blobs and journal segments lie when several nodes share them."""
    gateway: GatewaySettings = GatewaySettings()
    """The gateway is a process of its own: `holdfast gateway`, or a child of this node."""
    runs_gateway: bool = False
    """Whether the archive is a gateway that this node runs: archive.provider = gateway."""
    scrub_days: int = 7
    """In how many days all outputs on the disk are read again; 0 does not read them."""
    asrun_folder: Path | None = None
    """The folder of as-run logs of v0.1 channels; None writes none."""
    verifiers: VerifierSettings = VerifierSettings()
    owner: OwnerSettings = OwnerSettings()
    accept_clock: bool = False
    """The operator's word that the machine's clock is right (CAN-006)."""
    log: LogSettings = LogSettings()
    policy: Policy = Policy.for_network(Network.DEVELOPMENT)


def load(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Config | list[Refused]:
    """The configuration, or all of its faults (SEC-001); a flag that is None was not given."""
    refusals: list[Refused] = []
    leaves: dict[str, Any] = {}
    for source in (_from_file(file, environ), _from_environment(environ), _from_flags(flags)):
        for leaf in source:
            if isinstance(leaf, Refused):
                refusals.append(leaf)
            else:
                leaves[leaf[0]] = leaf[1]
    if "postgres.dsn_file" in leaves:
        _read_dsn(leaves, refusals)
    config = _assemble(leaves)
    for fault in check_policy(config.policy):
        path = fault.path if fault.path in LEAVES else f"policy.{fault.path}"
        refusals.append(Refused(fault.rule, f"{path}: {fault.message}", fault.hint, BAD_CONFIG))
    if fault_of_owner := why_not_owner(config.owner):
        refusals.append(_refuse(f"owner.{fault_of_owner}", "heartbeat_ms, then pause_ms, then takeover_ms", ""))
    refusals += _why_not_api(config)
    return refusals or config


def _why_not_api(config: Config) -> Iterator[Refused]:
    for refusal in http_faults(config.http) if config.http is not None else ():
        yield Refused(refusal.rule, f"http.{refusal.message}", refusal.hint, BAD_CONFIG)
    for refusal in archive_faults(config.archive):
        yield Refused(refusal.rule, f"archive.{refusal.message}", refusal.hint, BAD_CONFIG)
    for refusal in objects_faults(config.objects):
        yield Refused(refusal.rule, f"objects.{refusal.message}", refusal.hint, BAD_CONFIG)
    if config.grpc is not None and (why_not := why_not_grpc(config.grpc)) is not None:
        yield Refused(why_not.rule, f"grpc.{why_not.message}", why_not.hint, BAD_CONFIG)


BAD_CONFIG: Final = "BadConfig"


# ------------------------------------------------------------------------------------------------ settings


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
    "accept_clock": bool,
    "network": Network,
    "chain_id": int,
    "store": Store,
    "scrub_days": Annotated[int, msgspec.Meta(ge=0, le=365)],
    "asrun_folder": Annotated[str, msgspec.Meta(min_length=1)],
    **{f"postgres.{name}": kind for name, kind in POSTGRES.items()},
    "http.enabled": bool,
    **{f"http.{name}": kind for name, kind in HTTP.items()},
    "grpc.enabled": bool,
    **{f"grpc.{name}": kind for name, kind in GRPC.items()},
    **{f"archive.{name}": kind for name, kind in ARCHIVE.items()},
    **{f"objects.{name}": kind for name, kind in OBJECTS.items()},
    **{f"gateway.{name}": kind for name, kind in GATEWAY.items()},
    **{f"verifiers.{name}": kind for name, kind in VERIFIERS.items()},
    **{f"owner.{name}": kind for name, kind in OWNER.items()},
    **dict(_leaves_of(LogSettings, "log.")),
    **{path: kind for path, kind in _leaves_of(Policy, "policy.") if path.count(".") == 2},
}
"""Path and type of every setting. Network and chain id are at the top, where a reader looks for them."""

SECRETS: Final = frozenset({"postgres.dsn"})
"""Not in the file, which is copied and committed, and not among the flags, which every user of the machine can read."""

SETTING_TABLES: Final = frozenset(path[:at] for path in LEAVES for at, sign in enumerate(path) if sign == ".")


# ------------------------------------------------------------------------------------------------ reading


def _from_file(file: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, object] | Refused]:
    named = file or (Path(environ[CONFIG_VARIABLE]) if environ.get(CONFIG_VARIABLE) else None)
    source = named or DEFAULT_FILE
    try:
        table = tomllib.loads(source.read_text("utf-8"))
    except FileNotFoundError:
        if named:
            yield _refuse(str(source), "no such file", "name a file that exists, or none for the defaults")
        return
    except (OSError, ValueError) as error:
        yield _refuse(str(source), f"not readable as TOML: {error}", "fix the file, or name another one")
        return
    for path, value in _flatten(table, ""):
        yield _public_leaf(path, value, f"in {source}", strict=True)


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path in SETTING_TABLES:
            yield from _flatten(value, f"{path}.")
        else:
            yield path, value


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, object] | Refused]:
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS:
            path = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            yield _leaf(path, environ[name], f"from {name}", strict=False)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object] | Refused]:
    for path, value in flags.items():
        if value is not None:
            yield _public_leaf(path, str(value) if isinstance(value, Path) else value, "from a flag", strict=False)


def _public_leaf(path: str, value: object, source: str, *, strict: bool) -> tuple[str, object] | Refused:
    """A leaf from a place that others can read: secrets are refused."""
    if path in SECRETS:
        return _refuse(path, "a secret is set in the environment or in a file of its own", f"{source}; {_DSN_HINT}")
    return _leaf(path, value, source, strict=strict)


def _leaf(path: str, value: object, source: str, *, strict: bool) -> tuple[str, object] | Refused:
    if path in SETTING_TABLES:
        return _refuse(path, "a table of settings, not a value", f"{source}; set {_first_setting_in(path)} instead")
    if path not in LEAVES:
        return _refuse(path, "no such setting", f"{source}{_nearest(path)}")
    try:
        return path, msgspec.convert(value, LEAVES[path], strict=strict)
    except msgspec.ValidationError as error:
        return _refuse(path, str(error), source)


def _refuse(path: str, message: str, hint: str) -> Refused:
    return Refused("SEC-001", f"{path}: {message}", hint, BAD_CONFIG)


def _first_setting_in(table: str) -> str:
    return next(path for path in LEAVES if path.startswith(f"{table}."))


def _nearest(path: str) -> str:
    """The setting most likely meant: the same name in another table, else the closest spelling."""
    name = path.rpartition(".")[2]
    same = [known for known in LEAVES if known.rpartition(".")[2] == name]
    nearest = same[0] if same else closest(path, [*LEAVES, *sorted(SETTING_TABLES)])
    return f"; did you mean {nearest}?" if nearest else ""


def _read_dsn(leaves: dict[str, Any], refusals: list[Refused]) -> None:
    """Read the DSN from its file; the environment overrides it."""
    path = Path(leaves["postgres.dsn_file"]).expanduser()
    try:
        leaf = _leaf("postgres.dsn", path.read_text("utf-8").strip(), f"in {path}", strict=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not readable as text"
        leaf = _refuse("postgres.dsn_file", f"{path}: {reason}", "name a file that holds nothing but the DSN")
    if isinstance(leaf, Refused):
        refusals.append(leaf)
    else:
        leaves.setdefault(*leaf)


def why_not_store(config: Config) -> Refused | None:
    """Why journal and tables cannot be opened; commands that only talk to a running node do not ask."""
    if config.store is not Store.POSTGRES:
        return None
    if config.postgres.dsn is None:
        return _refuse("postgres.dsn", "not set", _DSN_HINT)
    if find_spec("asyncpg") is None:
        return _refuse("store", "postgres needs asyncpg, which is not installed", "pip install 'holdfast[postgres]'")
    return None


_DSN_HINT: Final = "set HOLDFAST_POSTGRES__DSN=postgresql://user:password@host/database, or postgres.dsn_file"


# ------------------------------------------------------------------------------------------------ assembling

S = TypeVar("S", bound=msgspec.Struct)


def _assemble(leaves: Mapping[str, Any]) -> Config:
    """Accepted leaves over the network's defaults; a refused leaf keeps its default."""
    base = Config()
    network, chain_id = leaves.get("network", base.policy.network), leaves.get("chain_id", base.policy.chain_id)
    policy = _replaced(Policy.for_network(network, chain_id), leaves, "policy.")
    data = Path(leaves["data"]).expanduser() if "data" in leaves else base.data
    dsn = {"postgres.dsn": Secret(leaves["postgres.dsn"])} if "postgres.dsn" in leaves else {}
    archive = _replaced(base.archive, {**leaves, **_paths(leaves, "archive.", ARCHIVE_PATHS)}, "archive.")
    gateway = _replaced(base.gateway, {**leaves, **_paths(leaves, "gateway.", GATEWAY_PATHS)}, "gateway.")
    return Config(
        data=data,
        node=leaves.get("node", base.node),
        standby=leaves.get("standby", base.standby),
        store=leaves.get("store", base.store),
        scrub_days=leaves.get("scrub_days", base.scrub_days),
        postgres=_replaced(base.postgres, {**leaves, **dsn}, "postgres."),
        http=_api_settings(HttpSettings(), leaves, "http."),
        grpc=_api_settings(GrpcSettings(), leaves, "grpc."),
        archive=_of_own_gateway(archive, gateway, data),
        objects=_replaced(base.objects, leaves, "objects."),
        gateway=gateway,
        runs_gateway=archive.provider is ProviderKind.GATEWAY,
        asrun_folder=Path(leaves["asrun_folder"]).expanduser() if "asrun_folder" in leaves else None,
        verifiers=_replaced(base.verifiers, leaves, "verifiers."),
        owner=_replaced(base.owner, leaves, "owner."),
        accept_clock=leaves.get("accept_clock", base.accept_clock),
        log=_replaced(base.log, leaves, "log."),
        policy=policy,
    )


def _of_own_gateway(archive: ArchiveSettings, gateway: GatewaySettings, data: Path) -> ArchiveSettings:
    """The archive as its users see it: an agent at the gateway's address; none where something is not installed."""
    if archive.provider is not ProviderKind.GATEWAY:
        return archive
    if why_not_own_gateway(gateway) is not None:
        return msgspec.structs.replace(archive, provider=ProviderKind.NONE)
    url, token_file = f"http://{LOOPBACK}:{gateway.port}", data / GATEWAY_TOKEN
    return msgspec.structs.replace(archive, provider=ProviderKind.LOAD_S3, url=url, token_file=token_file)


def gateway_folder(config: Config) -> Path:
    """Of the gateway with these settings, alone or as a node's child."""
    return config.gateway.folder or config.data / "gateway"


def why_not_own_gateway(gateway: GatewaySettings) -> Refused | None:
    """What a node that is to run its own archive lacks: it runs without one, and says so."""
    return why_not_libraries(gateway) or why_not_blobs()


def _api_settings(settings: S, leaves: Mapping[str, Any], prefix: str) -> S | None:
    """The settings of an enabled API, None where it is disabled; files become paths."""
    if not leaves.get(f"{prefix}enabled", False):
        return None
    files = _paths(leaves, prefix, ("certificate", "key", "client_ca"))
    return _replaced(settings, {**leaves, **files}, prefix)


def _paths(leaves: Mapping[str, Any], prefix: str, names: tuple[str, ...]) -> dict[str, Path]:
    return {path: Path(leaves[path]).expanduser() for name in names if (path := f"{prefix}{name}") in leaves}


def _replaced(struct: S, leaves: Mapping[str, Any], prefix: str) -> S:
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        path, value = f"{prefix}{field.name}", getattr(struct, field.name)
        if path in leaves:
            changes[field.name] = leaves[path]
        elif isinstance(value, msgspec.Struct):
            changes[field.name] = _replaced(value, leaves, f"{path}.")
    return msgspec.structs.replace(struct, **changes)

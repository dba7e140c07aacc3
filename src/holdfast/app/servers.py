"""The HTTP and gRPC servers of a node. Their libraries are loaded only where a server is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.certificate import TlsFiles
from holdfast.adapters.keys.signing import verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.node_access import NodeAccess, Principal, why_not_allowed
from holdfast.api.rpc.methods.chain import newest_block
from holdfast.api.rpc.methods.node import node_status
from holdfast.client import HTTP_SOCKET_NAME
from holdfast.config import Config
from holdfast.core.base.errors import Refused
from holdfast.core.key.model import Role
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus

LOCAL_PER_S: Final = 1_000_000
"""The rate of an operator on the node's own machine is not limited."""
FRONT_SUFFIX: Final = ".grpc"
"""Of the socket between gRPC and its front process; its name is the node's, for a standby may share the folder."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.api.grpc.server import GrpcServer, HasTlsMaterial
    from holdfast.api.grpc.settings import GrpcSettings
    from holdfast.api.http.server import HttpServer


def make_http_server(config: Config, access: NodeAccess) -> HttpServer | None:
    """JSON-RPC over HTTP; None where it is not enabled."""
    if config.http is None:
        return None
    from holdfast.api.http.server import HttpServer  # noqa: PLC0415

    return HttpServer(access, MachineClock(), config.http)


def make_local_http_server(config: Config, access: NodeAccess) -> HttpServer:
    """The same HTTP API on a socket of the data folder: a program that can open it is an operator."""
    from holdfast.api.http.server import HttpServer  # noqa: PLC0415
    from holdfast.api.http.settings import HttpSettings  # noqa: PLC0415

    settings = HttpSettings(key_per_s=LOCAL_PER_S, key_burst=LOCAL_PER_S)
    return HttpServer(access, MachineClock(), settings, unix_path=(config.data / HTTP_SOCKET_NAME).absolute())


def make_grpc_server(config: Config, access: NodeAccess, engine: Engine, blobs: WarmStore) -> GrpcServer | None:
    """gRPC with every service of the node; None where it is not enabled."""
    settings = config.grpc
    if settings is None:
        return None
    from holdfast.api.attestation import load_attestors  # noqa: PLC0415
    from holdfast.api.grpc.auth_interceptor import caller  # noqa: PLC0415
    from holdfast.api.grpc.rate_interceptor import ActRateLimiter, UnprovenStreams  # noqa: PLC0415
    from holdfast.api.grpc.server import GrpcServer  # noqa: PLC0415
    from holdfast.api.grpc.services.agent_context import AgentContext  # noqa: PLC0415
    from holdfast.api.grpc.services.evidence import evidence_service  # noqa: PLC0415
    from holdfast.api.grpc.services.node import HeadView, node_service  # noqa: PLC0415
    from holdfast.api.grpc.services.provider import provider_service  # noqa: PLC0415
    from holdfast.api.grpc.services.result import result_service  # noqa: PLC0415
    from holdfast.api.grpc.services.retrovue import retrovue_service  # noqa: PLC0415
    from holdfast.api.limits.evidence_budget import EvidenceBudget  # noqa: PLC0415

    clock = MachineClock()
    authenticator = TokenAuthenticator(access, clock)

    async def authenticate(token: str | None, _: object) -> Principal | Refused:
        return await authenticator.authenticate(token)

    public_reads = config.http is None or config.http.public_reads

    async def head() -> HeadView | Refused:
        if not public_reads and (refusal := why_not_allowed(caller(), "chain.getHead", frozenset(Role))):
            return refusal
        block = await newest_block(access)
        return HeadView(block.height, block.hash, block.time_ms)

    def is_serving() -> bool:
        return access.source.replication_status().status == EngineStatus.RUNNING

    unproven = UnprovenStreams(settings.address_unproven_max)
    budget = EvidenceBudget(clock, settings)
    agents = AgentContext(
        access, engine, blobs, verify, ActRateLimiter(clock, settings), load_attestors(), unproven, budget
    )
    access.evidence_metrics = metrics = EvidenceMetrics()
    services = [
        node_service(lambda: node_status(access), head),
        provider_service(agents),
        result_service(access, public_reads=public_reads),
        evidence_service(agents, metrics),
        retrovue_service(agents, metrics, settings.legacy_evidence),
    ]
    front_path = (config.data / f"{config.node}{FRONT_SUFFIX}").absolute() if settings.front else None
    server = GrpcServer(settings, clock, services, authenticate, is_serving, _tls_loader(settings), front_path)
    agents.close_with(server.closing)
    agents.on_proven = server.on_proven
    if (front := server.front) is not None:
        access.grpc_connections = lambda: front.process.counts
    return server


def _tls_loader(settings: GrpcSettings) -> Callable[[], HasTlsMaterial] | None:
    """Reads the certificate files again whenever they change; None without TLS."""
    certificate, key = settings.certificate, settings.key
    return TlsFiles(certificate, key, settings.client_ca).load if certificate and key else None

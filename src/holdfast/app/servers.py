"""The HTTP and gRPC servers of a node. Their libraries are loaded only where a server is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.certificate import TlsFiles
from holdfast.adapters.keys.signing import verify
from holdfast.adapters.warm_store import WarmStore
from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.evidence.metrics import EvidenceMetrics
from holdfast.api.node_access import NodeAccess, Principal
from holdfast.api.rpc.methods.chain import newest_block
from holdfast.api.rpc.methods.node import node_status
from holdfast.config import Config
from holdfast.core.base.errors import Refused
from holdfast.engine.loop import Engine
from holdfast.engine.outcome import EngineStatus

if TYPE_CHECKING:
    from holdfast.api.grpc.server import GrpcServer
    from holdfast.api.http.server import HttpServer


def make_http_server(config: Config, access: NodeAccess) -> HttpServer | None:
    """JSON-RPC over HTTP; None where it is not enabled."""
    if config.http is None:
        return None
    from holdfast.api.http.server import HttpServer  # noqa: PLC0415

    return HttpServer(access, MachineClock(), config.http)


def make_grpc_server(config: Config, access: NodeAccess, engine: Engine, blobs: WarmStore) -> GrpcServer | None:
    """gRPC with every service of the node; None where it is not enabled."""
    settings = config.grpc
    if settings is None:
        return None
    from holdfast.api.attestation import load_attestors  # noqa: PLC0415
    from holdfast.api.grpc.rate_interceptor import ActRateLimiter  # noqa: PLC0415
    from holdfast.api.grpc.server import GrpcServer  # noqa: PLC0415
    from holdfast.api.grpc.services.agent_context import AgentContext  # noqa: PLC0415
    from holdfast.api.grpc.services.evidence import evidence_service  # noqa: PLC0415
    from holdfast.api.grpc.services.node import HeadView, node_service  # noqa: PLC0415
    from holdfast.api.grpc.services.provider import provider_service  # noqa: PLC0415
    from holdfast.api.grpc.services.result import result_service  # noqa: PLC0415
    from holdfast.api.grpc.services.retrovue import retrovue_service  # noqa: PLC0415

    clock = MachineClock()
    authenticator = TokenAuthenticator(access, clock)

    async def authenticate(token: str | None, _: object) -> Principal | Refused:
        return await authenticator.authenticate(token)

    async def head() -> HeadView:
        block = await newest_block(access)
        return HeadView(block.height, block.hash, block.time_ms)

    def is_serving() -> bool:
        return access.source.replication_status().status == EngineStatus.RUNNING

    agents = AgentContext(access, engine, blobs, verify, ActRateLimiter(clock, settings), load_attestors())
    access.evidence_metrics = metrics = EvidenceMetrics()
    services = [
        node_service(lambda: node_status(access), head),
        provider_service(agents),
        result_service(access),
        evidence_service(agents, metrics),
        retrovue_service(agents, metrics, settings.legacy_evidence),
    ]
    certificate, key = settings.certificate, settings.key
    tls = TlsFiles(certificate, key, settings.client_ca) if certificate and key else None
    server = GrpcServer(settings, clock, services, authenticate, is_serving, tls.load if tls is not None else None)
    agents.close_with(server.closing)
    return server

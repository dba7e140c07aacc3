"""A provider's agent from its settings, and the rotation of its key. The agent's libraries are loaded on use."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.keys.agent_keys import AgentKeys
from holdfast.app.stores import prepare_folder
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import ProviderId

if TYPE_CHECKING:
    from holdfast.agent.executors.registry import ExecutorRegistry
    from holdfast.agent.runner import Agent
    from holdfast.agent.settings import AgentSettings
    from holdfast.agent.transport.node_client import RegistrationStatus
    from holdfast.shipping.node_connection import Tls


def make_agent(
    settings: AgentSettings,
    executors: ExecutorRegistry,
    tls: Tls | None,
    status_listener: Callable[[ProviderId], Callable[[RegistrationStatus], None]],
) -> Agent:
    """An agent; `status_listener` gets the provider's id and returns what is called with each registration status."""
    from holdfast.agent.runner import Agent  # noqa: PLC0415

    prepare_folder(settings.data)
    keys = AgentKeys(settings.data)
    signer = keys.current()
    id_ = keys.provider(signer)
    return Agent(
        settings,
        executors,
        signer,
        MachineClock(),
        secrets.randbelow,
        tls=tls,
        id_=id_,
        on_registration=status_listener(id_),
    )


async def rotate_agent_key(data: Path, node: str, tls: Tls | None) -> tuple[ProviderId, bytes] | Refused:
    """PRV-003: change the key of the agent in this folder. Returns the provider's id and the new public key."""
    from holdfast.agent.leases.work_dir import WorkDir  # noqa: PLC0415
    from holdfast.agent.rotate_key import rotate_key, why_not_rotate  # noqa: PLC0415
    from holdfast.shipping.node_connection import NodeConnection  # noqa: PLC0415

    keys, work = AgentKeys(data), WorkDir(data / "work")
    current = keys.current()
    id_ = keys.provider(current)
    work.open()  # locks the folder: no agent runs here meanwhile
    connection = NodeConnection(node, tls)
    try:
        if not keys.is_rotating and (refusal := why_not_rotate(data, id_)):
            return refusal
        following = keys.prepare_next(current)
        answer = await rotate_key(connection, current, following)
        if isinstance(answer, Refused):
            return answer
        keys.activate_next()
        return id_, following.public
    finally:
        await connection.close()
        work.close()

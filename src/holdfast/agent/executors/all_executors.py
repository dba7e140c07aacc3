"""Everything that an agent offers: what comes with Holdfast, and the provider's own work."""

from __future__ import annotations

from holdfast.agent.executors.built_in import find_built_in
from holdfast.agent.executors.own_work import make_executors
from holdfast.agent.executors.registry import ExecutorRegistry
from holdfast.agent.settings import AgentSettings
from holdfast.core.base.errors import Refused
from holdfast.core.job.spec import RESOURCES


def make_registry(settings: AgentSettings) -> ExecutorRegistry | Refused:
    """The executors of checked settings; Refused where a built-in model is unknown."""
    found = find_built_in(settings.models, circuits=settings.circuits)
    if isinstance(found, Refused):
        return found
    own = make_executors(settings.executors, settings.data, settings.memory_mb)
    slots = {(each.kind.value, each.name): each.slots for each in settings.executors if each.slots}
    resources = {name: getattr(settings, name) for name in RESOURCES}
    return ExecutorRegistry(found | own, resources, slots)

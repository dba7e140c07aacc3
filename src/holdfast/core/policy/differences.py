"""Which settings of two policies differ, and the settings of a policy by their paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.policy import Policy


def settings_of(policy: Policy) -> dict[str, Any]:
    """Every setting by its path: `chain.block_ms`."""
    return dict(flatten(msgspec.to_builtins(policy)))


def flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The values of nested tables with their paths."""
    leaves: list[tuple[str, Any]] = []
    for name, value in table.items():
        is_table = isinstance(value, Mapping)
        leaves += flatten(value, f"{prefix}{name}.") if is_table else [(prefix + name, value)]
    return leaves


def policy_differences(ours: Policy, theirs: Policy) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: path, our value, their value."""
    other = settings_of(theirs)
    return {path: (value, other[path]) for path, value in settings_of(ours).items() if value != other[path]}

"""The methods of proof that a node knows (PRF-002): the built-in ones, and plug-ins by name.

A package plugs in by entry points: `holdfast.verifiers` for whole methods (a function that takes the signature check
and returns a `ProofMethod`), `holdfast.recomputers` for work that `recompute` can compute again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

import structlog

from holdfast.core.base.values import VerifySignature
from holdfast.ports.verifier import ATTESTED, ProofMethod
from holdfast.verifiers.attested import attested_method
from holdfast.verifiers.recompute import recompute_method
from holdfast.verifiers.settings import VerifierSettings
from holdfast.verifiers.traps import traps_method
from holdfast.wire.group_signatures import verify_signature

METHODS_GROUP: Final = "holdfast.verifiers"
RECOMPUTERS_GROUP: Final = "holdfast.recomputers"
_log = structlog.get_logger()


def load_methods(verify: VerifySignature, settings: VerifierSettings) -> Mapping[str, ProofMethod]:
    """All methods by name. Each checks one proof on its own; a quorum of providers is decided elsewhere."""
    verify = partial(verify_signature, verify)  # a proof may be signed as one of a group (PRV-003)
    methods = {
        ATTESTED: attested_method(verify),
        "traps": traps_method(verify, settings.traps_right_ppm),
        "recompute": recompute_method(verify, _load_plugins(RECOMPUTERS_GROUP), settings.recompute_ppm),
    }
    for name, make in _load_plugins(METHODS_GROUP).items():
        if name in methods:
            _log.warning("plugin_ignored", group=METHODS_GROUP, name=name, reason="the name is built in")
            continue
        methods[name] = make(verify)
    return methods


def _load_plugins(group: str) -> dict[str, Any]:
    """The plug-ins of a group. One that cannot be loaded is logged and left out: its jobs have no verifier."""
    loaded: dict[str, Any] = {}
    for entry in entry_points(group=group):
        try:
            loaded[entry.name] = entry.load()
        except Exception as fault:
            _log.warning("plugin_load_failed", group=group, name=entry.name, reason=str(fault))
    return loaded

"""What must hold of API keys after every event (SEC-001)."""

from __future__ import annotations

from holdfast.core.key.model import KeyState


def broken_invariants(state: KeyState) -> list[str]:
    """The invariants of API keys that do not hold."""
    checks = {
        "a key is stored under its own id": all(id_ == key.id for id_, key in state.keys.items()),
        "an old secret of a key has an end": all(
            key.old_secret is None or key.old_until_ms > 0 for key in state.keys.values()
        ),
    }
    return [invariant for invariant, holds in checks.items() if not holds]

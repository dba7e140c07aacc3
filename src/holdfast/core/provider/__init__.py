"""Providers (PRV-001 … PRV-003): who may take work, what they put at stake, how they are.

Read: record, acts, decide, apply.
"""

from holdfast.core.provider.record import provider_id

__all__ = ["provider_id"]

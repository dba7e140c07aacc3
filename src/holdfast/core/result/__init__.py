"""Results (RES-001 … RES-008): an accepted proof resolves a result in a block; it is readable from the next block on
and is consumed once.

Read: ids, model, messages, readability, decide, apply, invariants.
"""

from holdfast.core.result.ids import result_digest, result_hasher

__all__ = ["result_digest", "result_hasher"]

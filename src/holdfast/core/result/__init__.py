"""Results (RES-001 … RES-006, RES-008): resolved in a block, readable from the next. Read: ids, record, apply."""

from holdfast.core.result.ids import result_digest

__all__ = ["result_digest"]

"""Availability of large results (DA-001): a commitment to their bytes, and proofs about parts of them.

Read: shares (bytes to shares), nmt (the tree), proofs (about ranges and namespaces), commit (what a result carries),
sample (how a light client looks without the whole).
"""

from holdfast.core.da.commit import Pinned, commitment_of, namespace_of, pin
from holdfast.core.da.shares import SHARE_BYTES, count_of, split

__all__ = ["SHARE_BYTES", "Pinned", "commitment_of", "count_of", "namespace_of", "pin", "split"]

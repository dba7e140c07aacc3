"""Availability of large results (DA-001): a commitment to their bytes, and proofs about parts of them.

Read: shares (bytes to shares), nmt (the tree), proofs (about ranges and namespaces), commitment (what a result
carries), sample (how a light client checks availability without all the bytes).
"""

from holdfast.lightclient.da.commitment import DaCommitment, commit, commitment_of, namespace_of
from holdfast.lightclient.da.shares import SHARE_BYTES, share_count, split

__all__ = ["SHARE_BYTES", "DaCommitment", "commit", "commitment_of", "namespace_of", "share_count", "split"]

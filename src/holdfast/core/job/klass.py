"""Classes of jobs: jobs that ask the same of a provider are alike to it (LEA-006)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.core.canon import H
from holdfast.core.values import Kind, ProviderId

CLASS_TAG: Final = "holdfast.class.v1"
CLASS_BYTES: Final = 16


@lru_cache(maxsize=4_096)
def job_class(kind: Kind, requirements: bytes) -> bytes:
    """The name of all jobs of this kind with these requirements."""
    return H(CLASS_TAG, kind.encode(), requirements)[:CLASS_BYTES]


def denial_key(provider_id: ProviderId, klass: bytes) -> bytes:
    return provider_id + klass


def denied_until(denials: dict[bytes, int], provider_id: ProviderId, klass: bytes) -> int:
    """LEA-006, RTY-003: until when this provider is passed over for this class; 0 where it is not."""
    return denials.get(provider_id + klass, 0)

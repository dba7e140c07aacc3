"""Classes of jobs: jobs of one kind with the same requirements (LEA-006)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from holdfast.core.base.canonical import H
from holdfast.core.base.values import Kind, ProviderId

CLASS_TAG: Final = "holdfast.class.v1"
CLASS_BYTES: Final = 16


@lru_cache(maxsize=4_096)
def job_class(kind: Kind, requirements: bytes) -> bytes:
    """The id of the class of jobs of this kind with these requirements."""
    return H(CLASS_TAG, kind.encode(), requirements)[:CLASS_BYTES]


def denial_key(provider_id: ProviderId, job_class: bytes) -> bytes:
    return provider_id + job_class


def denied_until(class_denials: dict[bytes, int], provider_id: ProviderId, job_class: bytes) -> int:
    """LEA-006, RTY-003: until when this provider is skipped for this class; 0 where it is not."""
    return class_denials.get(provider_id + job_class, 0)

"""Every knob with its default, in integers, and the one check that names everything wrong with a set of them."""

from holdfast.core.policy.knobs import (
    AdmissionPolicy,
    ArchivePolicy,
    ChainPolicy,
    EnginePolicy,
    EvidencePolicy,
    LeasePolicy,
    MatchOrder,
    MatchPolicy,
    Policy,
    PriorityPolicy,
    ProviderPolicy,
    QuotaPolicy,
    ReadBack,
    ResultPolicy,
    RetryPolicy,
    SpoolPolicy,
    TtlPolicy,
)
from holdfast.core.policy.limits import Fault, faults

__all__ = [
    "AdmissionPolicy",
    "ArchivePolicy",
    "ChainPolicy",
    "EnginePolicy",
    "EvidencePolicy",
    "Fault",
    "LeasePolicy",
    "MatchOrder",
    "MatchPolicy",
    "Policy",
    "PriorityPolicy",
    "ProviderPolicy",
    "QuotaPolicy",
    "ReadBack",
    "ResultPolicy",
    "RetryPolicy",
    "SpoolPolicy",
    "TtlPolicy",
    "faults",
]

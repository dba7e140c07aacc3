"""Every policy setting with its default, in integers, and the one check that names everything wrong with them."""

from holdfast.core.policy.limits import SettingFault, check_policy
from holdfast.core.policy.settings import (
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

__all__ = [
    "AdmissionPolicy",
    "ArchivePolicy",
    "ChainPolicy",
    "EnginePolicy",
    "EvidencePolicy",
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
    "SettingFault",
    "SpoolPolicy",
    "TtlPolicy",
    "check_policy",
]

"""Seeded faults about providers: status transitions, health, revocation, slashing, and registration."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

APPLY, HEALTH, MODEL, SLA = (f"core/provider/{name}.py" for name in ("apply", "health", "model", "sla"))
NONCES, INCLUDE = "api/grpc/services/nonces.py", "core/workflows/include.py"
LIFE_TESTS, HEALTH_TESTS, SLASHING_TESTS = (
    f"tests/core/provider/test_{name}.py" for name in ("provider_life", "provider_health", "slashing")
)
REVOCATION_TESTS, REGISTRATION_TESTS = (
    "tests/core/lease/test_revocation.py",
    "tests/api/grpc/test_provider_registration.py",
)

PROVIDERS: Final = [
    Mutant(
        "a retired provider has a transition to jailed",
        MODEL,
        "    ProviderStatus.RETIRED: {},\n",
        "    ProviderStatus.RETIRED: {ProviderTransition.JAIL: ProviderStatus.JAILED},\n",
        f"{LIFE_TESTS} -k every_arrow",
    ),
    Mutant(
        "a cooldown begins during another one",
        APPLY,
        " and event.at_ms >= provider.cooling_until_ms:",
        ":",
        f"{HEALTH_TESTS} -k starts_no_other",
    ),
    Mutant(
        "cooldowns do not double",
        APPLY,
        "event.cooldown_ms << min(provider.cooldowns, 62)",
        "event.cooldown_ms",
        f"{HEALTH_TESTS} -k twice_as_long",
    ),
    Mutant(
        "a reward for a provider in full health makes an event",
        HEALTH,
        "    if provider.health_ppm == HEALTH_MAX_PPM and not provider.cooldowns:\n",
        "    if False:\n",
        f"{HEALTH_TESTS} -k costs_no_event",
    ),
    Mutant(
        "a heartbeat counts as missed without a grace period",
        HEALTH,
        " * rules.heartbeat_ms + rules.heartbeat_grace_ms",
        " * rules.heartbeat_ms",
        f"{HEALTH_TESTS} -k grace",
    ),
    Mutant(
        "heartbeats that come too often raise health",
        HEALTH,
        "    if missing_ppm <= 0 or is_early:\n",
        "    if missing_ppm <= 0:\n",
        f"{HEALTH_TESTS} -k come_often",
    ),
    Mutant(
        "heartbeats reactivate a provider that an operator suspended",
        "core/provider/decide.py",
        "provider.status is ProviderStatus.SUSPENDED and provider.status_changed_by == SYSTEM_ACTOR",
        "provider.status is ProviderStatus.SUSPENDED",
        f"{HEALTH_TESTS} -k operator_suspended",
    ),
    Mutant(
        "an outage of the node counts against heartbeats",
        APPLY,
        "            provider.heartbeat_ms += event.outage_ms\n",
        "",
        f"{HEALTH_TESTS} -k could_not_hear",
    ),
    Mutant(
        "an outage is credited to a heartbeat that was stale before",
        APPLY,
        "        if went_down_ms - event.stale_ms < provider.heartbeat_ms <= went_down_ms:\n",
        "        if provider.heartbeat_ms <= went_down_ms:\n",
        f"{HEALTH_TESTS} -k stays_stale",
    ),
    Mutant(
        "a lease with a submission is revoked",
        "core/lease/decide.py",
        " if lease.submitted is None]",
        "]",
        f"{REVOCATION_TESTS} -k left_to_its_verdict",
    ),
    Mutant(
        "a provider jailed for an offence keeps its leases",
        HEALTH,
        "    if (is_out and provider.leases) or (",
        "    if (",
        f"{REVOCATION_TESTS} -k loses_its_leases",
    ),
    Mutant(
        "a revoked lease counts as a failure",
        "core/lease/messages.py",
        "        is_failure=False,\n        not_before_ms=now_ms + wait_ms,\n",
        "        is_failure=True,\n        not_before_ms=now_ms + wait_ms,\n",
        f"{REVOCATION_TESTS} -k without_blame",
    ),
    Mutant(
        "locked stake is released by time alone",
        "core/workflows/revoke.py",
        "    is_locked = state.open_height < provider.unstake_height or now_ms < provider.unstake_ms\n",
        "    is_locked = now_ms < provider.unstake_ms\n",
        f"{LIFE_TESTS} -k both_its_blocks",
    ),
    Mutant(
        "locked stake is not slashed",
        SLA,
        "    return Amount(provider.at_stake * share_ppm",
        "    return Amount(provider.stake * share_ppm",
        f"{SLASHING_TESTS} -k what_is_locked",
    ),
    Mutant(
        "a repeated offence has the penalty of a first one",
        SLA,
        "    return again if is_again else first\n",
        "    return first\n",
        f"{SLASHING_TESTS} -k graver",
    ),
    Mutant(
        "the block that includes a slash does not charge it",
        INCLUDE,
        "    TxKind.SLASH: _include_slashes,\n",
        "",
        f"{SLASHING_TESTS} -k pending_until",
    ),
    Mutant(
        "a new offence shortens a permanent jail",
        SLA,
        "is ProviderStatus.JAILED and provider.jailed_until:",
        "is ProviderStatus.JAILED:",
        f"{SLASHING_TESTS} -k for_good",
    ),
    Mutant(
        "the minimum stake is withdrawn during active leases",
        "core/provider/operator_actions.py",
        "        (not (is_short and provider.leases),",
        "        (True,",
        f"{LIFE_TESTS} -k with_active_leases",
    ),
    Mutant(
        "an old signing key is accepted",
        MODEL,
        "    if known is None or known.signing_key == public:\n",
        "    if True:\n",
        f"{REGISTRATION_TESTS} -k change_of_the_key",
    ),
    Mutant(
        "a nonce is valid for every key",
        NONCES,
        "        return hmac.digest(self._secret, head + public,",
        "        return hmac.digest(self._secret, head,",
        f"{REGISTRATION_TESTS} -k good_for_its_key",
    ),
    Mutant(
        "a nonce can be used twice",
        NONCES,
        '        self._used[nonce] = int.from_bytes(nonce[:8], "big")\n',
        "",
        f"{REGISTRATION_TESTS} -k and_once",
    ),
    Mutant(
        "the claims of an attestation are not checked",
        "api/attestation.py",
        "            attestation.claims == capabilities_digest(capabilities),\n",
        "            True,\n",
        f"{REGISTRATION_TESTS} -k attestation_is_named",
    ),
    Mutant(
        "a key rotation needs no signature of the new key",
        "api/grpc/services/provider.py",
        "        if is_rotated and not await",
        "        if False and not await",
        f"{REGISTRATION_TESTS} -k both_have_signed",
    ),
]

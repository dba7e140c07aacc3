"""Seeded faults in what is done about providers: their health, their steps, their leases, and what they can lose."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

APPLY, HEALTH, MOVES, SLA = (f"core/provider/{name}.py" for name in ("apply", "health", "moves", "sla"))
DECIDE, OUSTING, RECORD = "core/provider/decide.py", "core/lease/ousting.py", "core/provider/record.py"
LIFE, WELL = "tests/core/test_provider_life.py", "tests/core/test_provider_health.py"
SLASHING, OUSTED = "tests/core/test_slashing.py", "tests/core/test_ousting.py"
STANDING = "tests/doors/test_provider_standing.py"

PROVIDERS: Final = [
    Mutant(
        "an arrow too many",
        RECORD,
        "    ProviderStatus.RETIRED: {},\n",
        "    ProviderStatus.RETIRED: {ProviderAct.JAIL: ProviderStatus.JAILED},\n",
        f"{LIFE} -k every_arrow",
    ),
    Mutant(
        "a cooldown begins while one lasts",
        APPLY,
        " and event.at_ms >= provider.cooling_until_ms:",
        ":",
        f"{WELL} -k starts_no_other",
    ),
    Mutant(
        "cooldowns do not double",
        APPLY,
        "event.cooldown_ms << min(provider.cooldowns, 62)",
        "event.cooldown_ms",
        f"{WELL} -k twice_as_long",
    ),
    Mutant(
        "praise for who is well costs an event",
        HEALTH,
        "    if provider.health_ppm == HEALTH_WHOLE and not provider.cooldowns:\n",
        "    if False:\n",
        f"{WELL} -k costs_no_event",
    ),
    Mutant(
        "a heartbeat counts as missed without grace",
        HEALTH,
        " * rules.heartbeat_ms + rules.heartbeat_grace_ms",
        " * rules.heartbeat_ms",
        f"{WELL} -k grace",
    ),
    Mutant(
        "heartbeats heal as often as they come",
        HEALTH,
        "    if lacks <= 0 or is_early:\n",
        "    if lacks <= 0:\n",
        f"{WELL} -k come_often",
    ),
    Mutant(
        "heartbeats bring back whom an operator suspended",
        DECIDE,
        "provider.status is ProviderStatus.SUSPENDED and provider.moved_by == ITSELF",
        "provider.status is ProviderStatus.SUSPENDED",
        f"{WELL} -k operator_suspended",
    ),
    Mutant(
        "the node's absence is not forgiven",
        APPLY,
        "            provider.heartbeat_ms += event.outage_ms\n",
        "",
        f"{WELL} -k could_not_hear",
    ),
    Mutant(
        "a stale heartbeat is forgiven too",
        APPLY,
        "        if went_down_ms - event.stale_ms < provider.heartbeat_ms <= went_down_ms:\n",
        "        if provider.heartbeat_ms <= went_down_ms:\n",
        f"{WELL} -k stays_stale",
    ),
    Mutant(
        "what was handed in is taken away",
        OUSTING,
        " if lease.submitted is None]",
        "]",
        f"{OUSTED} -k left_to_its_verdict",
    ),
    Mutant(
        "who is jailed for an offence keeps its leases",
        HEALTH,
        "    if (is_out and provider.leases) or (",
        "    if (",
        f"{OUSTED} -k loses_its_leases",
    ),
    Mutant(
        "losing work to jail counts as a failure",
        "core/lease/acts.py",
        "reason, now_ms, False, not_before_ms)",
        "reason, now_ms, True, not_before_ms)",
        f"{OUSTED} -k without_blame",
    ),
    Mutant(
        "locked stake is free by time alone",
        OUSTING,
        "    is_locked = state.open_height < provider.unstake_height or now_ms < provider.unstake_ms\n",
        "    is_locked = now_ms < provider.unstake_ms\n",
        f"{LIFE} -k both_its_blocks",
    ),
    Mutant(
        "locked stake cannot be lost",
        SLA,
        "    return Amount(provider.at_stake * share_ppm",
        "    return Amount(provider.stake * share_ppm",
        f"{SLASHING} -k what_is_locked",
    ),
    Mutant(
        "another offence is never graver",
        SLA,
        "    return again if is_again else first\n",
        "    return first\n",
        f"{SLASHING} -k graver",
    ),
    Mutant(
        "a slash is not made again after a reorg",
        "core/law.py",
        "    TxKind.SLASH: lambda state, tx: enlist.slash_again(state, ProviderId(tx.subject), tx.number),\n",
        "",
        f"{SLASHING} -k taken_back",
    ),
    Mutant(
        "an offence lets out who sits for good",
        SLA,
        " if provider.jailed_until else 0\n",
        "\n",
        f"{SLASHING} -k for_good",
    ),
    Mutant(
        "the minimum is taken back under live leases",
        MOVES,
        "        (not (is_short and provider.leases),",
        "        (True,",
        f"{LIFE} -k leases_in_hand",
    ),
    Mutant(
        "an old key still signs",
        RECORD,
        "    if known is None or known.signing_key == public:\n",
        "    if True:\n",
        f"{STANDING} -k change_of_the_key",
    ),
    Mutant(
        "a nonce is good for every key",
        "doors/grpc/challenge.py",
        "        return hmac.digest(self._secret, head + public,",
        "        return hmac.digest(self._secret, head,",
        f"{STANDING} -k good_for_its_key",
    ),
    Mutant(
        "a nonce is good twice",
        "doors/grpc/challenge.py",
        '        self._used[nonce] = int.from_bytes(nonce[:8], "big")\n',
        "",
        f"{STANDING} -k and_once",
    ),
    Mutant(
        "claims of an attestation are not compared",
        "doors/attesting.py",
        "        (told.claims == support_of(capabilities),",
        "        (True,",
        f"{STANDING} -k attestation_is_named",
    ),
    Mutant(
        "a change of the key needs no new key",
        "doors/grpc/provider.py",
        "        if is_rotated and not await",
        "        if False and not await",
        f"{STANDING} -k both_have_signed",
    ),
]

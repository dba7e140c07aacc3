"""Seeded faults in how evidence is taken, compared, buried, ended and let go of."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

MARKS, SESSIONS, LETTERS = "core/evidence/marks.py", "core/evidence/sessions.py", "core/evidence/letters.py"
INTAKE, LEGACY, RECORDS = "doors/grpc/intake.py", "doors/grpc/legacy.py", "doors/records.py"
CORE, CONFLICTS = "tests/core/test_evidence.py", "tests/doors/test_evidence_conflicts.py"
OLDER, BURIED = "tests/doors/test_evidence_legacy.py", "tests/doors/test_evidence_letters.py"

EVIDENCE: Final = [
    Mutant(
        "what is below the mark is not compared",
        INTAKE,
        "            if known and (no := await self._why_not_again(first, lines[:known])):\n",
        "            if known < 0 and (no := await self._why_not_again(first, lines[:known])):\n",
        f"{CONFLICTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a conflict is told and the rest is taken all the same",
        INTAKE,
        'begin a new session", "SequenceConflict")',
        'begin a new session", "EvidenceGap")',
        f"{CONFLICTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "the newest of the journal is not looked at",
        "doors/stored.py",
        "        async for stretch in self._not_in_tables(as_of):\n",
        "        async for stretch in self._not_in_tables(EventNo(as_of + 1_000_000)):\n",
        f"{CONFLICTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a record is compared by its sequence alone",
        RECORDS,
        "        return before.event_uuid == _decode(line).event_uuid\n",
        "        return before.sequence == _decode(line).sequence\n",
        f"{CONFLICTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a line that is no record leaves a hole",
        RECORDS,
        "            found.lines.append(stand_in(who, dead))\n",
        "            found.lines.append(b'')\n",
        f"{BURIED} -k stops_nothing",
    ),
    Mutant(
        "another schema is taken",
        RECORDS,
        "    if seen.schema_version != 1:\n",
        "    if seen.schema_version > 9:\n",
        f"{BURIED} -k stops_nothing",
    ),
    Mutant(
        "dead letters have no bound",
        LETTERS,
        "    if not dead or state.buried.get(channel, 0) + len(dead) <= most:\n",
        "    if not dead or len(dead) <= most + 1:\n",
        f"{BURIED} -k has_a_bound",
    ),
    Mutant(
        "a refused ask releases its letter",
        LETTERS,
        "    if isinstance(asked, Refused):\n        return asked\n",
        "    if isinstance(asked, Refused):\n        asked = Decided(())\n",
        f"{CORE} -k leaves_its_letter",
    ),
    Mutant(
        "a fence alone makes a session final",
        MARKS,
        "    return mark.ending == Ending.TERMINATED or mark.sealed_ms > 0\n",
        "    return mark.ending > 0 or mark.sealed_ms > 0\n",
        f"{CORE} -k final_by_its_last_record",
    ),
    Mutant(
        "what comes after an end leaves it final",
        MARKS,
        "        mark.ending, mark.at_ms, mark.sealed_ms = event.ending, event.at_ms, 0\n",
        "        mark.ending, mark.at_ms = event.ending, event.at_ms\n",
        f"{CORE} -k open_again",
    ),
    Mutant(
        "an old event gets a new effect",
        MARKS,
        "    if event.at_ms:  # whatever",
        "    mark.at_ms = 1\n    if event.at_ms:  # whatever",
        f"{CORE} -k folds_to_the_digest",
    ),
    Mutant(
        "evidence is pruned a day too soon",
        SESSIONS,
        "    if now_ms < (due_ms := prunable_ms(mark, retain_days)):\n",
        "    if now_ms < (due_ms := prunable_ms(mark, retain_days)) - 1:\n",
        f"{CORE} -k as_long_as_policy_says",
    ),
    Mutant(
        "what is not final is pruned",
        SESSIONS,
        "    if not is_final(mark):\n",
        "    if mark.acked == 0:\n",
        f"{CORE} -k still_holds",
    ),
    Mutant(
        "a hello of v0.1 is answered with 0",
        LEGACY,
        "        return await tell(self._context, _ack_of(whose, known.intake.mark))\n",
        "        return await tell(self._context, _ack_of(whose, 0))\n",
        f"{OLDER} -k true_mark",
    ),
    Mutant(
        "a v0.1 sender may use a provider's channel",
        MARKS,
        "        if is_providers(command.channel):\n",
        "        if is_providers(command.session):\n",
        f"{CORE} -k out_of_range",
    ),
    Mutant(
        "any certificate opens any channel",
        LEGACY,
        "        if shown is None or shown.name != owner:\n",
        "        if shown is None:\n",
        f"{OLDER} -k with_mtls",
    ),
    Mutant(
        "v0.1 is heard unless it is forbidden",
        LEGACY,
        "        ended = _OFF if self._mode is LegacyEvidence.OFF else await self._served(context)\n",
        "        ended = await self._served(context)\n",
        f"{OLDER} -k unless_the_operator",
    ),
]

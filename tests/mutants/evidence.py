"""Seeded faults in storing, comparing, rejecting, sealing and pruning evidence."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

WATERMARKS, SESSIONS, DEAD_LETTERS, MODEL = (
    f"core/evidence/{name}.py" for name in ("watermarks", "sessions", "dead_letters", "model")
)
INGEST, RETROVUE = "api/evidence/ingest.py", "api/grpc/services/retrovue.py"
VALIDATION, READER = "api/evidence/validation.py", "api/evidence/reader.py"
CORE_TESTS, RETROVUE_TESTS = "tests/core/evidence/test_evidence.py", "tests/api/evidence/test_retrovue_service.py"
CONFLICT_TESTS, DEAD_LETTER_TESTS = (
    f"tests/api/evidence/test_evidence_{name}.py" for name in ("conflicts", "dead_letters")
)

EVIDENCE: Final = [
    Mutant(
        "records below the watermark are not compared",
        INGEST,
        "            if known and (refusal := await self._check_duplicates(first, lines[:known])):\n",
        "            if known < 0 and (refusal := await self._check_duplicates(first, lines[:known])):\n",
        f"{CONFLICT_TESTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a sequence conflict is reported under another name",
        INGEST,
        'begin a new session", "SequenceConflict"\n',
        'begin a new session", "EvidenceGap"\n',
        f"{CONFLICT_TESTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "events that are not in the tables yet are not compared",
        READER,
        "        async for run in self._not_in_tables(as_of):\n",
        "        async for run in self._not_in_tables(EventNo(as_of + 1_000_000)):\n",
        f"{CONFLICT_TESTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a record is compared only by its sequence",
        VALIDATION,
        "        return before.event_uuid == _decode(line).event_uuid\n",
        "        return before.sequence == _decode(line).sequence\n",
        f"{CONFLICT_TESTS} -k conflict_and_the_ack_stays",
    ),
    Mutant(
        "a rejected line has no placeholder",
        VALIDATION,
        "            validated.lines.append(placeholder(sender, rejected))\n",
        "            validated.lines.append(b'')\n",
        f"{DEAD_LETTER_TESTS} -k stops_nothing",
    ),
    Mutant(
        "another schema version is accepted",
        VALIDATION,
        "    if fields.schema_version != 1:\n",
        "    if fields.schema_version > 9:\n",
        f"{DEAD_LETTER_TESTS} -k stops_nothing",
    ),
    Mutant(
        "dead letters are not limited",
        DEAD_LETTERS,
        "    if not rejected or state.dead_letters_waiting.get(channel, 0) + len(rejected) <= most:\n",
        "    if not rejected or len(rejected) <= most + 1:\n",
        f"{DEAD_LETTER_TESTS} -k has_a_bound",
    ),
    Mutant(
        "a refused retry resolves its dead letter",
        DEAD_LETTERS,
        "    if isinstance(retried, Refused):\n        return retried\n",
        "    if isinstance(retried, Refused):\n        retried = Decided(())\n",
        f"{CORE_TESTS} -k leaves_its_dead_letter",
    ),
    Mutant(
        "a fence alone makes a session final",
        MODEL,
        "    return watermark.ending == SessionEnd.TERMINATED or watermark.sealed_ms > 0\n",
        "    return watermark.ending > 0 or watermark.sealed_ms > 0\n",
        f"{CORE_TESTS} -k final_by_its_last_record",
    ),
    Mutant(
        "records after the end of a session leave it final",
        WATERMARKS,
        "        watermark.ending, watermark.at_ms, watermark.sealed_ms = event.ending, event.at_ms, 0\n",
        "        watermark.ending, watermark.at_ms = event.ending, event.at_ms\n",
        f"{CORE_TESTS} -k open_again",
    ),
    Mutant(
        "an event without a time has the effect of one with it",
        WATERMARKS,
        "    if event.at_ms:  # ",
        "    watermark.at_ms = 1\n    if event.at_ms:  # ",
        f"{CORE_TESTS} -k have_no_effect",
    ),
    Mutant(
        "evidence is pruned a millisecond too early",
        SESSIONS,
        "    if now_ms < (due_ms := prunable_ms(watermark, retain_days)):\n",
        "    if now_ms < (due_ms := prunable_ms(watermark, retain_days)) - 1:\n",
        f"{CORE_TESTS} -k as_long_as_policy_says",
    ),
    Mutant(
        "a session that is not final is pruned",
        SESSIONS,
        "    if not is_final(watermark):\n",
        "    if watermark.acked == 0:\n",
        f"{CORE_TESTS} -k still_holds",
    ),
    Mutant(
        "a hello of v0.1 is answered with 0",
        RETROVUE,
        "        return await write_within(self._context, _ack_of(key, session.ingest.acked))\n",
        "        return await write_within(self._context, _ack_of(key, 0))\n",
        f"{RETROVUE_TESTS} -k true_watermark",
    ),
    Mutant(
        "a v0.1 sender may use a provider's channel",
        WATERMARKS,
        "        if is_provider_channel(command.channel):\n",
        "        if is_provider_channel(command.session):\n",
        f"{CORE_TESTS} -k out_of_range",
    ),
    Mutant(
        "any certificate may use any channel",
        RETROVUE,
        "        if certificate is None or certificate.name != owner:\n",
        "        if certificate is None:\n",
        f"{RETROVUE_TESTS} -k with_mtls",
    ),
    Mutant(
        "v0.1 senders are accepted although they are disabled",
        RETROVUE,
        "        refusal = _DISABLED if self._mode is LegacyEvidence.OFF else await self._serve(context)\n",
        "        refusal = await self._serve(context)\n",
        f"{RETROVUE_TESTS} -k unless_the_operator",
    ),
]

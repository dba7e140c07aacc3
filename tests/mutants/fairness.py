"""Seeded faults in fairness and privacy: prices, claims of invalid inputs, second digests, who sees what."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CLAIMS, COMMANDS = "core/lease/input_claims.py", "api/evidence/commands.py"
CLAIM_TESTS, EVIDENCE_TESTS = "tests/core/lease/test_input_claims.py", "tests/api/evidence/test_evidence_commands.py"
UPLOAD_TESTS = "tests/api/grpc/test_output_upload.py"

FAIRNESS: Final = [
    Mutant(
        "a job is given to who asks more than its fee pays",
        "core/match/provider_index.py",
        "if price_of(profile, requirements) <= pays and why_not_able(",
        "if why_not_able(",
        "tests/core/match/test_match.py -k too_expensive",
    ),
    Mutant(
        "two claims of one account end a job",
        CLAIMS,
        "accounts = {claimant.account for",
        "accounts = {claimant.id for",
        f"{CLAIM_TESTS} -k one_account",
    ),
    Mutant(
        "the node's own word on an input is not asked for",
        COMMANDS,
        "is_input_valid=await node.in_pool(is_input_valid, payload)",
        "is_input_valid=None",
        f"{EVIDENCE_TESTS} -k node_itself",
    ),
    Mutant(
        "another digest after the verdict is only late",
        "core/proof/decide.py",
        "    if ended is not None and ended.submitted not in (None, body.output_digest):\n",
        "    if False:\n",
        "tests/core/lease/test_submitted_lease.py -k after_the_verdict",
    ),
    Mutant(
        "a digest without its bytes does not count against the one that came with it",
        COMMANDS,
        "    plan.commands += _contradictions(sender, completed, plan)\n",
        "",
        f"{EVIDENCE_TESTS} -k sent_at_once",
    ),
    Mutant(
        "everybody sees the whole job",
        "api/visibility.py",
        "    return View.OPEN if record.is_public else View.CHAIN\n",
        "    return View.WHOLE\n",
        "tests/api/test_visibility.py",
    ),
    Mutant(
        "an output is held for a lease that has not sent it",
        "api/grpc/services/output_upload.py",
        "if agents.output_limit.has_arrived(lease_id, digest) and await",
        "if await",
        f"{UPLOAD_TESTS} -k another_lease",
    ),
    Mutant(
        "a completion names bytes that another lease has sent",
        "api/completion.py",
        "not await blobs.was_sent(body.lease_id, body.output_digest)",
        "False",
        f"{UPLOAD_TESTS} -k another_lease_has_sent_is_refused",
    ),
]

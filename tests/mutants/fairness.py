"""Seeded faults in fairness and privacy: prices, claims of invalid inputs, second digests, who sees what, who waits."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CLAIMS, COMMANDS = "core/lease/input_claims.py", "api/evidence/commands.py"
CLAIM_TESTS, EVIDENCE_TESTS = "tests/core/lease/test_input_claims.py", "tests/api/evidence/test_evidence_commands.py"
UPLOAD_TESTS = "tests/api/grpc/test_output_upload.py"
LONG_TESTS, VISIBILITY_TESTS = "tests/api/rpc/test_long_answers.py", "tests/api/test_visibility.py"

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
    Mutant(
        "a long list is shown at once",
        "api/rpc/jsonrpc.py",
        "        await asyncio.sleep(0)\n    return shown\n",
        "    return shown\n",
        f"{LONG_TESTS} -k long_list",
    ),
    Mutant(
        "proofs are made side by side",
        "api/rpc/methods/results.py",
        "        async with access.long_turn:\n",
        "        if True:\n",
        f"{LONG_TESTS} -k proofs",
    ),
    Mutant(
        "all subscribers read old events at once",
        "api/http/event_fanout.py",
        "        async with self._history_turn:\n",
        "        if True:\n",
        f"{LONG_TESTS} -k old_events",
    ),
    Mutant(
        "a list of a thousand rows counts as one request",
        "api/http/gateway.py",
        " + sum(cost_of_page(each.params) for each in asked)",
        "",
        "tests/api/http/test_http_limits.py -k takes_long_to_answer",
    ),
    Mutant(
        "slices of the log are kept that a reorg can change",
        "engine/proofs.py",
        "if stop - start == SLICE and stop <= final_size:",
        "if stop - start == SLICE:",
        "tests/lightclient/test_log_proof.py -k final",
    ),
    Mutant(
        "another tenant reads a log",
        "api/http/v1/log_endpoint.py",
        "        if job is None or view_of(principal, job) is not View.WHOLE:",
        "        if job is None:",
        "tests/api/http/v1/test_log_endpoint.py -k caller",
    ),
    Mutant(
        "another tenant gets the key of a result",
        "api/rpc/methods/blobs.py",
        "    if isinstance(result, Refused):\n        return result\n    if result.is_public:",
        "    result = await queries.result(access.source, params.task_id)\n    if result.is_public:",
        f"{VISIBILITY_TESTS} -k stranger_sees",
    ),
    Mutant(
        "others are told what was submitted for a public job",
        "api/public_events.py",
        "return every - SUBMITTED_FIELDS if view",
        "return every if view",
        f"{VISIBILITY_TESTS} -k before_its_block",
    ),
    Mutant(
        "a result lives longer where it was resolved late",
        "core/proof/decide.py",
        "    expires_at = job.expires_height or job.height + ",
        "    expires_at = state.open_height + ",
        "tests/api/rpc/methods/test_methods_results.py -k however_late",
    ),
    Mutant(
        "claims end a job whose output waits for its verdict",
        CLAIMS,
        "    if not is_enough or any(each.submitted is not None for each in quorum.live_leases(state, requested)):",
        "    if not is_enough:",
        f"{CLAIM_TESTS} -k judged_before",
    ),
    Mutant(
        "a job with an input is admitted to be computed again",
        "core/job/spec.py",
        "    if parsed.input is not None:",
        "    if False:",
        "tests/api/rpc/test_admission.py -k no_verifier",
    ),
]

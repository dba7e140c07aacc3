"""Seeded faults in the domains chain, queue and key, in queries of them, and in the proposer."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CHAIN_APPLY, CHAIN_DECIDE, CHAIN_MODEL = (f"core/chain/{name}.py" for name in ("apply", "decide", "model"))
QUEUE_DECIDE, QUEUE_APPLY, AUTHENTICATE = "core/queue/decide.py", "core/queue/apply.py", "core/key/authenticate.py"
CHAIN_TESTS, QUEUE_TESTS, KEY_TESTS = (
    "tests/core/chain/test_chain.py",
    "tests/core/queue/test_queue.py",
    "tests/core/key/test_keys.py",
)

CHAIN_AND_QUEUE: Final = [
    Mutant(
        "transactions that were rolled back come after newer ones",
        CHAIN_APPLY,
        "    chain.open.txs = orphaned.txs + chain.open.txs\n",
        "    chain.open.txs = chain.open.txs + orphaned.txs\n",
        f"{CHAIN_TESTS} -k before_what_is_newer",
    ),
    Mutant(
        "a rollback keeps the effects of the open block",
        CHAIN_DECIDE,
        '[BlockRolledBack(Height(chain.head.height + 1), b"")]',
        "[]",
        f"{CHAIN_TESTS} -k open_block_refunded",
    ),
    Mutant(
        "a refund is not applied again after a reorg",
        "core/workflows/roll_back.py",
        "    TxKind.CANCELLATION: chain_apply.reapply_refund,\n",
        "",
        f"{CHAIN_TESTS} -k made_again_in_the_next",
    ),
    Mutant(
        "a block is final one block too early",
        CHAIN_DECIDE,
        "Height(header.height - state.policy.chain.finality_depth)",
        "Height(header.height - max(0, state.policy.chain.finality_depth - 1))",
        f"{CHAIN_TESTS} -k not_one_sooner",
    ),
    Mutant(
        "a rollback reaches one block below the final height",
        CHAIN_DECIDE,
        "    if to < (final := final_height(state)):\n",
        "    if to + 1 < (final := final_height(state)):\n",
        f"{CHAIN_TESTS} -k never_below",
    ),
    Mutant(
        "a header begins at the last event of its parent",
        CHAIN_MODEL,
        "        first_event=EventNo(head.last_event + 1),\n",
        "        first_event=EventNo(max(1, head.last_event)),\n",
        "tests/core/chain/test_block_headers.py -k names_the_events",
    ),
    Mutant(
        "a header omits its last event",
        CHAIN_MODEL,
        "        last_event=last_event,\n",
        "        last_event=EventNo(last_event - 1),\n",
        "tests/core/chain/test_block_headers.py -k names_the_events",
    ),
    Mutant(
        "a beacon comes from the parent's beacon instead of its signature",
        CHAIN_MODEL,
        "beacon_after(head.signature)",
        "beacon_after(head.beacon)",
        "tests/core/chain/test_block_headers.py -k beacon",
    ),
    Mutant(
        "the fold does not verify headers",
        CHAIN_APPLY,
        "    if (header_hash(header), header.height) != (event.hash, event.height):\n",
        "    if False:\n",
        f"{CHAIN_TESTS} -k events_do_not_give",
    ),
    Mutant(
        "the result log keeps the results of orphaned blocks",
        CHAIN_APPLY,
        "    chain.open, chain.log = OpenBlock(), copy_frontier(_last_sealed(state).log)\n",
        "    chain.open = OpenBlock()\n",
        "tests/core/chain/test_block_headers.py -k the_log_holds",
    ),
    Mutant(
        "an idempotency key is not stored",
        QUEUE_APPLY,
        "    if event.idempotency:\n",
        "    if False:\n",
        f"{QUEUE_TESTS} -k counts_for_a_day",
    ),
    Mutant(
        "an idempotency key is valid a millisecond too long",
        QUEUE_DECIDE,
        "        if known is None or self._now_ms >= known.until_ms:\n",
        "        if known is None or self._now_ms > known.until_ms:\n",
        f"{QUEUE_TESTS} -k counts_for_a_day",
    ),
    Mutant(
        "another request with a used idempotency key is accepted",
        QUEUE_DECIDE,
        "        if known.checksum == idempotent_request(command.fingerprint, 0).checksum:\n",
        "        if True:\n",
        f"{QUEUE_TESTS} -k for_another_request",
    ),
    Mutant(
        "the queue admits one job too many",
        QUEUE_DECIDE,
        "    if depth + more > policy.queue_depth_max:\n",
        "    if depth > policy.queue_depth_max:\n",
        f"{QUEUE_TESTS} -k full_queue",
    ),
    Mutant(
        "back-pressure begins one job too late",
        QUEUE_DECIDE,
        "    return max(1, most * (full - depth) // max(1, full - threshold))\n",
        "    return max(1, most * (full - depth + 1) // max(1, full - threshold))\n",
        f"{QUEUE_TESTS} -k four_fifths",
    ),
    Mutant(
        "a job is admitted without the money for its fee",
        "core/escrow/decide.py",
        "    if available >= amount:\n",
        "    if available >= amount - 1:\n",
        f"{QUEUE_TESTS} -k whole_fee",
    ),
    Mutant(
        "a raised fee is not reserved",
        QUEUE_APPLY,
        "    escrow_apply.raise_reservation(state, reservation_id(job), event.max_fee - job.max_fee)\n",
        "",
        "tests/core/job/test_job_life.py -k raised_fee_is_set_aside",
    ),
    Mutant(
        "a privileged command leaves no record of its actor",
        "core/state_machine.py",
        "    return Decided((recorded, *decided.events), decided.attachments, answer_index=1 + decided.answer_index)\n",
        "    return decided\n",
        "tests/core/job/test_job_life.py -k recorded_before",
    ),
    Mutant(
        "an expired key is accepted",
        AUTHENTICATE,
        "now_ms >= key.expires_ms:",
        "now_ms > key.expires_ms:",
        f"{KEY_TESTS} -k millisecond",
    ),
    Mutant(
        "an old secret is accepted after its grace period",
        AUTHENTICATE,
        "(hashed == key.old_secret and now_ms < key.old_until_ms)",
        "(hashed == key.old_secret)",
        f"{KEY_TESTS} -k grace",
    ),
    Mutant(
        "a wrong secret reveals that a key was revoked",
        AUTHENTICATE,
        "    if key is None or not (",
        "    if key is None or key.revoked_ms is None and not (",
        f"{KEY_TESTS} -k very_same",
    ),
    Mutant(
        "the scopes of a key are not checked",
        "api/node_access.py",
        "    if principal.scopes and not any(",
        "    if False and not any(",
        "tests/api/rpc/methods/test_methods_keys.py -k scopes",
    ),
    Mutant(
        "a requester cancels the jobs of another",
        QUEUE_DECIDE,
        "    if by is not None and by != job.caller:\n",
        "    if False:\n",
        "tests/api/rpc/methods/test_methods_jobs.py -k own_jobs_alone",
    ),
    Mutant(
        "a block that has just become final is not found",
        "engine/queries/chain.py",
        "(chain.unfinalized.get(query.height), state.final_blocks.get(query.height), chain.last_final)",
        "(chain.unfinalized.get(query.height),)",
        "tests/engine/test_queries.py -k wherever_it_is",
    ),
    Mutant(
        "tables that have not seen a rollback are trusted",
        "engine/queries/records.py",
        "    if live is not None or not 1 <= height <= source.query_undurable(GetChainHead()).finalized:\n",
        "    if False:\n",
        "tests/engine/test_queries.py -k not_believed",
    ),
    Mutant(
        "the block of an admission is searched only above its height",
        "api/rpc/methods/chain.py",
        "height + (1 if block.last_event < job.event else -1)",
        "height + 1",
        "tests/api/rpc/methods/test_methods_chain.py -k after_a_reorg",
    ),
    Mutant(
        "blocks are not sealed earlier while jobs wait",
        "workers/proposer.py",
        "    return bool(state.queue.depth or state.chain.open.txs or state.ledger.settled_by_height)\n",
        "    return bool(state.chain.open.txs or state.ledger.settled_by_height)\n",
        "tests/workers/test_proposer.py",
    ),
]

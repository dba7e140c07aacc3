"""Seeded faults in the stations of chain, queue and keys, in what reads them, and in who proposes."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LINK, MAY_LINK, BLOCKS = "core/chain/apply.py", "core/chain/decide.py", "core/chain/blocks.py"
MAY_QUEUE, QUEUE, KEY = "core/queue/decide.py", "core/queue/apply.py", "core/key.py"
CHAIN_TESTS, QUEUE_TESTS, KEY_TESTS = "tests/core/test_chain.py", "tests/core/test_queue.py", "tests/core/test_keys.py"

STATIONS: Final = [
    Mutant(
        "what was taken back is appended after newer transactions",
        LINK,
        "    chain.open.txs = gone.txs + chain.open.txs\n",
        "    chain.open.txs = chain.open.txs + gone.txs\n",
        f"{CHAIN_TESTS} -k before_what_is_newer",
    ),
    Mutant(
        "a rollback leaves what the open block did",
        MAY_LINK,
        '    undone: list[Event] = [BlockUndone(Height(chain.head.height + 1), b"")]',
        "    undone: list[Event] = []",
        f"{CHAIN_TESTS} -k open_block_refunded",
    ),
    Mutant(
        "a refund is not made again after a reorg",
        "core/law.py",
        "    TxKind.CANCELLATION: link.refund_again,\n",
        "",
        f"{CHAIN_TESTS} -k made_again_in_the_next",
    ),
    Mutant(
        "a block is final one block too soon",
        MAY_LINK,
        "Height(header.height - state.policy.chain.finality_depth)",
        "Height(header.height - max(0, state.policy.chain.finality_depth - 1))",
        f"{CHAIN_TESTS} -k not_one_sooner",
    ),
    Mutant(
        "a rollback comes one below what is final",
        MAY_LINK,
        "    if to < (final := finalized(state)):\n",
        "    if to + 1 < (final := finalized(state)):\n",
        f"{CHAIN_TESTS} -k never_below",
    ),
    Mutant(
        "a header begins at the last event of the one below",
        BLOCKS,
        "        EventNo(head.last_event + 1),\n        last_event,\n",
        "        EventNo(max(1, head.last_event)),\n        last_event,\n",
        "tests/core/test_block_headers.py -k names_the_events",
    ),
    Mutant(
        "a header leaves its last event out",
        BLOCKS,
        "        EventNo(head.last_event + 1),\n        last_event,\n",
        "        EventNo(head.last_event + 1),\n        EventNo(last_event - 1),\n",
        "tests/core/test_block_headers.py -k names_the_events",
    ),
    Mutant(
        "a beacon is of the block before the last",
        BLOCKS,
        "beacon_after(head.signature)",
        "beacon_after(head.beacon)",
        "tests/core/test_block_headers.py -k beacon",
    ),
    Mutant(
        "the fold does not compute headers again",
        LINK,
        "    if (header_hash(header), header.height) != (event.hash, event.height):\n",
        "    if False:\n",
        f"{CHAIN_TESTS} -k events_do_not_give",
    ),
    Mutant(
        "the log keeps the results of blocks that are gone",
        LINK,
        "    chain.open, chain.log = Open(), copy_of(_last(state).log)\n",
        "    chain.open = Open()\n",
        "tests/core/test_block_headers.py -k the_log_holds",
    ),
    Mutant(
        "an idempotency key is forgotten at once",
        QUEUE,
        "    if event.idempotency:\n",
        "    if False:\n",
        f"{QUEUE_TESTS} -k counts_for_a_day",
    ),
    Mutant(
        "an idempotency key counts a millisecond too long",
        MAY_QUEUE,
        "    if known is None or now_ms >= known.until_ms:\n",
        "    if known is None or now_ms > known.until_ms:\n",
        f"{QUEUE_TESTS} -k counts_for_a_day",
    ),
    Mutant(
        "another request under a used idempotency key gets a receipt",
        MAY_QUEUE,
        "    if known.asked == command.asked:\n",
        "    if True:\n",
        f"{QUEUE_TESTS} -k for_another_request",
    ),
    Mutant(
        "the queue takes one job too many",
        MAY_QUEUE,
        "    if depth + more > policy.queue_depth_max:\n",
        "    if depth > policy.queue_depth_max:\n",
        f"{QUEUE_TESTS} -k full_queue",
    ),
    Mutant(
        "back-pressure begins one job too late",
        MAY_QUEUE,
        "    return max(1, most * (full - depth) // max(1, full - threshold))\n",
        "    return max(1, most * (full - depth + 1) // max(1, full - threshold))\n",
        f"{QUEUE_TESTS} -k four_fifths",
    ),
    Mutant(
        "a job is admitted on money that is not there",
        MAY_QUEUE,
        "    if available >= amount:\n",
        "    if available >= amount - 1:\n",
        f"{QUEUE_TESTS} -k whole_fee",
    ),
    Mutant(
        "a raised fee is not set aside",
        QUEUE,
        "    money.raise_hold(state, hold_of(job), event.max_fee - job.max_fee)\n",
        "",
        "tests/core/test_job_life.py -k raised_fee_is_set_aside",
    ),
    Mutant(
        "a privileged act leaves no name",
        "core/law.py",
        "    return Decided((signed, *decided.events), decided.attachments, preface=1 + decided.preface)\n",
        "    return decided\n",
        "tests/core/test_job_life.py -k stands_before",
    ),
    Mutant(
        "an expired key opens",
        KEY,
        "now_ms >= key.expires_ms:",
        "now_ms > key.expires_ms:",
        f"{KEY_TESTS} -k millisecond",
    ),
    Mutant(
        "an old secret opens for ever",
        KEY,
        "(shown == key.old_secret and now_ms < key.old_until_ms)",
        "(shown == key.old_secret)",
        f"{KEY_TESTS} -k grace",
    ),
    Mutant(
        "a wrong secret learns that a key was revoked",
        KEY,
        "    if key is None or not (",
        "    if key is None or key.revoked_ms is None and not (",
        f"{KEY_TESTS} -k very_same",
    ),
    Mutant(
        "scopes are not looked at",
        "doors/desk.py",
        "    if visitor.scopes and not any(",
        "    if False and not any(",
        "tests/doors/test_methods_keys.py -k scopes",
    ),
    Mutant(
        "anybody cancels anybody's jobs",
        MAY_QUEUE,
        "    if by is not None and by != job.caller:\n",
        "    if False:\n",
        "tests/doors/test_methods_jobs.py -k own_jobs_alone",
    ),
    Mutant(
        "a block that just became final is not found",
        "engine/read.py",
        "        found = chain.recent.get(height) or chain.base\n",
        "        found = chain.recent.get(height)\n",
        "tests/engine/test_read_jobs.py -k wherever_it_is",
    ),
    Mutant(
        "tables that know nothing of a rollback are believed",
        "engine/read.py",
        '    if rows and source.peek(("block", rows[0][0])) is None:\n',
        "    if rows:\n",
        "tests/engine/test_read_jobs.py -k not_believed",
    ),
    Mutant(
        "an admission is looked for above its own height alone",
        "doors/methods/chain.py",
        "height + (1 if block.last_event < job.event else -1)",
        "height + 1",
        "tests/doors/test_methods_chain.py -k after_a_reorg",
    ),
    Mutant(
        "nobody hurries while jobs wait",
        "duties/proposer.py",
        "    return bool(state.queue.depth or state.chain.open.txs or state.ledger.settled)\n",
        "    return bool(state.chain.open.txs or state.ledger.settled)\n",
        "tests/duties/test_proposer.py",
    ),
]

"""Seeded faults between nodes: bytes deleted too early, false notices and packages believed, takeovers not recorded."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

CHECK, PACKAGE, PRUNER = "core/archive/check_notice.py", "core/sync/check_package.py", "workers/sync/follower_pruner.py"
FOLLOWER_TESTS, HOSTILE_TESTS = "tests/workers/sync/test_blob_follower.py", "tests/workers/sync/test_hostile_peers.py"
NOTICE_TESTS, VALIDATOR_TESTS = (
    "tests/workers/sync/test_notices_between_nodes.py",
    "tests/core/validator/test_validators.py",
)
CONFIRM_TESTS = "tests/core/archive/test_confirmations.py"

SYNC: Final = [
    Mutant(
        "a follower prunes a height of which one blob has no record",
        "core/sync/followed.py",
        "    if sure < len(blobs):\n",
        "    if not sure:\n",
        "tests/core/sync/test_followed.py -k every_blob",
    ),
    Mutant(
        "a follower prunes what it has not read back",
        "core/sync/followed.py",
        "    return blob.assurance == VERIFIED or not must_read_back(policy, blob.versioned_hash)\n",
        "    return True\n",
        f"{FOLLOWER_TESTS} -k without_an_archive",
    ),
    Mutant(
        "a hit of a query is a record, whatever the archive has",
        PRUNER,
        "            if not is_trusted and await self._why_not_held(blob, locator) is not None:\n",
        "            if False:\n",
        f"{FOLLOWER_TESTS} -k hit_alone",
    ),
    Mutant(
        "a follower deletes bytes before the flag is durable",
        PRUNER,
        "        pruned = await self._chain.change(blobs, bytes_status=BytesStatus.PRUNED)\n",
        "        await self._files.delete_pack(pack)\n"
        "        pruned = await self._chain.change(blobs, bytes_status=BytesStatus.PRUNED)\n",
        f"{FOLLOWER_TESTS} -k goes_on_where_it_was",
    ),
    Mutant(
        "the signature of a notice is not checked",
        CHECK,
        "    if not verify(key, notice_root(notice), notice.signature):\n",
        "    if False:\n",
        f"{NOTICE_TESTS} -k every_check",
    ),
    Mutant(
        "a validator that has not proposed a height archives it",
        CHECK,
        "        (ground.validators.speaks_for(key, blob.proposer), ",
        "        (True, ",
        f"{NOTICE_TESTS} -k every_check",
    ),
    Mutant(
        "a notice about other bytes counts",
        CHECK,
        "        (blob.keccak == notice.blob_keccak, ",
        "        (True, ",
        f"{NOTICE_TESTS} -k every_check",
    ),
    Mutant(
        "a block of a key that is no validator is stored",
        PACKAGE,
        "    if not ground.validators.is_member(header.proposer, header.height):\n",
        "    if False:\n",
        f"{HOSTILE_TESTS} -k UnknownValidator",
    ),
    Mutant(
        "leaves are stored that the header does not commit to",
        PACKAGE,
        "        if len(leaves) != count or root(leaves) != root_:\n",
        "        if len(leaves) != count:\n",
        f"{HOSTILE_TESTS} -k PayloadMismatch",
    ),
    Mutant(
        "a missing receipt is passed over",
        PACKAGE,
        "    if len(package.archived) != len(leaves) or len(archived) != len(leaves):\n",
        "    if len(package.archived) != len(leaves):\n",
        f"{HOSTILE_TESTS} -k ReceiptMissing",
    ),
    Mutant(
        "bytes are stored whose KZG is wrong",
        "workers/sync/block_sync.py",
        "        if not are_true or not all(await self._kzg.verify(works)):\n",
        "        if not are_true:\n",
        f"{HOSTILE_TESTS} -k SidecarMismatch",
    ),
    Mutant(
        "early notices are kept without a bound",
        "workers/sync/notice_book.py",
        "        if root not in self.early and len(self.early) >= self._policy.notices_waiting_max:\n",
        "        if False:\n",
        f"{FOLLOWER_TESTS} -k early_waits",
    ),
    Mutant(
        "a notice is not sent again",
        "workers/sync/notice_sender.py",
        "            if last_ms is None or (place in unconfirmed and last_ms <= due_ms):\n",
        "            if last_ms is None:\n",
        f"{NOTICE_TESTS} -k sent_again_until",
    ),
    Mutant(
        "the signature of a confirmation is not checked",
        "core/archive/confirm.py",
        "    if not command.verify(command.key, ack_root(command.root), command.signature):\n",
        "    if False:\n",
        f"{CONFIRM_TESTS} -k signature_of_a_validator",
    ),
    Mutant(
        "half of the validators are a quorum",
        "core/archive/confirm.py",
        "        if confirmed * 3 < len(validators) * 2:\n",
        "        if confirmed * 2 < len(validators):\n",
        f"{CONFIRM_TESTS} -k with_a_quorum",
    ),
    Mutant(
        "a stranger seals blocks",
        "core/workflows/seal.py",
        "    if refusal := why_not_proposer(state, command.proposer):\n        return refusal\n",
        "",
        f"{VALIDATOR_TESTS} -k only_a_validator_seals",
    ),
    Mutant(
        "a validator counts for heights before it joined",
        "core/validator/model.py",
        "        return since is not None and since <= height and ",
        "        return since is not None and ",
        VALIDATOR_TESTS,
    ),
    Mutant(
        "a recalled blob may be pruned although the archive lost it",
        "core/archive/apply.py",
        '            blob.status, blob.reason, blob.item_id = BlobStatus.SUSPECT, event.reason, ""\n\n\ndef _changed',
        "            blob.reason = event.reason\n\n\ndef _changed",
        f"{CONFIRM_TESTS} -k lost_after_pruning",
    ),
]

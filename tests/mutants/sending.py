"""Seeded faults in how evidence is sent: what may be in flight, which acks are accepted, what is replayed."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

FLOW_CONTROL, SENDER, RETROVUE, BACKLOG = (
    "shipping/flow_control.py",
    "shipping/session_sender.py",
    "shipping/retrovue_transport.py",
    "shipping/backlog.py",
)
WINDOW_TESTS, SIMULATED = (
    "tests/shipping/test_flow_control.py",
    "tests/shipping/test_flow_control_simulated.py -k whatever",
)
SHIPPER_TESTS, FAST_PATH_TESTS = "tests/shipping/test_background_shipper.py", "tests/api/evidence/test_fast_path.py"

SENDING: Final = [
    Mutant(
        "an ack of records that were never sent is accepted",
        FLOW_CONTROL,
        "        if acked > self.ack_max:\n",
        "        if acked > 2**64:\n",
        f"{WINDOW_TESTS} -k not_sent_is_refused",
    ),
    Mutant(
        "what an earlier stream sent is forgotten",
        FLOW_CONTROL,
        "        self._sent_before, self._credit = max(after, sent_before), credit\n",
        "        self._sent_before, self._credit = after, credit\n",
        SIMULATED,
    ),
    Mutant(
        "a record that the node has not acked is skipped",
        FLOW_CONTROL,
        "        if last > self.acked:\n",
        "        if last > self.acked + 1:\n",
        SIMULATED,
    ),
    Mutant(
        "a repeated ack counts as progress",
        FLOW_CONTROL,
        "        if acked > self.acked:\n            self.acked, self._progress_ms = acked, now_ms\n",
        "        self.acked, self._progress_ms = max(acked, self.acked), now_ms\n",
        f"{WINDOW_TESTS} -k stand_still",
    ),
    Mutant(
        "a stall of acks is not detected",
        SENDER,
        "                if left_ms <= 0:\n",
        "                if left_ms <= -(1 << 40):\n",
        f"{SHIPPER_TESTS} -k stand_still",
    ),
    Mutant(
        "an ack of 0 from a v0.1 receiver is used as a watermark",
        RETROVUE,
        "        return ReceiverAck(ack.acked or None, ack.credit)\n",
        "        return ReceiverAck(ack.acked, ack.credit)\n",
        f"{SHIPPER_TESTS} -k means_unknown",
    ),
    Mutant(
        "an ack for another session is accepted",
        RETROVUE,
        "        if (ack.channel_id, ack.playout_session_id) != self._session_key:\n",
        "        if ack.channel_id != self._session_key[0]:\n",
        f"{SHIPPER_TESTS} -k another_session",
    ),
    Mutant(
        "a record that v0.1 cannot express is skipped",
        RETROVUE,
        "            if isinstance(message, str):  # a record is never skipped silently\n",
        "            if isinstance(message, str):\n                continue\n            if not message:\n",
        f"{SHIPPER_TESTS} -k never_passed_over",
    ),
    Mutant(
        "older sessions are sent newest first",
        BACKLOG,
        "            sender = self.senders[0]\n",
        "            sender = self.senders[-1]\n",
        f"{SHIPPER_TESTS} -k oldest_first",
    ),
    Mutant(
        "the fast path does not check that sequences are contiguous",
        "api/evidence/fast_path.py",
        "        and list(map(_sequence, records)) == list(range(first, first + len(lines)))\n",
        "",
        FAST_PATH_TESTS,
    ),
    Mutant(
        "the fast path stores records that carry a command",
        "api/evidence/fast_path.py",
        "        and types.isdisjoint(not_plain)\n",
        "",
        FAST_PATH_TESTS,
    ),
    Mutant(
        "a slow node is given up before it has answered",
        "shipping/node_connection.py",
        '"grpc.min_reconnect_backoff_ms", 10_000',
        '"grpc.min_reconnect_backoff_ms", 50',
        "tests/shipping/test_node_connection.py -k answers_late",
    ),
]

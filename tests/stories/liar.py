"""An agent as `patient` is, but what it answers to circuits is false, and it is the first to answer."""

from __future__ import annotations

from unittest.mock import patch

from tests.stories.patient import Waiting, registry

from holdfast.agent.executors import Cancel
from holdfast.cli import main
from holdfast.core.canon import canonical
from holdfast.core.job.spec import Payload


class Lie(Waiting, frozen=True):
    """Well formed, signed, and false."""

    def run(self, payload: Payload, cancel: Cancel) -> bytes:
        return canonical({"counts": {"11": payload.spec["shots"]}})


if __name__ == "__main__":
    with patch("holdfast.cli.agent.built_in", return_value=registry(Lie())):
        main()

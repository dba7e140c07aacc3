"""What the command `holdfast` and `python -m holdfast` begin with: so little that Ctrl-C finds it ready."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Loading it takes a moment in which somebody may already think better of it."""
    try:
        from holdfast.cli import main as speak  # noqa: PLC0415 - here, where being interrupted has an answer

        speak()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

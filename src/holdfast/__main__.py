"""The entry point of `holdfast` and `python -m holdfast`. It imports little, so that Ctrl-C works from the start."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; an interrupt while it loads ends with code 130, too."""
    try:
        from holdfast.cli import main as run_command_line  # noqa: PLC0415 - inside the try: loading takes a moment

        run_command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

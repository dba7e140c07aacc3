"""Which records changed: what a domain touches is a row that the projection must write (ENG-004)."""

from __future__ import annotations

from typing import Any

import msgspec

Touched = dict[str, dict[Any, msgspec.Struct | None]]
"""Changed records by table and key, since the last batch was sealed; None where there is no such row any more."""

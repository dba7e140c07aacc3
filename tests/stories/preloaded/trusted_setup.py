"""Imported by the process that stories are forked from: what works on blobs needs seconds for this at its first one."""

from __future__ import annotations

from holdfast.adapters.kzg.trusted_setup import trusted_setup

trusted_setup()

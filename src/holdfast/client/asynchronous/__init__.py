"""The client as it is written: `tools/generate_sync.py` makes its blocking twin from it."""

"""The blocking client: made by `tools/generate_sync.py` from the asynchronous one."""

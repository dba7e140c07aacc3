"""The chain (CHN-001 … CHN-006): blocks are headers over ranges of journal events; they copy nothing.

Read: header, blocks, acts, decide, apply, light.
"""

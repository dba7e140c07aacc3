"""The chain (CHN-001 … CHN-006): blocks are headers over ranges of journal events; they copy nothing.

A block can be rolled back until it is final. Read: header, model, messages, invariants; what happens to a
block spans domains and is in the workflows seal, finalize and roll_back.
"""

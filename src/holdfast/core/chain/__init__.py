"""The chain (CHN-001 … CHN-006): blocks are headers over ranges of journal events; they copy nothing.

A block can be rolled back until it is final. Read: header, model, messages, transactions, decide, apply, invariants;
then the workflows roll_back and finalize.
"""

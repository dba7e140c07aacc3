"""Who may propose and archive, by height (NTC-002, NTC-005): a set of keys that transactions change.

The set begins with the key that seals the first block with blobs. A key that joins or leaves does so from a height on;
old heights are judged by the set that they had. Read: model, messages, decide, apply.
"""

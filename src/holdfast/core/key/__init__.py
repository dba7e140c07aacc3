"""API keys (SEC-001): who may call the node, in which role, with which scopes, until when.

A key's secret is known to its holder alone; the node stores a hash. Read: model, messages, decide, apply,
invariants.
"""

"""Evidence at the node (EVD-001, EVD-002, EVD-007 … EVD-009): records are stored together with the watermark of their
session and acknowledged when both are durable.

Read: model, messages, watermarks (how far each session is stored), dead_letters (permanently refused records), sessions
(sealing, pruning, channel owners), invariants.
"""

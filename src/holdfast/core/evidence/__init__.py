"""Evidence at the node (EVD-001, EVD-002): stored with its mark in one batch, acknowledged when that is durable.

marks (how far each session has come) · letters (records that are refused for good) · sessions (their end, and what is
let go of after it)
"""

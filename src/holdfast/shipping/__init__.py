"""Delivers the evidence of a spool to a node; usable without an agent."""

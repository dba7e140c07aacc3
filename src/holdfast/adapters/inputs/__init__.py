"""Inputs of jobs on this node (JOB-003)."""

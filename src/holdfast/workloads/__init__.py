"""Built-in work: pure functions from a payload to bytes, the same on every machine.

echo · digits (a small integer network) · qasm (parses a circuit) · stabiliser (runs a circuit) · circuit (all runs of a
job). Agents compute it, and verifiers compute it again.
"""

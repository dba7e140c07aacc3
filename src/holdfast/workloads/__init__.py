"""Work that comes with Holdfast: pure functions from a payload to bytes, the same on every machine.

echo · digits (a small integer network) · qasm (a circuit, read) · stabiliser (a circuit, run) · circuit (all runs of a
job). Agents do it, and verifiers do it again.
"""

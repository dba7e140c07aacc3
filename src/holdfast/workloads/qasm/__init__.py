"""Reads circuits: the part of OpenQASM 2 and 3 that docs/own_work.md lists."""

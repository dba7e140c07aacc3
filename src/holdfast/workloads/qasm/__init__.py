"""Reads circuits: the part of OpenQASM 2 and 3 that docs/how-to/provider.md lists."""

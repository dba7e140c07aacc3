"""Holdfast: nothing is let go until the next hand provably holds it."""

__version__ = "0.3.0"

"""Holdfast runs compute jobs and keeps everything until the next custodian provably holds it."""

__version__ = "0.4.0"

"""Stubs generated from the .proto files by `python -m tools.generate_stubs`: never edited by hand."""

"""Stubs made from the .proto files by `python -m holdfast.wire.make`: never edited by hand."""

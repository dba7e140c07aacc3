"""The engine on both stores against SQL written by hand."""

"""Snapshots (ENG-003): the state as bytes, waiting jobs as columns, and the files that a start reads."""

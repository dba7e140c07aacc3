"""Where things rest: the real journal, tables, files and clock behind the ports."""

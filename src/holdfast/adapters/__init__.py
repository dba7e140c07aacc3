"""The real implementations of the ports: journal, tables, files, keys and clock."""

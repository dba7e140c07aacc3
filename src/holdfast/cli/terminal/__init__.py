"""What every verb uses: options, a connection to the node, tables, progress, error messages with exit codes."""

"""Executors for own work: programs, Python functions, HTTP servers; and what contains them."""

"""The SQL, apart from the code: every query has a name and a comment, every schema change a numbered file."""

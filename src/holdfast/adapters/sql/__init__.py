"""The SQL, apart from the code: every query has a name and a sentence, every change of schema a numbered file."""

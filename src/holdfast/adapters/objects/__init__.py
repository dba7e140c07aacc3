"""Objects by key: in a local folder, or in a remote store through obstore."""

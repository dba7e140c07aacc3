"""Reads about blobs, their archive and the validators: what the tables have, and who counts at which height."""

"""Answers that are made of several reads: ids by their beginning, the catalogue of what providers offer, schedules."""

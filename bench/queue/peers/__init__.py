"""Queues that people use, each by its own API: single enqueues, bulks, draining, and how soon a job is taken."""

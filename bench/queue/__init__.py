"""The queue on both stores against SQL written by hand and the queues that people use."""

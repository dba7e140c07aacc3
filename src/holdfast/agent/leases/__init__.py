"""The leases an agent holds: accepted, executed, renewed, finished, and found again after a crash."""

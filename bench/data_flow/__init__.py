"""The whole way of a job with real processes, and what an idle provider costs."""

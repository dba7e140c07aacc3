"""The gRPC services: provider, work, evidence, results, node, and the v0.1 evidence service."""

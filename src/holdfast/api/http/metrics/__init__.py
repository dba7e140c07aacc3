"""What Prometheus reads from the node, by topic (OBS-001)."""

"""What the owner counts as it applies events (OBS-001): counters and histograms of the queue."""

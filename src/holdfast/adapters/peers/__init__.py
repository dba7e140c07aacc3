"""Ways to reach the other nodes of a network."""

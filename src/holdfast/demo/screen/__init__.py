"""What the demo shows on the terminal."""

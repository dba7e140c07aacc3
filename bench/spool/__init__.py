"""The durable outbox against append loops and peers."""

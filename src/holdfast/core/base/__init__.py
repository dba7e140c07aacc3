"""What every domain builds on: values, errors, canonical bytes, trees, state transitions, events."""

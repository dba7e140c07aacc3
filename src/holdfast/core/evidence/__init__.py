"""Evidence at the node (EVD-001, EVD-002): stored with its mark in one batch, acknowledged when that is durable."""

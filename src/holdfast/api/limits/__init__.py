"""Limits of clients that every server shares: rates, addresses, places for connections."""

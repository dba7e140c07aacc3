"""Accepting connections: what happens before they are HTTP."""

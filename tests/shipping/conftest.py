"""A node for every test of shipping."""

from tests.agent.conftest import node

__all__ = ["node"]

"""The client library of requesters: a client of the node on this machine, over its Unix socket."""

from holdfast.client.unix_socket import SOCKET_NAME, Client, JobEnded, NodeRefused, NodeUnreachable

__all__ = ["SOCKET_NAME", "Client", "JobEnded", "NodeRefused", "NodeUnreachable"]

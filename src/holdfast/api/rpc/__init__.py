"""JSON-RPC 2.0: decoding, parameters, methods, OpenRPC, and the local Unix socket (RPC-001)."""

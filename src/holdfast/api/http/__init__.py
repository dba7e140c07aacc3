"""JSON-RPC over HTTP and WebSocket, events as a stream, health and metrics. Read in this order:

settings · responses (bytes of a response) · gateway (authenticate, limit, decode, handle, count: shared by all
endpoints) · event_fanout (events, encoded once for all subscribers) · rpc_endpoint, sse, websocket, health (the
endpoints) · metrics/ (what Prometheus reads) · routes (paths to endpoints) · connection, tls, uvicorn_server (limits of
a connection, TLS, uvicorn) · server
"""

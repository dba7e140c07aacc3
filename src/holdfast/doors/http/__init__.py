"""The door for everybody: JSON-RPC over HTTP and WebSocket, events as a stream, metrics. Read in this order:

settings (what an operator decides) · nesting (how deep is too deep) · replies (bytes of an answer) ·
guests (who asks) · asking (one message, whatever carried it) · topics, broadcast (events, encoded once for all) ·
posts, events, session (the three ways in) · tally, probes (how it goes) · site (which path is whose) ·
connection, tls, server (what uvicorn is told) · door
"""

"""The front process of the gRPC API (SEC-002): it accepts the connections, so that idle ones cost the node nothing.

settings (its limits) · opening (the first bytes of a connection) · peer_name (who is behind a forwarded connection) ·
forwarder (in the front process) · front_process (in the node: keeps the front process running)
"""

"""The door for programs: gRPC over TLS, with services that plug in. Read in this order:

settings (what an operator decides) · handling (one shape for all four kinds of calls) · answering (every no to a
status) · limiting (how often) · identifying (who calls) · health · service (what plugs in) · node (the first one) ·
door

For agents: agentdesk (what all their calls need) · provider (registering, completing) · outputs (bytes) · switchboard
(from events to agents) · work (the stream of work)

For records: inbox (what has come, within bounds) · intake (stored once, with its mark) · evidence (our stream) ·
legacy (the stream of v0.1)
"""

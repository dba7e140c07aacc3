"""The gRPC API: gRPC over TLS, with one file per service. Read in this order:

settings (what an operator decides) · call_wrapping (one shape for all four kinds of calls) · error_interceptor (every
refusal becomes a status) · rate_interceptor (how often) · auth_interceptor (who calls) · health · service (what a
service is) · server

services, for everybody: node · result. For agents: agent_context (what all their calls need) · nonces · streams · work
(the work stream) · agent_router (from events to agents) · output_upload · output_limit · provider (registration,
completion). For evidence: evidence (our stream) · retrovue (the stream of v0.1); what they share is in `api/evidence`.
"""

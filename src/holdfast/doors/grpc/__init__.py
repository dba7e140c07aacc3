"""The door for programs: gRPC over TLS, with services that plug in. Read in this order:

settings (what an operator decides) · handling (one shape for all four kinds of calls) · answering (every no to a
status) · identifying (who calls) · health · service (what plugs in) · node (the first one) · door
"""

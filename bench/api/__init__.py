"""The HTTP API against bare Starlette on the same uvicorn."""

"""How clients speak to a node: JSON-RPC (`rpc`), HTTP and WebSocket (`http`), gRPC (`grpc`), evidence (`evidence`)."""

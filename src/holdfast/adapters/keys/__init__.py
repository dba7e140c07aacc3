"""Keys and certificates, the one place that knows `cryptography`: secret files, signing, TLS made and read."""

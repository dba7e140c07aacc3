"""Keys and certificates, the only code that uses `cryptography`: secret files, signing, TLS certificates."""

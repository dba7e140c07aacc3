"""Checks the signatures of data items: Arweave's RSA, Ed25519, and Ethereum's personal messages (ARC-004)."""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from holdfast.adapters.keys.keccak import keccak_256
from holdfast.adapters.keys.signing import verify
from holdfast.wire.ans104 import DataHash, ItemHeader, SignatureType, signed_message

RSA_EXPONENT: Final = 65_537
RSA_SALTS: Final = (32, 478)
"""Arweave's own wallets salt with 32 bytes, browsers with as many as fit."""
SECP256K1_ORDER: Final = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_RECOVERY_IDS: Final = frozenset({0, 1, 27, 28})


def is_signed_by_owner(header: ItemHeader, data: DataHash) -> bool:
    """Whether the owner named in the header has signed this header and this data."""
    return _CHECKS[header.type](header.owner, signed_message(header, data), header.signature)


def _is_arweave(owner: bytes, message: bytes, signature: bytes) -> bool:
    """RSA-PSS with SHA-256; the owner is the modulus."""
    try:
        key = rsa.RSAPublicNumbers(RSA_EXPONENT, int.from_bytes(owner, "big")).public_key()
    except ValueError:
        return False
    for salt in RSA_SALTS:
        try:
            key.verify(signature, message, padding.PSS(padding.MGF1(SHA256()), salt), SHA256())
        except InvalidSignature:
            continue
        return True
    return False


def _is_ethereum(owner: bytes, message: bytes, signature: bytes) -> bool:
    """ECDSA over the hash of a personal message; the owner is the uncompressed public key.

    Of the two signatures that one can be turned into, wallets make the one with the low s: the other one is refused,
    since it would give the same item a second id. The recovery id is not compared with the point.
    """
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if s > SECP256K1_ORDER // 2 or signature[64] not in _RECOVERY_IDS:
        return False
    digest = keccak_256(b"\x19Ethereum Signed Message:\n%d" % len(message) + message)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), owner)
        key.verify(encode_dss_signature(r, s), digest, ec.ECDSA(Prehashed(SHA256())))
    except (InvalidSignature, ValueError):
        return False
    return True


_CHECKS: Final = {
    SignatureType.ARWEAVE: _is_arweave,
    SignatureType.ED25519: verify,
    SignatureType.ETHEREUM: _is_ethereum,
}

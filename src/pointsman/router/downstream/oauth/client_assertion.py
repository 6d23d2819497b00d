"""Proves a client by a signature in place of a secret (`private_key_jwt`, RFC 7523): its key signs a short token."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from pointsman.router.downstream.oauth.discovery import SignInError

if TYPE_CHECKING:
    from pointsman.router.downstream.oauth.tokens import Client

TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
LIFE_S: Final = 60
_MIN_RSA_BITS: Final = 2048
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_BAD_KEY: Final = (
    "`oauth.private_key` is not a private key that it can sign with: PEM without a password, and RSA (2048 bits or "
    "more), EC (P-256, P-384, P-521) or Ed25519. Correct the entry."
)


def assertion(client: Client) -> str:
    """For one request to the authorization server of this client. Raises SignInError."""
    import jwt  # on demand: few clients have keys
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(client.secret.encode(), None)
    except (ValueError, TypeError):  # not PEM, of another kind, or with a password
        raise SignInError(_BAD_KEY) from None
    possible = _algorithms(key)
    if not possible:
        raise SignInError(_BAD_KEY)
    algorithm = next((one for one in possible if not client.algorithms or one in client.algorithms), None)
    if algorithm is None:
        raise SignInError(
            f"Its authorization server takes no signatures by such a key ({possible[0]}), only "
            f"{', '.join(client.algorithms)}. Register another key there, and set `oauth.private_key`."
        )
    now = int(time.time())
    claims = {
        "iss": client.id,
        "sub": client.id,
        "aud": client.issuer,  # and nobody else: another server that got it could use it there
        "jti": secrets.token_urlsafe(16),
        "iat": now,
        "exp": now + LIFE_S,
    }
    headers = {"kid": client.key_id} if client.key_id else None
    return jwt.encode(claims, key, algorithm, headers=headers)  # type: ignore[arg-type]


def _algorithms(key: object) -> tuple[str, ...]:
    """Those that a key can sign with, the usual one first; none: it cannot be used."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    match key:
        case RSAPrivateKey():
            return ("RS256", "PS256") if key.key_size >= _MIN_RSA_BITS else ()
        case EllipticCurvePrivateKey() if key.curve.name in _CURVES:
            return (_CURVES[key.curve.name],)
        case Ed25519PrivateKey():
            return ("EdDSA",)
    return ()

"""Certificates in PEM, as files hold them."""

from __future__ import annotations

import re
import ssl

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_KINDS = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")


class CertificateError(ValueError):
    """What is wrong with the text, to be said after the name of its file."""


def certificates(text: str) -> list[str]:
    """Return the certificates in the text, each once and with a newline at its end."""
    found = []
    for block in _BLOCK.finditer(text):
        kind = block[1]
        if "PRIVATE KEY" in kind:
            raise CertificateError("holds a private key, which no node may be given")
        if kind in _KINDS:
            found.append(f"{block[0]}\n")
    if not found:
        raise CertificateError("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    for number, certificate in enumerate(found, 1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise CertificateError(f"is damaged: certificate {number} of {len(found)} cannot be read") from None
    return list(dict.fromkeys(found))


def within(certificate: str, bundle: str) -> bool:
    """Whether a bundle holds the certificate, however its lines are broken."""
    return "".join(certificate.split()) in "".join(bundle.split())

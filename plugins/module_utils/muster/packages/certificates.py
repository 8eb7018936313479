"""Read PEM certificates."""

from __future__ import annotations

import re
import ssl

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_KINDS = ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE")


class CertificateError(ValueError):
    """The file does not contain valid certificates. The message continues a sentence that starts with the file name."""


def certificates(text: str) -> list[str]:
    """Return the distinct certificates in the text. Each ends with a newline."""
    found = []
    for block in _BLOCK.finditer(text):
        kind = block[1]
        if "PRIVATE KEY" in kind:
            raise CertificateError("contains a private key, which must not be copied to nodes")
        if kind in _KINDS:
            found.append(f"{block[0]}\n")
    if not found:
        raise CertificateError("contains no PEM certificate (-----BEGIN CERTIFICATE-----)")
    for number, certificate in enumerate(found, 1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificate)
        except (ssl.SSLError, ValueError):
            raise CertificateError(f"is corrupt: certificate {number} of {len(found)} cannot be read") from None
    return list(dict.fromkeys(found))


def within(certificate: str, bundle: str) -> bool:
    """Return whether a bundle contains the certificate. Line breaks are ignored."""
    return "".join(certificate.split()) in "".join(bundle.split())

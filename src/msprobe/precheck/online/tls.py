"""TLS between the training and who checks its calls: both sides show a certificate, and know who may have signed it."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from msprobe.config.online import Side, tls_files
from msprobe.errors import InvalidInputError, PathError
from msprobe.messages import said

#: Where the words that open an encrypted key come from; never from the terminal, where nobody may sit.
PASSPHRASE = "MSPROBE_TLS_PASSPHRASE"


def context_for(folder: str, side: Side) -> ssl.SSLContext | None:
    """What ``tls_path`` names, for ``side`` "client" (the training) or "server" (who checks). None for "", plain TCP.

    The folder has ``client.key`` and ``client.crt`` or ``server.key`` and ``server.crt``, ``ca.crt``, and ``crl.pem``
    if certificates were called back. Raises PathError for what is missing, InvalidInputError for what is no key.
    """
    if not folder:
        return None
    place = Path(folder)
    files = {name: place / name for name in tls_files(side)}
    missing = [name for name, file in files.items() if not file.is_file()]
    if missing:
        raise PathError(said("tls-files-missing", folder, ", ".join(missing)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if side == "client" else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Ranks are known by the authority that signed them, not by the names of their machines.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(str(files["ca.crt"]))
        context.load_cert_chain(str(files[f"{side}.crt"]), str(files[f"{side}.key"]), password=_passphrase)
        revoked = place / "crl.pem"
        if revoked.is_file():
            context.load_verify_locations(str(revoked))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidInputError(said("tls-files-not-usable", folder, error, PASSPHRASE)) from error
    return context


def _passphrase() -> str:
    words = os.environ.get(PASSPHRASE)
    if words is None:
        raise ValueError(said("key-without-passphrase", PASSPHRASE))
    return words

"""Run the server: a free port, a token, a browser, and an end by Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import socket
import threading
import webbrowser
from collections.abc import Callable

from msprobe.distribution import install
from msprobe.errors import InvalidInputError, NotAvailableError
from msprobe.messages import joined, said
from msprobe.view.page_files import Page
from msprobe.view.source import PageSource

PACKAGES = ("starlette", "uvicorn")


def check_available() -> None:
    """Raises NotAvailableError if the packages of the server are not installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise NotAvailableError(said("page-packages-missing", joined(" and ", missing), verb, install("view")))


def listen(host: str, port: int) -> socket.socket:
    """A socket on which the server will listen; port 0 is any free one. Raises InvalidInputError if that fails."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            # A page that was closed a moment ago does not keep its port. On Windows this would share a port in use.
            if socket.has_dualstack_ipv6() or hasattr(socket, "SO_REUSEPORT"):
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
        except BaseException:
            listening.close()
            raise
    except (OSError, OverflowError, UnicodeError) as problem:
        reason = (getattr(problem, "strerror", None) or str(problem)).lower()
        raise InvalidInputError(said("port-not-available", host, port, reason)) from problem
    return listening


def address_of(listening: socket.socket, host: str, token: str) -> str:
    """What to open in a browser."""
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}/?token={token}"


def names_of(host: str) -> tuple[str, ...]:
    """The names by which the server may be asked besides those of this machine itself."""
    if is_local(host):
        return ()
    names = [host, f"[{host}]", socket.gethostname(), socket.getfqdn()]
    with contextlib.suppress(OSError):
        names += {str(address[4][0]) for address in socket.getaddrinfo(socket.gethostname(), None)}
    return tuple(names)


def is_local(host: str) -> bool:
    """True for a name that only this machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def serve(source: PageSource, listening: socket.socket, token: str, host: str, ready: Callable[[], None]) -> None:
    """Answer until Ctrl-C (or SIGTERM). ``ready`` is called when the first question can be asked."""
    import uvicorn

    from msprobe.view.connections import TimedProtocol
    from msprobe.view.server import application

    app = application(source, token, Page(), names_of(host))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=1 << 16,
        limit_concurrency=256,
        http=TimedProtocol,
        ws="none",
    )
    server = uvicorn.Server(config)
    # The socket listens already: what is asked now waits until the server answers.
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


def open_browser(address: str) -> None:
    """Open the address where there is a browser; nothing happens where there is none."""

    def open_it() -> None:
        with contextlib.suppress(Exception):
            webbrowser.open(address)

    threading.Thread(target=open_it, name="msprobe-browser", daemon=True).start()

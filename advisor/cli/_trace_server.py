"""Hands one trace to Perfetto's page: a server on the loopback address that answers nobody else."""

import contextlib
import http.server
import secrets
import socket
import sys
import threading
from typing import Any

from advisor.report.perfetto import PERFETTO


class TraceServer(http.server.HTTPServer):
    """One file under a path that cannot be guessed, for Perfetto's page only.

    Other pages may reach the loopback address too: what says to come from another page is refused,
    a name that was rebound to 127.0.0.1 fails the check of Host, and nobody else knows the path.
    """

    def __init__(self, body: bytes, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.body = body
        self.path = f"/{secrets.token_urlsafe(16)}.json"
        self.fetched = False

    @property
    def url(self) -> str:
        """Where the trace is."""
        return f"http://127.0.0.1:{self.server_port}{self.path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes away before it has the trace may ask again."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: TraceServer
    # Browsers open connections ahead on which they may never ask: the next one is served then.
    timeout = 1.0

    def handle(self) -> None:
        """One request, which must be here whole within a second, however slowly it drips in."""
        late = threading.Timer(self.timeout, self._stop_reading)
        late.start()
        try:
            super().handle()
        finally:
            late.cancel()

    def _stop_reading(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self.connection.shutdown(socket.SHUT_RD)

    def do_GET(self) -> None:
        """The trace, or 404; 403 for a request under another host name or of another page."""
        if not self._is_for_the_trace():
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.send_header("Cache-Control", "no-store")
        self._send_policy()
        self.end_headers()
        self.connection.settimeout(None)
        self.wfile.write(self.server.body)
        self.server.fetched = True

    def do_OPTIONS(self) -> None:
        """Browsers ask before a public page may read from the loopback address."""
        if not self._is_for_the_trace():
            return
        self.send_response(204)
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self._send_policy()
        self.end_headers()

    def _is_for_the_trace(self) -> bool:
        port = self.server.server_port
        here = self.headers.get("Host") in (f"127.0.0.1:{port}", f"localhost:{port}")
        if not here or self.headers.get("Origin") != PERFETTO:
            self.send_error(403)
        elif self.path != self.server.path:
            self.send_error(404)
        else:
            return True
        return False

    def _send_policy(self) -> None:
        """Perfetto's page may read it; shown by itself it may do nothing, whatever it holds."""
        self.send_header("Access-Control-Allow-Origin", PERFETTO)
        self.send_header("Content-Security-Policy", "default-src 'none'; sandbox")
        self.send_header("X-Content-Type-Options", "nosniff")

    def version_string(self) -> str:
        """The name in the Server header; versions are nobody's business."""
        return "advisor"

    def log_message(self, format: str, *args: object) -> None:
        """Silent: requests are no news to the user."""

"""The server of ``advisor open``: one trace, once, for Perfetto's page and nobody else."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import pytest

from advisor.cli._trace_server import TraceServer
from advisor.cli.open import serve
from advisor.report.perfetto import TraceCrop

_PERFETTO = {"Origin": "https://ui.perfetto.dev"}


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [("", "127.0.0.1", 200), ("/other", "127.0.0.1", 404), ("", "evil.example", 403)],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_server_gives_the_trace_to_perfetto_and_nothing_else(
    path: str, host: str, status: int, method: str
) -> None:
    with TraceServer(b'{"traceEvents":[]}', 0) as server:
        assert server.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        headers = _PERFETTO | {"Host": f"{host}:{server.server_port}"}
        client.request(method, path or server.path, headers=headers)
        answer = client.getresponse()
        body = answer.read()
        thread.join(60)
        assert answer.status == (204 if (status, method) == (200, "OPTIONS") else status)
        assert server.fetched is (status == 200 and method == "GET")
        if status == 200:
            assert body == (b'{"traceEvents":[]}' if method == "GET" else b"")
            assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"


def test_open_serves_the_trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.report.perfetto.PORT", 0)
    bodies: list[bytes] = []
    asked: list[threading.Thread] = []

    def get(url: str) -> None:
        place = urlsplit(url)
        client = http.client.HTTPConnection(place.netloc, timeout=60)
        client.request("GET", place.path, headers=_PERFETTO)
        bodies.append(client.getresponse().read())

    def browser(link: str) -> bool:
        asked.append(threading.Thread(target=get, args=parse_qs(urlsplit(link).fragment)["!/?url"]))
        asked[0].start()
        return True

    monkeypatch.setattr("webbrowser.open", browser)
    serve(TraceCrop('{"traceEvents":[]}', 0, 1, 0, 0), browser=True)
    asked[0].join(60)
    assert bodies == [b'{"traceEvents":[]}']


def test_a_page_that_goes_away_gets_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with TraceServer(bytes(1 << 24), 0) as server:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
            client.sendall(
                f"GET {server.path} HTTP/1.1\r\nHost: {_host(server)}\r\n"
                f"Origin: {_PERFETTO['Origin']}\r\n\r\n".encode()
            )
        server.handle_request()
        assert not server.fetched
    assert "Traceback" not in capfd.readouterr().err


def _host(server: TraceServer) -> str:
    return f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({"Origin": name} for name in ("https://evil.example", "null", "http://ui.perfetto.dev")),
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_nobody_else_who_knows_the_path_gets_anything(headers: dict[str, str], method: str) -> None:
    with TraceServer(b"{}", 0) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        client.request(method, server.path, headers=headers)
        assert client.getresponse().status == 403
        thread.join(60)
        assert not server.fetched


def test_a_connection_on_which_nothing_is_asked_holds_nobody_up() -> None:
    with TraceServer(b"{}", 0) as server:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60):
            server.handle_request()
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
            client.request("GET", server.path, headers=_PERFETTO)
            assert client.getresponse().read() == b"{}"
            thread.join(60)
        assert server.fetched


def test_a_request_that_drips_in_holds_nobody_up() -> None:
    with TraceServer(b"{}", 0) as server:
        served = threading.Thread(target=server.handle_request)
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
            served.start()
            client.sendall(b"GET /")
            for _ in range(60):
                if not served.is_alive():
                    break
                with suppress(OSError):
                    client.sendall(b"x")
                served.join(0.1)
            assert not served.is_alive()
        assert not server.fetched

"""The Hub is asked briefly, whatever answers or does not; no test leaves this machine."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import threading
import time

import pytest

from amp_recipes.hub import hub_is_reachable, work_offline


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@contextlib.contextmanager
def hub(status: int):
    """A server that answers every HEAD so; yields its address and the requests it got."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            requests.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def raw_server(answer: bytes, *, pause: float = 0.0, hold: bool = False):
    """A socket that sends `answer` byte by byte; `hold` keeps the connection open afterwards."""
    closing = threading.Event()

    def serve():
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            for byte in answer:
                if closing.wait(pause):
                    return
                connection.sendall(bytes([byte]))
            if hold:
                closing.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        closing.set()
        thread.join()


@pytest.mark.parametrize(("status", "reachable"), [(200, True), (204, True), (403, False), (404, False), (503, False)])
def test_only_a_good_answer_counts(status, reachable):
    with hub(status) as (endpoint, requests):
        assert hub_is_reachable({"HF_ENDPOINT": endpoint + "/"}, timeout=5) is reachable
        assert len(requests) == 1
        assert requests[0].startswith("/google-bert/")
        assert requests[0].endswith("config.json")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize(("value", "asked"), [("1", 0), ("TRUE", 0), ("yes", 0), ("on", 0), ("0", 1), ("", 1), ("false", 1)])
def test_offline_is_answered_without_asking(variable, value, asked):
    with hub(200) as (endpoint, requests):
        assert hub_is_reachable({"HF_ENDPOINT": endpoint, variable: value}, timeout=5) is (asked == 1)
        assert len(requests) == asked


def test_the_environment_of_the_process_is_read(monkeypatch):
    with hub(200) as (endpoint, requests):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert hub_is_reachable(timeout=5) is False
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
        assert hub_is_reachable(timeout=5) is True
        assert len(requests) == 1


def test_a_closed_port_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert hub_is_reachable({"HF_ENDPOINT": f"http://127.0.0.1:{port}"}, timeout=5) is False


def test_a_server_that_is_silent_or_drips_costs_no_more_than_the_time_out():
    slow = b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100  # every byte comes within a socket's time-out, the whole does not
    for server in (raw_server(b"", hold=True), raw_server(slow, pause=0.05)):
        with server as endpoint:
            start = time.perf_counter()
            assert hub_is_reachable({"HF_ENDPOINT": endpoint}, timeout=0.3) is False
            assert time.perf_counter() - start < 2


@pytest.mark.parametrize("answer", [b"", b"220 smtp.example ready\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_a_server_that_speaks_something_else_is_unreachable(answer):
    with raw_server(answer) as endpoint:
        assert hub_is_reachable({"HF_ENDPOINT": endpoint}, timeout=5) is False


# a thread that dies of an error would fail these through pytest's warning
@pytest.mark.parametrize("endpoint", ["", "hf-mirror.example", "http://", "http://127.0.0.1:port", "http://[::1", "no://where"])
def test_a_malformed_endpoint_is_unreachable(endpoint):
    assert hub_is_reachable({"HF_ENDPOINT": endpoint}, timeout=5) is False


def test_work_offline_tells_the_libraries(monkeypatch):
    environ = {"HF_ENDPOINT": "x"}
    work_offline(environ)
    assert environ == {"HF_ENDPOINT": "x", "HF_HUB_OFFLINE": "1"}
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    work_offline()
    assert os.environ["HF_HUB_OFFLINE"] == "1"

"""A viewer of a run's live page, for tests: what its address is, what it shows, and what it may do."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.hil.wall_clock import PATIENCE, Child

LIVE = "{law.correction.baumgarte.alpha: [1, 20]}"
ALPHA = "law.correction.baumgarte.alpha"


def address_of(loop: Child) -> tuple[int, str]:
    """Port and token, as the command says them."""
    loop.wait_for("live page")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]{20,})/", loop.said)
    assert found, loop.said
    return int(found[1]), found[2]


def post(address: tuple[int, str], action: str, values: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", address[0], timeout=PATIENCE)
    try:
        body = json.dumps(values)
        connection.request("POST", f"/{address[1]}/{action}", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def viewer(address: tuple[int, str]) -> Iterator[socket.socket]:
    """A connection that has asked for the pictures."""
    port, token = address
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE)
        connection.connect(("127.0.0.1", port))
        connection.sendall(f"GET /{token}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        yield connection


def messages(connection: socket.socket) -> Iterator[tuple[str, Any]]:
    """Kind and content of what comes, until the end."""
    with connection.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"event: "):
                yield line[7:].strip().decode(), json.loads(next(lines)[6:])

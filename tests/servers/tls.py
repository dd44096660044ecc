"""Encryption in front of a PostgreSQL that was built without it."""

from __future__ import annotations

import select
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["tls_front"]

_PLEASE_ENCRYPT = struct.pack("!ii", 8, 80877103)


@contextmanager
def tls_front(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """A port of loopback behind which the server of `port` takes encrypted connections, and no others."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # either side may go away, and clients that trust nobody do
                if self.request.recv(8, socket.MSG_WAITALL) != _PLEASE_ENCRYPT:
                    return
                self.request.sendall(b"S")
                with (
                    context.wrap_socket(self.request, server_side=True) as client,
                    socket.create_connection(("127.0.0.1", port)) as server,
                ):
                    _relay(client, server)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as front:
        front.daemon_threads = True
        thread = threading.Thread(target=front.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield int(front.server_address[1])
        finally:
            front.shutdown()
            thread.join()


def _relay(client: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        ready = [client] if client.pending() else select.select([client, server], [], [])[0]
        for source, target in ((client, server), (server, client)):
            if source in ready:
                data = source.recv(65536)
                if not data:
                    return
                target.sendall(data)

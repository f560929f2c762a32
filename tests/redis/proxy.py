"""What stands between a client and its server: an address that follows the primary, a cable, a firewall, TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading


class Proxy:
    """Passes bytes on to a port, in threads of its own. What is frozen stays open and says nothing any more."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = port
        self._tls = tls
        self._frozen = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def freeze(self) -> None:
        """Nothing passes on what is connected now; new connections are not concerned."""
        self._frozen.set()
        self._frozen = threading.Event()

    def cut(self) -> None:
        """End what is connected now."""
        pairs, self._pairs = self._pairs, []
        for wire in (wire for pair in pairs for wire in pair):
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        self._pairs.append((client, server))
        frozen = self._frozen
        back = threading.Thread(target=_pass, args=(server, client, frozen), daemon=True)
        back.start()
        _pass(client, server, frozen)
        back.join()
        client.close()
        server.close()


def _pass(source: socket.socket, target: socket.socket, frozen: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while read := source.recv(1 << 16):
            if not frozen.is_set():
                target.sendall(read)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)

"""The wire of a join, by hand: who asks for a certificate (common/pki/join.h), and who stands between."""
import contextlib
import socket
import ssl
import struct
import threading

import cluster

GREETING = b"RMJOIN1\n"
LIMIT = 20 * cluster.SLOW


class Token:
    """rm1/HOST:PORT/AUTHORITY/ID/SECRET."""

    def __init__(self, line):
        self.version, self.address, self.authority, self.id, self.secret = line.split("/")

    def line(self):
        return "/".join((self.version, self.address, self.authority, self.id, self.secret))

    def at(self, address):
        """The same token, with another coordinator's address."""
        token = Token(self.line())
        token.address = address
        return token


def _read(stream, size):
    data = b""
    while len(data) < size:
        chunk = stream.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the coordinator ended the connection")
        data += chunk
    return data


def ask(access, token, signing_request, authorities, name=""):
    """A JoinReply; `access`: the messages of access.proto, `signing_request`: DER."""
    request = access.JoinRequest(token_id=token.id, secret=token.secret, name=name, signing_request=signing_request)
    context = ssl.create_default_context(cafile=authorities)
    host, port = token.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT) as plain:
        plain.sendall(GREETING)
        with context.wrap_socket(plain, server_hostname="coordinator.ringmaster") as stream:
            message = request.SerializeToString()
            stream.sendall(struct.pack(">I", len(message)) + message)
            [size] = struct.unpack(">I", _read(stream, 4))
            return access.JoinReply.FromString(_read(stream, size))


class Relay:
    """Somebody on the way to `target`, who keeps what clients say (`heard`, one a connection) and what they
    are answered. With `certificate`, chain and key, it answers itself, in TLS behind a greeting."""

    def __init__(self, host, target, certificate=None):
        self.target, self.certificate = target, certificate
        self.heard, self.answered = [], []
        self._listener = socket.create_server((host, 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._open = []
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT)
        for each in (self._listener, *self._open):
            each.close()

    def _start(self, function, *arguments):
        self._threads.append(threading.Thread(target=function, args=arguments))
        self._threads[-1].start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                heard, answered = bytearray(), bytearray()
                self.heard.append(heard)
                self.answered.append(answered)
                if self.certificate:
                    self._start(self._answer, client, heard)
                    continue
                host, port = self.target.rsplit(":", 1)
                server = socket.create_connection((host, int(port)), LIMIT)
                server.settimeout(None)
                self._open.append(server)
                self._start(self._pass, client, server, heard)
                self._start(self._pass, server, client, answered)

    @staticmethod
    def _pass(source, target, record):
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                record += chunk
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _answer(self, client, heard):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        with contextlib.suppress(OSError):  # ssl.SSLError is one
            heard += _read(client, len(GREETING))
            with context.wrap_socket(client, server_side=True) as stream:
                while chunk := stream.recv(65536):
                    heard += chunk

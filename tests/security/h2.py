"""HTTP/2 (RFC 9113) as no library would send it: frames byte by byte, over TLS with a certificate or bare, for
those attacks that a gRPC client cannot be made to do."""
import os
import socket
import ssl
import struct
import warnings

import cluster

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
MAX_FRAME = 16 << 10  # what a peer takes that says nothing else
CANCEL = 8


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def number(value, bits=7):
    """HPACK's integer (RFC 7541, 5.1) behind a prefix of zeros."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    encoded, value = bytearray([most]), value - most
    while value >= 128:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def field(name, value):
    """A header field, literal and without indexing: one costs the other side as much as another."""
    name, value = (text.encode() if isinstance(text, str) else text for text in (name, value))
    return b"\0" + number(len(name)) + name + number(len(value)) + value


def request(method, *fields):
    """The header block of a gRPC call."""
    return b"".join(field(name, value) for name, value in (
        (":method", "POST"), (":scheme", "https"), (":path", method), (":authority", "coordinator.ringmaster"),
        ("te", "trailers"), ("content-type", "application/grpc"), *fields))


def call(stream, method, *fields):
    """HEADERS of a call whose messages are still to come."""
    return frame(HEADERS, END_HEADERS, stream, request(method, *fields))


def message(stream, payload, length=None, flags=0):
    """DATA with a message of gRPC; `length`: what it says it has."""
    length = len(payload) if length is None else length
    return frame(DATA, flags, stream, struct.pack(">BI", 0, length) + payload)


def split(stream, block, size=MAX_FRAME):
    """A header block of any length, as HEADERS and CONTINUATION."""
    parts = [block[at:at + size] for at in range(0, len(block), size)]
    for index, part in enumerate(parts):
        last = END_HEADERS if index == len(parts) - 1 else 0
        yield frame(CONTINUATION if index else HEADERS, last, stream, part)


def tls_settings(pki=None):
    """Of whoever has the certificate in `pki`, a worker's folder, or none. The other side is not checked."""
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.check_hostname, settings.verify_mode = False, ssl.CERT_NONE
    settings.set_alpn_protocols(["h2"])
    if pki:
        settings.load_cert_chain(pki / "certificate.pem", pki / "key.pem")
    return settings


def connect(address, source=None, timeout=20):
    """A bare connection to host:port; `source`: the address that it comes from."""
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout * cluster.SLOW, (source, 0) if source else None)


class Connection:
    """Over TLS, when `settings` are given. It reads only what it is told to, and acknowledges nothing."""

    def __init__(self, address, settings=None, begin=True):
        self.socket = connect(address)
        if settings:
            self.socket = settings.wrap_socket(self.socket, server_hostname="coordinator.ringmaster")
        self._read = b""
        if begin:
            self.send(PREFACE + frame(SETTINGS))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        """Whether the other side still takes them."""
        try:
            self.socket.sendall(b"".join(frames))
        except OSError:
            return False
        return True

    def frames(self):
        """What comes until the other side ends it, or is silent for longer than it may be: TimeoutError."""
        while True:
            try:
                chunk = self.socket.recv(1 << 16)
            except (ConnectionError, ssl.SSLError):
                return
            if not chunk:
                return
            self._read += chunk
            while len(self._read) >= 9:
                length = int.from_bytes(self._read[:3], "big")
                if len(self._read) < 9 + length:
                    break
                kind, flags, stream = struct.unpack(">BBI", self._read[3:9])
                payload, self._read = self._read[9:9 + length], self._read[9 + length:]
                yield kind, flags, stream, payload

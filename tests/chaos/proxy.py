"""A TCP proxy in front of one address, whose connections a test can delay, stop, reset and corrupt.

One thread of its own. Pieces of a direction stay in order; `stall` keeps bytes back without ending
anything, as a link that silently drops does for as long as TCP retries.
"""
import collections
import selectors
import socket
import struct
import threading
import time

PIECE = 1 << 18
BACKLOG = 8 << 20  # bytes kept for one direction, then reading from its source pauses

FORWARD, BACKWARD = "forward", "backward"  # from who connected, to who connected


class Pipe:
    """One direction of one connection."""

    def __init__(self, source, sink, way):
        self.source = source
        self.sink = sink
        self.way = way
        self.pieces = collections.deque()  # (when it may go, bytes)
        self.held = 0
        self.ended = False  # the source has sent its last byte


class Proxy:
    def __init__(self, listen, target):
        """`listen`, `target`: (host, port)."""
        self.target = target
        self.connections = 0  # ever made
        self.corrupted = 0    # bytes ever
        self._delay = 0.0
        self._stalled = frozenset()
        self._corrupt = 0
        self._reset = False
        self._stopping = False
        self._mutex = threading.Lock()
        self._pipes = []
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._server.bind(listen)
        self._server.listen(64)
        self._server.setblocking(False)
        self.address = self._server.getsockname()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    # ---- what a test may do ---------------------------------------------------------------------

    def delay(self, seconds):
        """Every byte that comes from now on waits so long."""
        self._set("_delay", seconds)

    def stall(self, *ways):
        """Keeps the bytes of these directions back; none: lets all go on."""
        self._set("_stalled", frozenset(ways))

    def reset(self):
        """Ends every connection with a TCP reset."""
        self._set("_reset", True)

    def corrupt(self, pieces=1):
        """Flips one bit in the middle of each of the next large pieces."""
        self._set("_corrupt", pieces)

    def stop(self):
        self._set("_stopping", True)
        self._thread.join(10)

    def _set(self, name, value):
        with self._mutex:
            setattr(self, name, value)
        self._wake_out.send(b"x")

    # ---- its thread -----------------------------------------------------------------------------

    def _run(self):
        while True:
            with self._mutex:
                stopping, reset, self._reset = self._stopping, self._reset, False
                delay, stalled = self._delay, self._stalled
            if stopping or reset:
                for pipe in list(self._pipes):
                    self._drop(pipe)
            if stopping:
                self._server.close()
                return
            self._wait(stalled)
            self._flush(delay, stalled)

    def _wait(self, stalled):
        now = time.monotonic()
        timeout = 0.5
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ, self._accept)
            selector.register(self._wake_in, selectors.EVENT_READ, self._drain_wake)
            wanted = {}
            for pipe in self._pipes:
                if not pipe.ended and pipe.held < BACKLOG:
                    wanted.setdefault(pipe.source, [0, []])
                    wanted[pipe.source][0] |= selectors.EVENT_READ
                    wanted[pipe.source][1].append(pipe)
                if pipe.pieces and pipe.way not in stalled:
                    due = pipe.pieces[0][0] - now
                    if due > 0:
                        timeout = min(timeout, due)
                        continue
                    wanted.setdefault(pipe.sink, [0, []])
                    wanted[pipe.sink][0] |= selectors.EVENT_WRITE
            for sock, (events, pipes) in wanted.items():
                selector.register(sock, events, pipes)
            for key, events in selector.select(timeout):
                if callable(key.data):
                    key.data()
                elif events & selectors.EVENT_READ:
                    for pipe in key.data:
                        self._read(pipe)

    def _drain_wake(self):
        self._wake_in.recv(4096)

    def _accept(self):
        try:
            near, _ = self._server.accept()
        except OSError:
            return
        far = socket.socket()
        try:
            far.settimeout(1)
            far.connect(self.target)
        except OSError:
            self._abort(near)
            far.close()
            return
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        self._pipes += [Pipe(near, far, FORWARD), Pipe(far, near, BACKWARD)]

    def _read(self, pipe):
        if pipe not in self._pipes:
            return
        try:
            data = pipe.source.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            self._drop(pipe)
            return
        if not data:
            pipe.ended = True
            return
        with self._mutex:
            delay = self._delay
            spoil = self._corrupt > 0 and len(data) >= 4096 and pipe.way == FORWARD
            self._corrupt -= spoil
        if spoil:
            data = bytearray(data)
            data[len(data) // 2] ^= 1
            self.corrupted += 1
        pipe.pieces.append((time.monotonic() + delay, memoryview(bytes(data))))
        pipe.held += len(data)

    def _flush(self, delay, stalled):
        now = time.monotonic()
        for pipe in list(self._pipes):
            if pipe.way in stalled:
                continue
            while pipe in self._pipes and pipe.pieces and (delay == 0 or pipe.pieces[0][0] <= now):
                due, data = pipe.pieces[0]
                try:
                    sent = pipe.sink.send(data)
                except BlockingIOError:
                    break
                except OSError:
                    self._drop(pipe)
                    break
                pipe.held -= sent
                if sent < len(data):
                    pipe.pieces[0] = (due, data[sent:])
                    break
                pipe.pieces.popleft()
            if pipe.ended and not pipe.pieces:
                # A half-closed connection is of no use to gRPC: both ends learn of the end.
                self._drop(pipe, abort=False)

    def _drop(self, pipe, abort=True):
        """Ends the connection of this pipe: with a reset, or with what was sent before."""
        if pipe not in self._pipes:
            return  # with its other direction
        ends = {pipe.source, pipe.sink}
        self._pipes = [other for other in self._pipes if other.source not in ends]
        for sock in ends:
            if abort:
                self._abort(sock)
            else:
                sock.close()

    @staticmethod
    def _abort(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

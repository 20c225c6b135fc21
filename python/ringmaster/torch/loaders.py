"""Processes that read the samples of coming shards while this one computes: forks, each with a socket to it.

A request is samples of one step; its answer a memory file, in which the numbers of tensors and arrays lie at multiples
of 64 bytes, as torch's own memory does, and behind them the pickled rest. What a loader cannot do, or does not live to
do, is read where it is wanted, which is also where an exception belongs.
"""
import collections
import ctypes
import io
import mmap
import multiprocessing
import os
import pickle
import signal
import socket
import struct
import sys

import torch

from ringmaster import core

_ALIGNMENT = 64
_REQUEST = struct.Struct("<QQ")   # step, seed; then the samples, uint64 each
_ANSWER = struct.Struct("<QQ")    # where the pickled part begins, its bytes; 0: there is none
_DEATH_SIGNAL = 1                 # PR_SET_PDEATHSIG


class Loaders:
    """`number` processes that call load(samples, seed, step), which begin with the first request."""

    def __init__(self, number, load):
        self._number, self._load = number, load
        self._loaders = []

    def expect(self, step, seed, samples):
        """These will be taken, if nothing comes between: told once."""
        if any(loader.has(step, samples) for loader in self._loaders):
            return
        if len(self._loaders) < self._number:
            self._loaders.append(_Loader(self._load))
            loader = self._loaders[-1]
        else:
            loader = min(self._loaders, key=_Loader.waits)
        loader.ask(step, seed, samples)

    def take(self, step, samples):
        """What load gave for them; KeyError where it has to be called. What was expected of earlier steps is forgotten."""
        found = []
        for loader in list(self._loaders):
            try:
                loader.forget(step)
                if loader.has(step, samples):
                    found.append(loader.take(step, samples))
            except _Gone as gone:
                print(f"ringmaster: a process that reads samples {gone}; what it had is read here, and another one begins",
                      file=sys.stderr, flush=True)
                self._loaders.remove(loader)
        if not found or found[0] is None:
            raise KeyError(step)
        return _load(*found[0])


class _Gone(Exception):
    """A loader ended: how."""


class _Loader:
    """One process. It answers in the order in which it is asked."""

    def __init__(self, load):
        self._lane, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked = collections.deque()  # (step, samples)
        self._process = multiprocessing.get_context("fork").Process(target=_serve, args=(theirs, load, os.getpid()), daemon=True)
        self._process.start()
        theirs.close()

    def waits(self):
        return len(self._asked)

    def has(self, step, samples):
        return (step, samples) in self._asked

    def ask(self, step, seed, samples):
        self._asked.append((step, samples))
        try:
            self._lane.send(_REQUEST.pack(step, seed) + struct.pack(f"<{len(samples)}Q", *samples))
        except OSError:
            pass  # told where it is taken

    def forget(self, step):
        """Answers to what was asked of steps before this one, which nobody took."""
        while self._asked and self._asked[0][0] < step:
            self._answer()

    def take(self, step, samples):
        """The answer's (memory, place, bytes), None where it could not be had; what was asked before it is forgotten."""
        while True:
            asked, answer = self._asked[0], self._answer()
            if asked == (step, samples):
                return answer

    def _answer(self):
        try:
            data, files, _, _ = socket.recv_fds(self._lane, _ANSWER.size, 1)
        except OSError:
            data, files = b"", []
        if not data:
            self._lane.close()
            self._process.join()
            code = self._process.exitcode
            raise _Gone(f"was killed by signal {-code}" if code < 0 else f"ended with status {code}")
        self._asked.popleft()
        if not files:
            return None
        try:
            return mmap.mmap(files[0], 0), *_ANSWER.unpack(data)
        finally:
            os.close(files[0])


# ---- in a loader --------------------------------------------------------------------------------------


def _serve(lane, load, parent):
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who trains
    torch.set_num_threads(1)  # others are not there in a fork
    while True:
        request = lane.recv(core.MOST_BYTES)
        if not request:
            return
        step, seed = _REQUEST.unpack_from(request)
        samples = list(struct.unpack_from(f"<{len(request) // 8 - 2}Q", request, _REQUEST.size))
        try:
            file, place, size = _saved(load(samples, seed, step))
        except Exception:  # pylint: disable=broad-except  # raised again where the samples are wanted
            lane.send(_ANSWER.pack(0, 0))
            continue
        socket.send_fds(lane, [_ANSWER.pack(place, size)], [file])
        os.close(file)


# ---- memory -------------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    """Tensors leave their numbers outside, as arrays do."""

    def reducer_override(self, thing):
        if type(thing) is not torch.Tensor or thing.layout != torch.strided or thing.device.type != "cpu" or thing.numel() == 0:
            return NotImplemented
        flat = thing.detach()
        span = 1 + sum((extent - 1) * stride for extent, stride in zip(thing.shape, thing.stride()))
        numbers = flat.as_strided((span,), (1,)).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(numbers), thing.dtype, tuple(thing.shape), thing.stride(), thing.requires_grad)


def _tensor(numbers, dtype, shape, stride, requires_grad):
    return torch.frombuffer(numbers, dtype=dtype).as_strided(shape, stride).requires_grad_(requires_grad)


def _saved(batch):
    """A memory file with a batch in it; where its pickled part begins, and how long it is."""
    stream, buffers = io.BytesIO(), []
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(batch)
    parts, places, end = [], [], 0
    for buffer in buffers:
        raw = buffer.raw()
        places.append((end, raw.nbytes))
        gap = -raw.nbytes % _ALIGNMENT
        parts += [raw, b"\0" * gap]
        end += raw.nbytes + gap
    rest = pickle.dumps((stream.getvalue(), places))
    return core.memory_file("batch", [part for part in (*parts, rest) if len(part)]), end, len(rest)


def _load(memory, place, size):
    whole = memoryview(memory)
    stream, places = pickle.loads(whole[place:place + size])
    return pickle.loads(stream, buffers=[whole[begin:begin + count] for begin, count in places])

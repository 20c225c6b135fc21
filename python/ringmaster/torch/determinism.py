"""What makes torch compute the same bits again, and the libraries that decide which bits those are."""
import contextlib
import ctypes
import functools
import os
import platform
import re
import subprocess
import sys

import numpy
import torch

from ringmaster import core

_IMPORTED = ("torchvision", "torchaudio", "transformers", "timm", "peft", "PIL")  # named where a script has them
_SETTINGS = ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
_OPENBLAS_SUFFIXES = ("", "64_")  # of builds with 64-bit integers
# What OpenBLAS calls its kernels without AVX, one of which it takes for a CPU that is newer than itself.
_WITHOUT_AVX = ("Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Nano", "Athlon", "Opteron", "Opteron_SSE3",
                "Barcelona", "Bobcat")
_KERNELS = {"avx512_bf16": "Cooperlake", "avx512vl": "SkylakeX", "avx2": "Haswell"}  # what a CPU must have for which ones
_BLAS = re.compile(r"/(lib(?:[a-z_]*blas|blis|mkl_core|mkl_rt)[^/]*\.so[^/]*)$")


def settle(hello):
    """Threads and flags, from attach on. What `deterministic` refuses raises a RuntimeError at the op."""
    torch.set_num_threads(hello.threads)
    for library in _openblas("set_num_threads"):
        library(hello.threads)
    torch.use_deterministic_algorithms(hello.deterministic)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)
    flags = getattr(getattr(torch, "utils", None), "deterministic", None)
    if flags is not None:
        flags.fill_uninitialized_memory = False  # costs time and moves no bit


@contextlib.contextmanager
def one_thread():
    """Of torch's own, inside: as in a process that reads samples ahead."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check(hello):
    """Refuses what the script changed since."""
    if torch.get_num_threads() != hello.threads:
        raise core.Refused(f"torch.set_num_threads({torch.get_num_threads()}) was called after attach, and threads move "
                           f"bits: this core has {hello.threads}; ringworker --threads-per-core sets it")
    if torch.are_deterministic_algorithms_enabled() != hello.deterministic:
        raise core.Refused("torch.use_deterministic_algorithms() was called after attach: leave it out, because ops that do not "
                           "repeat would give other bits on each core")


def libraries(threads=None):
    """name -> version or property, of everything that moves bits; `threads` where it is known."""
    found = dict(_loaded())
    for name in _IMPORTED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    if threads is not None:
        found["threads"] = str(threads)
        of_blas = {library() for library in _openblas("get_num_threads")}
        if of_blas:
            found["blas_threads"] = " ".join(map(str, sorted(of_blas)))
    return found


def slow_kernels():
    """What to say where OpenBLAS takes kernels that are a fraction of what the CPU can do; else None."""
    core_type = _loaded().get("blas_core")
    if core_type not in _WITHOUT_AVX or os.environ.get("OPENBLAS_CORETYPE"):
        return None
    flags = _cpu_flags()
    better = next((kernels for flag, kernels in _KERNELS.items() if flag in flags), None)
    return better and (f"OpenBLAS does not know this CPU, and its products use kernels for {core_type}, without AVX: those for "
                       f"{better} may be several times as fast, with other bits: OPENBLAS_CORETYPE={better}, in a job file "
                       f"script: {{env: {{OPENBLAS_CORETYPE: {better}}}}}")


def _cpu_flags():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return next((line.split() for line in file if line.startswith("flags")), [])


def _openblas(function):
    """This function of each OpenBLAS that the process has mapped: torch has its own number of threads, and OpenBLAS, where
    it is not built upon OpenMP, another one that came with the environment."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if "openblas" in line}
    found = []
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
        except OSError:  # not its code, or replaced on the disk since
            continue
        for prefix in ("openblas_", "scipy_openblas_"):
            found += [getattr(library, prefix + function + suffix) for suffix in _OPENBLAS_SUFFIXES
                      if hasattr(library, prefix + function + suffix)]
    return found


@functools.lru_cache(maxsize=None)
def _loaded():
    """Asked once; children of a zygote have its answer."""
    config = torch.__config__.show()
    found = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__,
             "blas": _blas(config), "aten": _aten(config)}
    onednn = re.search(r"MKL-DNN v(\S+)", config)
    if onednn:
        found["onednn"] = onednn[1]
    mkl = re.search(r"Math Kernel Library Version (\S+)", config)
    if mkl:
        found["mkl"] = mkl[1]
    if "openblas" in found["blas"]:
        found["blas_core"] = _openblas_core()
    for name in _SETTINGS:
        if name in os.environ:
            found[name.lower()] = os.environ[name]
    return {name: str(value) for name, value in found.items()}


def _blas(config):
    """The files of BLAS that this process has mapped, links followed; else what torch was built with."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        names = {match[1] for match in map(_BLAS.search, map(str.rstrip, file)) if match}
    named = {name for name in names if not name.startswith(("libblas.so", "libcblas.so"))} or names
    built = re.search(r"BLAS_INFO=(\w+)", config)
    return " ".join(sorted(named)) or (built[1] if built else "unknown")


def _aten(config):
    """The instructions that ATen's kernels use."""
    asked = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    if asked is not None:
        return asked()
    said = re.search(r"CPU capability usage: (\S+)", config)
    return said[1] if said else "unknown"


def _openblas_core():
    """The kernels that OpenBLAS takes on this host, which it says when it is loaded anew."""
    said = subprocess.run([sys.executable, "-c", "import numpy"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, env={**os.environ, "OPENBLAS_VERBOSE": "2"}, check=False, text=True)
    core_type = re.search(r"^Core: (\S+)", said.stderr, re.MULTILINE)
    return core_type[1] if core_type else "unknown"

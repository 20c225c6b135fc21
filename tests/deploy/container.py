"""A container with systemd as its first process, over a throw-away copy of this host's root folder.

The copy is an overlay whose upper side is a tmpfs, so that nothing which is installed, started or
deleted inside is seen outside; the network is a loopback of its own. Needs root and a kernel that
allows namespaces and overlays; `why_not` says what is missing.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BOOT = pathlib.Path(__file__).resolve().with_name("boot")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# They belong to the system's own tree: a copy of the root folder alone would lack them.
SAME_FILE_SYSTEM = ("/usr", "/etc", "/var", "/opt")
SETTINGS_OF_THE_HOST = ("etc/systemd/system", "usr/sbin/policy-rc.d", "etc/fstab", "etc/hostname")

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent():
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_until(condition, what, timeout):
    """Polls `condition` until it is true, and returns what it returned; an error at the deadline."""
    end = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() >= end:
            raise AssertionError(f"{what}: not within {timeout:.0f} s")
        time.sleep(0.05)
    return result


def _run(*arguments, **options):
    return subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          preexec_fn=_die_with_parent, **{"check": False, "timeout": 60, **options})


def cgroup_layout():
    """v2, hybrid, or None."""
    kind = _run("stat", "-fc", "%T", str(CGROUPS)).stdout.strip()
    if kind == "cgroup2fs":
        return "v2"
    return "hybrid" if (CGROUPS / "systemd").is_dir() and (CGROUPS / "unified").is_dir() else None


def _make_groups(name, layout):
    """A group of its own in every hierarchy, so that the container's systemd sees no other."""
    if layout == "v2":
        hierarchies = {"": CGROUPS}
    else:  # a process can join a cpuset only after its CPUs are set, and systemd does not need it
        hierarchies = {path.name: path for path in CGROUPS.iterdir()
                       if path.is_dir() and not path.is_symlink() and path.name != "cpuset"}
        hierarchies["name=systemd"] = hierarchies.pop("systemd")
        hierarchies[""] = hierarchies.pop("unified")
    own = {controllers: group for _, controllers, group in
           (line.split(":", 2) for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())}
    groups = [pathlib.Path(f"{path}{own.get(controllers, '/')}") / name
              for controllers, path in hierarchies.items()]
    for group in groups:
        group.mkdir(exist_ok=True)
    return groups


def _remove_groups(groups):
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            wait_until(lambda path=folder: _remove_group(path), f"{folder} is empty", 10)


def _remove_group(path):
    """False while a process is in it still."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def why_not():
    """The reason why there can be no container here, or None."""
    if os.geteuid() != 0:
        return "namespaces and overlays need root"
    if not pathlib.Path("/etc/debian_version").exists():
        return "this is not a Debian system"
    for program in ("/lib/systemd/systemd", "unshare", "nsenter", "pivot_root", "ip"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    apart = [path for path in SAME_FILE_SYSTEM if os.path.ismount(path)]
    if apart:
        return f"{' and '.join(apart)} are file systems of their own, and an overlay copies only one"
    if cgroup_layout() is None:
        return "there are no cgroups that systemd could use"
    try:
        _remove_groups(_make_groups(f"ringmaster-probe-{os.getpid()}", cgroup_layout()))
    except OSError as error:
        return f"cgroups cannot be made: {error}"
    with tempfile.TemporaryDirectory(prefix="ringmaster-container-") as folder:
        probe = _run("unshare", "-m", "-p", "-f", "-n", "-C", "sh", "-ec", Container.mounts(folder))
    return f"the kernel refuses: {probe.stderr.strip()}" if probe.returncode != 0 else None


class Container:
    """`mounts` live as long as this object, processes from `boot` to `shut_down`."""

    @staticmethod
    def mounts(folder):
        return (f"mount -t tmpfs tmpfs {folder} && cd {folder} && mkdir upper work root && "
                "mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root")

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-container-"))
        self.booted = None
        self.init = None  # pid of systemd, as this process sees it
        # Holds the mounts; says so with one line.
        self.holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-ec", f"{self.mounts(self.folder)}; echo mounted; exec sleep infinity"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            preexec_fn=_die_with_parent)
        if self.holder.stdout.readline() != "mounted\n":
            raise AssertionError("the container's root folder could not be mounted")
        self.root = pathlib.Path(f"/proc/{self.holder.pid}/root{self.folder}/root")
        # Nothing that this host runs is started in its copy.
        for name in SETTINGS_OF_THE_HOST:
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
                path.mkdir()
            else:
                path.unlink(missing_ok=True)
        self._cgroups = []

    # ---- processes ------------------------------------------------------------------------------

    def boot(self, timeout=60):
        """Starts systemd and waits until it has reached multi-user.target."""
        layout = cgroup_layout()
        self._cgroups = _make_groups(self.folder.name, layout)
        join = "; ".join(f"echo $$ >{path}/cgroup.procs" for path in self._cgroups)
        self.booted = subprocess.Popen(
            ["nsenter", "-m", "-t", str(self.holder.pid), "sh", "-ec",
             f"{join}; exec unshare -m -p -f -u -i -n -C --kill-child {BOOT} {self.folder}/root {layout}"],
            stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        self.init = wait_until(self._find_init, "the container's first process", 10)
        wait_until(lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip()
                   in ("running", "degraded"), "the container's boot", timeout)

    def _find_init(self):
        if self.booted.poll() is not None:
            raise AssertionError(f"the container ended with {self.booted.returncode}")
        children = pathlib.Path(f"/proc/{self.booted.pid}/task/{self.booted.pid}/children")
        for pid in children.read_text().split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                return int(pid)
        return None

    def run(self, *arguments, check=True, timeout=60, env=None):
        """Runs a program inside, as root."""
        environment = [f"{key}={value}" for key, value in (env or {}).items()]
        done = _run("nsenter", "-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w", "-t", str(self.init),
                    "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *environment,
                    *map(str, arguments), timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, arguments))} ended with {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}")
        return done

    def connect(self, address, other, other_address):
        """A network cable between two running containers, with addresses like 192.0.2.1/24."""
        done = _run("ip", "link", "add", "cable", "netns", str(self.init), "type", "veth",
                    "peer", "name", "cable", "netns", str(other.init))
        if done.returncode != 0:
            raise AssertionError(f"the containers cannot be connected: {done.stderr}")
        for host, own in ((self, address), (other, other_address)):
            host.run("ip", "address", "add", own, "dev", "cable")
            host.run("ip", "link", "set", "cable", "up")

    def shut_down(self, timeout=30):
        """As a machine does: systemd stops every unit. The root folder stays, for another boot."""
        self.run("systemctl", "poweroff", "--no-block", check=False)
        try:
            self.booted.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError("the container did not shut down") from None
        finally:
            self._end()

    def _end(self):
        if self.booted is not None and self.booted.poll() is None:
            os.kill(self.init or self.booted.pid, signal.SIGKILL)
            self.booted.wait(20)
        self.booted = self.init = None
        _remove_groups(self._cgroups)
        self._cgroups = []

    def destroy(self, failed=False):
        if failed and self.init is not None:
            journal = self.run("journalctl", "-b", "--no-pager", "-n", "80", check=False)
            sys.stderr.write(f"---- journal of the container\n{journal.stdout}")
        self._end()
        self.holder.kill()
        self.holder.wait(20)
        self.holder.stdout.close()
        self.folder.rmdir()

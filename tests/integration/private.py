"""Runs a test script inside of namespaces that are its own, so that it can have hosts, cut links and fill disks.

Nothing outside of them is mounted, cut or changed: every function here refuses to act unless the
namespaces differ from those that the script was started in.
"""
import os
import subprocess
import sys

_OUTSIDE = "RINGMASTER_OUTSIDE"


def _namespaces():
    return " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt"))


def enter():
    """Returns inside of a network and a mount namespace of this script's own, which begins anew for that; else ends
    it, with the reason."""
    if _OUTSIDE in os.environ:
        return
    command = ["unshare", "--net", "--mount", "--propagation", "private"]
    if os.getuid() != 0:
        command.append("--map-root-user")
    probe = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, text=True,
                           check=False)
    if probe.returncode != 0:
        print(f"SKIP: namespaces cannot be made here: {probe.stderr.strip()}")
        sys.exit(0)
    os.environ[_OUTSIDE] = _namespaces()
    sys.stdout.flush()
    os.execvp(command[0], [*command, sys.executable, *sys.orig_argv[1:]])


def run(*command):
    """Runs a command that changes a namespace."""
    outside = os.environ.get(_OUTSIDE, "").split()
    if len(outside) != 2 or set(outside) & set(_namespaces().split()):
        raise RuntimeError(f"{command}: not in namespaces of our own")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Switch:
    """The script's own host, off loopback, and a host for each name, in a namespace of its own; between them a bridge.
    One in a process, behind enter()."""

    ADDRESS = "198.18.77.254"  # the script's own host; reserved for tests of networks (RFC 2544)

    def __init__(self, names=()):
        self.hosts = {name: f"198.18.77.{number}" for number, name in enumerate(names, 1)}
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "address", "add", f"{self.ADDRESS}/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        run("ip", "route", "add", "local", "198.18.77.128/26", "dev", "switch")
        for name, address in self.hosts.items():
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"to-{name}", "master", "switch", "up")
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    @staticmethod
    def alias(number):
        """Another address of the script's own host; `number` from 0 to 63."""
        return f"198.18.77.{128 + number}"

    def prefix(self, name):
        """Before a command that is to run on this host."""
        return ("ip", "netns", "exec", name)

    def cut(self, *names):
        """These hosts reach nobody, and nobody reaches them."""
        for name in names:
            run("ip", "link", "set", f"to-{name}", "down")

    def join(self, *names):
        for name in names:
            run("ip", "link", "set", f"to-{name}", "up")

    def separate(self, first, second, separate=True):
        """These two do not reach each other; everybody else reaches both."""
        for name in (first, second):
            run("ip", "link", "set", f"to-{name}", "type", "bridge_slave", "isolated", "on" if separate else "off")

    def drop(self, source, target):
        """What `source` sends to `target` is lost without a word; the other direction is whole."""
        run("ip", "-n", source, "neighbour", "replace", self.hosts[target], "lladdr", "02:00:00:00:00:99",
            "dev", "eth0", "nud", "permanent")

    def deliver(self, source, target):
        run("ip", "-n", source, "neighbour", "del", self.hosts[target], "dev", "eth0")

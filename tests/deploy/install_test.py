"""The packages on a system that runs systemd: installed, used, booted, upgraded, removed, purged.

The system is always a container (container.py), also where this host runs systemd itself: a test
installs nothing on the machine that it runs on.
"""
import importlib.util
import json
import pathlib
import re
import shutil
import tempfile
import unittest

import container
import debian_package
from container import wait_until
from debian_package import DAEMONS

JOB_FILE = "/usr/share/ringmaster/examples/alexnet-cifar10.yaml"
SCRIPT = "/usr/share/ringmaster/examples/python/gpt.py"
OPERATIONS = debian_package.SOURCE / "docs/operations.md"
OWN = re.compile(r"ringmaster|ringworker|ringctl")


class Host(container.Container):
    """A running container with the packages' files in it."""

    def __init__(self, packages):
        super().__init__()
        for name, package in zip(("package.deb", "python.deb"), packages):
            shutil.copy(package, self.root / "root" / name)
        self.boot()

    def install(self):
        self.run("apt-get", "install", "-y", "-q", "/root/package.deb",
                 env={"DEBIAN_FRONTEND": "noninteractive"}, timeout=120)

    def make_data(self):
        self.run("ringctl", "dataset", "make", "cifar10", "/var/lib/ringworker/data/cifar10",
                 "--train", 256, "--test", 64)

    def ringctl(self, *arguments, env=None, **options):
        return json.loads(self.run("ringctl", *arguments, "-o", "json", env=env, **options).stdout)

    def wait_for_workers(self, count=1, env=None):
        """The workers' entries in `ringctl workers`, once there are so many."""
        def attached():
            done = self.run("ringctl", "workers", "-o", "json", check=False, env=env)
            workers = json.loads(done.stdout)["workers"] if done.returncode == 0 else []
            return len(workers) == count and workers
        return wait_until(attached, f"{count} workers are attached", 30)

    def run_job(self, *settings, env=None):
        """The status of the example job, one short epoch of it, when it ended."""
        job = self.ringctl("submit", JOB_FILE, "--set", "epochs=1", "--set", "batch=64", *settings,
                           env=env)["job_id"]
        return self.ringctl("wait", job, "--timeout", "90s", check=False, timeout=120, env=env)

    def show(self, daemon, name):
        return self.run("systemctl", "show", "--value", "-p", name, daemon).stdout.strip()

    def traces(self):
        """What of the package is on the disk, but for logs, and its lines in user databases."""
        found = self.run("find", "/etc", "/usr", "/var", "/run", "-xdev", "(", "-path", "/var/log",
                         "-o", "-path", "/var/cache/apt", ")", "-prune", "-o", "-name", "*ring*",
                         "-print").stdout
        users = self.run("getent", "passwd").stdout + self.run("getent", "group").stdout
        return {line for line in (found + users).splitlines() if OWN.search(line)}


class HostTest(unittest.TestCase):
    """Gives every test the package, and hosts whose journal is printed when it fails."""

    def setUp(self):
        problem = container.why_not()
        if problem:
            raise unittest.SkipTest(f"no container with systemd can be made: {problem}")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-install-"))
        self.addCleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        self.packages = debian_package.make_packages(folder)

    def make_host(self):
        host = Host(self.packages)
        self.addCleanup(lambda: host.destroy(self._failed()))
        return host

    def _failed(self):
        # unittest has no public way to ask in a cleanup, and _outcome.success begins anew there.
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])


class InstallTest(HostTest):
    """One life of an installation, as a story: each method is a chapter, in order."""

    def setUp(self):
        super().setUp()
        self.host = self.make_host()

    def assert_running(self):
        for daemon in DAEMONS:
            self.assertEqual(self.host.show(daemon, "ActiveState"), "active", daemon)
            pid = self.host.show(daemon, "MainPID")
            owner = self.host.run("stat", "-c", "%U", f"/proc/{pid}").stdout
            self.assertEqual(owner.strip(), daemon)

    # ---- chapters -------------------------------------------------------------------------------

    def test_a_life_of_an_installation(self):
        before = self.host.traces()
        self.install()
        job = self.train()
        self.daemons_come_back_after_a_crash()
        self.wrong_flags_are_not_tried_again()
        self.daemons_start_at_boot(job)
        self.settings_survive_an_upgrade()
        self.remove(job)
        self.purge(before)

    def install(self):
        self.host.install()
        self.assertEqual(self.host.wait_for_workers()[0]["state"], "FREE")
        self.assert_running()
        for daemon in DAEMONS:
            enabled = self.host.run("systemctl", "is-enabled", daemon).stdout.strip()
            self.assertEqual(enabled, "enabled")
            self.assertEqual(self.host.run("stat", "-c", "%U %a", f"/var/lib/{daemon}").stdout.strip(),
                             f"{daemon} 750")

    def train(self):
        """The id of a job that succeeded."""
        self.host.make_data()
        status = self.host.run_job()
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertTrue(status["checkpoint"]["path"].startswith("/var/lib/ringmaster/"))
        manifest = f"{status['checkpoint']['path']}/manifest.json"
        self.assertEqual(self.host.run("sha256sum", manifest).stdout.split()[0],
                         status["checkpoint"]["sha256"])
        return status["job_id"]

    def daemons_come_back_after_a_crash(self):
        for daemon in DAEMONS:
            self.host.run("systemctl", "kill", "--signal=KILL", daemon)
        for daemon in DAEMONS:
            wait_until(lambda name=daemon: self.host.show(name, "NRestarts") == "1", f"{daemon} again", 20)
        self.host.wait_for_workers()
        self.assert_running()

    def wrong_flags_are_not_tried_again(self):
        settings = self.host.root / "etc/ringmaster/ringworker.env"
        shown = settings.read_text()
        self.host.run("sh", "-c", "echo RINGWORKER_OPTIONS=--nonsense >>/etc/ringmaster/ringworker.env")
        self.host.run("systemctl", "restart", "ringworker", check=False)
        wait_until(lambda: self.host.show("ringworker", "ActiveState") == "failed", "ringworker fails", 20)
        self.assertEqual(self.host.show("ringworker", "ExecMainStatus"), "2")
        self.assertIn("--nonsense", self.host.run("journalctl", "-u", "ringworker", "-b").stdout)
        # Right ones are used, and stay for the chapters that follow.
        self.host.run("sh", "-c", "cat >/etc/ringmaster/ringworker.env <<'END'\n"
                      f"{shown}RINGWORKER_OPTIONS=--name renamed --memory-per-core 2GiB\nEND")
        self.host.run("systemctl", "restart", "ringworker")
        wait_until(lambda: self.host.wait_for_workers()[0]["name"] == "renamed", "the new name", 20)

    def daemons_start_at_boot(self, job):
        self.host.shut_down()
        self.host.boot()
        self.assertEqual(self.host.wait_for_workers()[0]["name"], "renamed")
        self.assert_running()
        self.assertEqual(self.host.ringctl("status", job)["state"], "SUCCEEDED")

    def settings_survive_an_upgrade(self):
        self.host.run("systemctl", "disable", "ringworker")
        pids = [self.host.show(daemon, "MainPID") for daemon in DAEMONS]
        self.host.run("dpkg", "--install", "/root/package.deb")
        self.assertEqual(self.host.wait_for_workers()[0]["name"], "renamed")
        self.assertNotEqual(pids, [self.host.show(daemon, "MainPID") for daemon in DAEMONS])
        disabled = self.host.run("systemctl", "is-enabled", "ringworker", check=False).stdout.strip()
        self.assertEqual(disabled, "disabled")

    def remove(self, job):
        self.host.run("apt-get", "remove", "-y", "-q", "ringmaster", timeout=120)
        for daemon in DAEMONS:
            journal = self.host.run("journalctl", "-u", daemon, "-b", "-o", "cat").stdout
            self.assertIn(f"{daemon}.service: Deactivated successfully.", journal)
            self.assertFalse((self.host.root / "usr/bin" / daemon).exists())
        self.assertTrue((self.host.root / "etc/ringmaster/ringworker.env").exists())
        self.assertIn(job, self.host.run("ls", "-R", "/var/lib/ringmaster").stdout)

    def purge(self, before):
        self.host.run("dpkg", "--purge", "ringmaster")
        self.assertEqual(self.host.traces(), before)


@unittest.skipIf(importlib.util.find_spec("torch") is None, "there is no torch")
class ScriptTest(HostTest):
    """PyTorch scripts with the two packages and Debian's python3-torch, and nothing else."""

    def test_a_script_trains_on_the_service_and_by_itself(self):
        host = self.make_host()
        before = host.traces()
        host.install()
        host.run("dpkg", "--install", "/root/python.deb")
        host.wait_for_workers()
        host.run("ringctl", "run", SCRIPT, "--set", "steps=3", timeout=120)
        [status] = host.ringctl("ps")["jobs"]
        self.assertEqual((status["state"], status["step"]), ("SUCCEEDED", 3), status["reason"])
        self.assertIn("core0: step 0: loss ", host.run("ringctl", "logs", status["job_id"]).stdout)

        host.run("sh", "-ec", f"mkdir /root/gpt; cd /root/gpt; cp {SCRIPT} .; /usr/bin/python3 gpt.py --steps 3", timeout=120)
        folders = status["checkpoint"]["path"], "/root/gpt/gpt.checkpoint"
        service, alone = (host.run("sha256sum", f"{folder}/model.safetensors").stdout.split()[0] for folder in folders)
        self.assertEqual(service, alone)

        host.run("rm", "-r", "/root/gpt")
        host.run("apt-get", "purge", "-y", "-q", "python3-ringmaster", "ringmaster", timeout=120)
        self.assertEqual(host.traces(), before)


class TwoHostsTest(HostTest):
    """The layout of docs/operations.md, taken from that page."""

    def commands(self):
        """(host, command) of each line that the page has."""
        page = OPERATIONS.read_text()
        block = page[page.index("### Two hosts"):].split("```")[1]
        return [(host, command.replace("sudo ", "")) for host, command in re.findall(r"(?m)^([ab])\$ (.*)$", block)]

    def test_two_hosts_train_one_job(self):
        hosts = {"a": self.make_host(), "b": self.make_host()}
        hosts["a"].connect("192.0.2.1/24", hosts["b"], "192.0.2.2/24")
        for host in hosts.values():
            host.install()
            host.make_data()
        *commands, (_, submit) = self.commands()
        self.assertLessEqual(len(commands), 9)
        self.assertIn("ringctl submit", submit)
        tokens = []
        for name, command in commands:
            for word, token in zip(("TOKEN_A", "TOKEN_B"), tokens):
                command = command.replace(word, token)
            said = hosts[name].run("sh", "-c", command).stdout
            if "token create" in command:
                tokens.append(said.strip())
        self.assertEqual(len(tokens), 2)

        workers = hosts["a"].wait_for_workers(2)
        self.assertEqual({worker["name"]: worker["ring_address"] for worker in workers},
                         {"a": "192.0.2.1:7701", "b": "192.0.2.2:7701"})
        status = hosts["a"].run_job("--set", "workers.min=2")
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(sorted(worker["name"] for worker in status["workers"]), ["a", "b"])
        self.assertTrue(all(worker["ring_bytes"] > 0 for worker in status["workers"]))


if __name__ == "__main__":
    debian_package.main()

"""Two workers in two network namespaces, on addresses that are not loopback."""
import os
import shutil
import subprocess
import unittest

import cluster

NAMES = [f"ringmaster-{os.getpid()}-{i}" for i in (1, 2)]
ADDRESSES = ["198.18.77.1", "198.18.77.2"]  # reserved for tests of networks (RFC 2544)


def ip(*arguments, namespace=None):
    prefix = ["ip", "-n", namespace] if namespace else ["ip"]
    return subprocess.run([*prefix, *arguments], capture_output=True, text=True, check=False)


def make_namespaces():
    """Two namespaces with a veth pair between them; the reason why that is not possible, or None."""
    if shutil.which("ip") is None:
        return "there is no program ip (package iproute2)"
    steps = [ip("netns", "add", name) for name in NAMES]
    # Named inside the first namespace from the start, so that the host never sees the pair.
    steps.append(ip("link", "add", "veth1", "type", "veth", "peer", "name", "veth2", "netns", NAMES[1],
                    namespace=NAMES[0]))
    for i, name in enumerate(NAMES):
        steps.append(ip("address", "add", f"{ADDRESSES[i]}/24", "dev", f"veth{i + 1}", namespace=name))
        steps.append(ip("link", "set", f"veth{i + 1}", "up", namespace=name))
        steps.append(ip("link", "set", "lo", "up", namespace=name))
    problems = [step.stderr.strip() for step in steps if step.returncode != 0]
    return problems[0] if problems else None


def remove_namespaces():
    for name in NAMES:
        ip("netns", "delete", name)


class NamespacesTest(cluster.ClusterTest):
    def setUp(self):
        self.addCleanup(remove_namespaces)
        problem = make_namespaces()
        if problem:
            raise unittest.SkipTest(f"SKIP: network namespaces cannot be made here: {problem}")
        super().setUp()

    def inside(self, i):
        return ("ip", "netns", "exec", NAMES[i])

    def test_a_ring_across_two_namespaces_gives_the_checkpoint_of_one_host(self):
        running = self.cluster
        job = cluster.job_spec(model={"name": "alexnet", "batch_norm": True, "dropout": 0.2},
                               epochs=1)
        running.make_data()
        running.start_coordinator()
        running.start_worker("alone", cores=2)
        expected = running.run_job(job)["checkpoint"]["sha256"]
        running.stop()

        across = cluster.Cluster()
        self.addCleanup(lambda: across.destroy(self._failed()))
        across.make_data()
        across.start_coordinator(listen=f"{ADDRESSES[0]}:0", prefix=self.inside(0), extra=["--insecure"])
        for i, name in enumerate(("a", "b")):
            across.start_worker(name, listen=f"{ADDRESSES[i]}:0", advertise=ADDRESSES[i],
                                prefix=self.inside(i), extra=["--insecure"], wait=False)
        across.prefix = self.inside(0)
        cluster.wait_until(lambda: set(across.attached()) == {"a", "b"}, "both workers attach")
        for worker in across.attached().values():
            self.assertIn(worker["ring_address"].rsplit(":", 1)[0], ADDRESSES)
        status = across.run_job({**job, "workers": {"min": 2, "max": 2}})
        self.assertEqual(status["checkpoint"]["sha256"], expected)
        self.assertTrue(all(worker["ring_bytes"] > 0 for worker in status["workers"]))
        across.stop()


if __name__ == "__main__":
    cluster.main()

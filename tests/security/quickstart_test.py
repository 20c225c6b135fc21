"""README's "Two machines", line by line as the page has it, on two hosts of the network."""
import pathlib
import re
import shlex

import cluster  # noqa: I001  before grpc
import two_hosts

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
LIMIT = 120  # seconds until the job has its workers: nobody shall need longer, by far


def setUpModule():
    two_hosts.set_up()


class QuickstartTest(two_hosts.HostsTest):
    def lines(self):
        """(host, words) of each line; in the background where it ends with &."""
        block = README.read_text().split("## Two machines")[1].split("```")[1]
        found = re.findall(r"(?m)^([ab])\$ (.*)$", block)
        self.assertEqual(len(found), len(block.strip().splitlines()), "a line of the page was not understood")
        return found

    def on_host(self, host):
        """In front of a program: on that host, under its name, in a folder of its own that has the data."""
        folder = self.cluster.folder / host
        folder.mkdir(exist_ok=True)
        if not (folder / "data").exists():
            (folder / "data").symlink_to(self.cluster.data_root)
        number = {"a": two_hosts.INSIDE, "b": two_hosts.OUTSIDE}[host]
        return (*two_hosts.on(number), "unshare", "--uts", "sh", "-c",
                f"hostname host-{host}; cd {folder}; PATH={cluster.BIN}:$PATH exec \"$@\"", "sh")

    def test_the_lines_of_the_readme(self):
        lines = self.lines()
        self.assertLessEqual(len(lines), 10)
        job = self.cluster.write_job({**two_hosts.JOB, "workers": {"min": 1, "max": 8}})
        words_of = {"192.0.2.1": two_hosts.ADDRESSES[two_hosts.INSIDE], "examples/alexnet-cifar10.yaml": str(job)}
        said = None
        for host, line in lines:
            for here, there in words_of.items():
                line = line.replace(here, there)
            process = self.cluster.spawn(f"{host}-line", shlex.split(line.removesuffix("&")), self.on_host(host))
            if not line.endswith("&"):
                self.assertEqual(process.wait(LIMIT), 0, process.log())
                said = process.out.read_text()
            elif "ringmaster --listen" in line:
                process.line("ringmaster listening on ")
            if "token create" in line:
                words_of["TOKEN"] = said.strip()

        self.cluster.address = f"unix:{self.cluster.folder}/a/state/ringmaster.sock"
        status = self.cluster.status("j0001")
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual({worker["name"] for worker in status["workers"]}, {"host-a", "host-b"})
        self.assertTrue(all(worker["ring_bytes"] > 0 for worker in status["workers"]))
        self.assertEqual(status["checkpoint"]["sha256"], self.expected())


if __name__ == "__main__":
    cluster.main()

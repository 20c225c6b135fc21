"""Every input of the corpus gets a clear error with the right exit code, and the daemons live on."""
import hashlib
import subprocess

import bad_inputs
import cluster

FORMATS = {  # format -> (file that is broken, bytes of its header or of what is checked at its start)
    "cifar10": ("data_batch_1.bin", 1),
    "cifar100": ("train.bin", 2),
    "mnist": ("train-images-idx3-ubyte", 16),
    "mnist --gzip": ("train-images-idx3-ubyte.gz", 10),
}
SIGNALS = ("AddressSanitizer", "LeakSanitizer", "runtime error", "terminate called")


class CorpusTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        running = self.cluster
        running.make_data()
        running.start_coordinator()
        running.start_worker("a")

    def finish(self):
        """The same daemons run a good job to its end and stop cleanly (a leak would end them otherwise)."""
        for process in (self.cluster.coordinator, *self.cluster.workers.values()):
            self.assertTrue(process.running(), process.name)
        self.cluster.wait_free("a")
        self.cluster.run_job(cluster.job_spec())
        self.cluster.stop()

    def check_message(self, done, words):
        for signal in SIGNALS:
            self.assertNotIn(signal, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def test_job_files(self):
        running = self.cluster
        running.submit(bad_inputs.GOOD_FILE)
        for old, new, words in bad_inputs.BAD_FILES:
            with self.subTest(new=new[:60]):
                self.assertIn(old, bad_inputs.GOOD_FILE)
                file = running.write_job(bad_inputs.GOOD_FILE.replace(old, new))
                refused = running.ringctl("submit", file, expect=cluster.USAGE)
                self.assertEqual(refused.stdout, "")
                self.check_message(refused, words)
        self.assertEqual(len(running.json("ps")["jobs"]), 1)
        self.finish()

    def test_command_lines(self):
        running = self.cluster
        job = running.run_job(cluster.job_spec())["job_id"]
        names = {"good": str(running.write_job(bad_inputs.GOOD_FILE)), "data": str(running.data_root / "cifar10"),
                 "new": str(running.folder / "none"), "job": job}
        for words, code, said in bad_inputs.BAD_COMMANDS:
            with self.subTest(command=" ".join(words)[:80]):
                command = [word.format(**names) for word in words]
                # An address of its own in the command must not be followed by another one.
                at = [] if "--coordinator" in words or not words else ["--coordinator", running.address]
                done = subprocess.run([cluster.BIN / "ringctl", *command, *at], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60 * cluster.SLOW, check=False)
                self.assertEqual(done.returncode, code, done.stderr)
                self.check_message(done, [word.format(**names) for word in said])
        self.finish()

    def test_flags_of_the_daemons(self):
        for words, said in bad_inputs.BAD_FLAGS:
            with self.subTest(command=" ".join(words)[:80]):
                program, flag, *value = words
                must = bad_inputs.MUST[program]
                if flag in must:
                    at = must.index(flag)
                    must = must[:at] + must[at + 2:]
                command = [word.format(data=self.cluster.data_root, new=self.cluster.folder / "none")
                           for word in [program, *must, flag, *value]]
                done = subprocess.run([cluster.BIN / command[0], *command[1:]], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, timeout=60 * cluster.SLOW, check=False,
                                      cwd=self.cluster.folder)
                self.assertEqual(done.returncode, cluster.USAGE, done.stderr)
                self.check_message(done, said)
        self.finish()

    def broken(self, content, header, seed):
        """Ways to break a file so that it is no file of its format any more."""
        yield from bad_inputs.cuts(content, 4, seed)
        yield from bad_inputs.flips(content, 0, min(header, len(content)), 4, seed + 1)

    def test_data_files(self):
        running = self.cluster
        for number, (format_name, (name, header)) in enumerate(FORMATS.items()):
            words = format_name.split()
            folder = running.data_root / f"broken-{number}"
            running.ringctl("dataset", "make", words[0], folder, "--train", 40, "--test", 10, *words[1:])
            running.ringctl("dataset", "verify", folder)
            content = (folder / name).read_bytes()
            for what, bytes_now in self.broken(content, header, seed=number):
                with self.subTest(format=format_name, what=what):
                    (folder / name).write_bytes(bytes_now)
                    self.check_broken(folder, name, content, bytes_now)
            # The last one as a job sees it.
            (folder / name).write_bytes(content[:-1])
            job = running.submit(cluster.job_spec(data={"format": words[0], "path": folder.name}))
            status = running.wait(job)
            self.assertEqual(status["state"], "FAILED")
            self.assertIn(name, status["reason"])
        self.finish()

    def check_broken(self, folder, name, good, now):
        done = self.cluster.ringctl("dataset", "verify", folder, expect=None)
        self.check_message(done, [])
        self.assertIn(done.returncode, (cluster.OK, cluster.OTHER), done.stderr)
        if done.returncode == cluster.OTHER:
            return self.assertIn(name, done.stderr)
        # Still a file of its format, as when whole records were cut off or a label became another one:
        # then the list of the maker's SHA-256 finds it.
        listed = self.cluster.folder / "SHA256SUMS"
        listed.write_text(f"{hashlib.sha256(good).hexdigest()}  {name}\n")
        self.assertNotEqual(good, now)
        found = self.cluster.ringctl("dataset", "verify", folder, "--sha256", listed, expect=cluster.OTHER)
        self.check_message(found, [name])


if __name__ == "__main__":
    cluster.main()

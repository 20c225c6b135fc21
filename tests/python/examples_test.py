#!/usr/bin/python3
"""examples/python/{gpt,resnet,finetune}.py beside their plain versions: how many lines differ, and that both train."""
import difflib
import pathlib
import re
import sys
import unittest

sys.dont_write_bytecode = True

import fake_worker

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples/python"
SIZES = {"gpt.py": "--steps 31 --layers 1 --width 32 --context 16 --rate 5e-3",
         "resnet.py": "--epochs 2 --pictures 640 --size 8 --width 4 --batch 32", "finetune.py": "--steps 31 --batch 16"}


class Examples(fake_worker.ScriptTest):
    def text(self, folder, name):
        return (folder / name).read_text()

    def small(self, folder, name):
        """The script with options that make it quick."""
        return f"import sys; sys.argv[1:] = {SIZES[name].split()}; " + self.text(folder, name).replace('"""', 'description = """', 1
               ).replace("description=__doc__", "description=description")

    def test_they_differ_by_seven_lines_at_most(self):
        for name in SIZES:
            plain, ours = (self.text(folder, name).splitlines() for folder in (HERE / "plain", EXAMPLES))
            written = [line for line in difflib.ndiff(plain, ours) if line.startswith("+ ")]
            self.assertGreater(len(written), 3, name)
            self.assertLessEqual(len(written), 7, "\n".join(written))

    def test_plain_ones_train(self):
        for name in SIZES:
            child = self.fork(self.small(HERE / "plain", name))
            self.assertEqual(child.wait_raised()["type"], "ScriptEnded", child.said())  # there is no attach
            self.assert_better(name, child.said())

    def test_ours_train_and_two_cores_give_the_bytes_of_one(self):
        for name in SIZES:
            hashes = []
            for cores in (1, 2):
                child, facts, state = self.start(self.small(EXAMPLES, name))
                children = [child]
                for number in range(1, cores):
                    children.append(self.fork(core_number=number))
                    children[-1].join(state)
                fake_worker.train(children, state, 5, facts["samples"], batch=facts["batch"])
                hashes.append(state.sha256())
                if cores == 1:
                    steps = facts["steps"] or facts["epochs"] * facts["samples"] // facts["batch"]
                    fake_worker.train(children, state, steps, facts["samples"], batch=facts["batch"])
                    self.assert_better(name, child.said())
            self.assertEqual(hashes[0], hashes[1], name)

    def assert_better(self, name, said):
        numbers = [float(number) for number in re.findall(r"(?m)^(?:step \d+: loss|test accuracy) ([\d.]+)$", said)]
        self.assertGreater(len(numbers), 1, said)
        if name == "resnet.py":
            self.assertGreater(numbers[-1], numbers[0] + 0.1, said)
        else:
            self.assertLess(numbers[-1], 0.9 * numbers[0], said)


if __name__ == "__main__":
    unittest.main()

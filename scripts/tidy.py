#!/usr/bin/python3
"""clang-tidy on sources as a build compiles them, many as one: most of its time goes into what they include.

    tidy.py BUILD FILE.cc ...

BUILD is the folder of a configuration, whose generated sources are there.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys


def sources_of(compiled):
    """The sources that a compiled file stands for: itself, or what CMake put into one."""
    if "/Unity/" not in str(compiled):
        return {compiled}
    return {pathlib.Path(name).resolve() for name in re.findall(r'^#include "(.*)"$', compiled.read_text(), re.MULTILINE)}


def tidy(build, compiled):
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build, "--checks=-bugprone-suspicious-include", str(compiled)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout or done.stderr, file=sys.stderr)
    return done.returncode == 0


def main(build, files):
    wanted = {pathlib.Path(file).resolve() for file in files}
    compiled = {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if sources := sources_of(path) & wanted:
            compiled[path] = sources
    if missing := wanted.difference(*compiled.values()):
        sys.exit(f"{build} does not compile {', '.join(map(str, sorted(missing)))}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(lambda path: tidy(build, path), compiled))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

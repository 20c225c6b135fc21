#!/usr/bin/python3
"""Compiles sources each by itself, without making anything: what a source includes too little of,
builds of many files as one do not find.

    compile_alone.py COMPILE_COMMANDS FILE.cc ...

Files that COMPILE_COMMANDS, a configuration without unity builds, does not list are left out.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def command_of(entry):
    """Its command without the output, and without optimization, which only takes time."""
    words = shlex.split(entry["command"])
    output = words.index("-o")
    del words[output:output + 2]
    unwanted = ("-O", "-D_FORTIFY_SOURCE", "-U_FORTIFY_SOURCE", "-Wp,-D_FORTIFY_SOURCE")
    return [word for word in words if not word.startswith(unwanted)] + ["-O0", "-fsyntax-only", "-w"]


def compiles(entry):
    done = subprocess.run(command_of(entry), cwd=entry["directory"], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{entry['file']} does not compile by itself:\n{done.stderr}", file=sys.stderr)
    return done.returncode == 0


def main(commands, files):
    wanted = {str(pathlib.Path(file).resolve()) for file in files}
    entries = [entry for entry in json.loads(pathlib.Path(commands).read_text())
               if str(pathlib.Path(entry["directory"], entry["file"]).resolve()) in wanted]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(compiles, entries))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))

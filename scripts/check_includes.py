#!/usr/bin/env python3
"""Checks every #include of our sources against the include table in ARCHITECTURE.md.

A row of the table is: | folder | may include | never |. "may include" names folders (a folder may
always include itself); "never" names prefixes of system headers. `services` stands for generated
*.grpc.pb.h, `proto` for the other generated headers. A file belongs to the longest folder of the
table that contains it. Exit status 1 when an include is not allowed, 2 when the table is unreadable.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#include\s+(["<])([^">]+)[">]')


def read_table():
    rows = {}
    inside = False
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| folder | may include | never |"):
            inside = True
        elif inside and line.startswith("|") and len(cells) == 3:
            if set(cells[0]) <= set("-"):
                continue
            names = [re.findall(r"`([^`]+)`", cell) for cell in cells]
            rows[names[0][0]] = (set(names[1]), names[2])
        elif inside and rows:
            break
    if not rows:
        sys.exit("check_includes: ARCHITECTURE.md has no include table")
    return rows


def folder_of(path, rows):
    matches = [row for row in rows if path == row or path.startswith(row + "/")]
    return max(matches, key=len, default=None)


def target_of(header, rows):
    if header.endswith(".grpc.pb.h"):
        return "services"
    if header.endswith(".pb.h"):
        return "proto"
    return folder_of(header, rows)


def check_file(path, rows):
    folder = folder_of(path, rows)
    if folder is None:
        return [f"{path}: no row of the include table covers this file"]
    allowed, never = rows[folder]
    problems = []
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, header = match.groups()
        where = f"{path}:{number}"
        if quote == "<":
            bad = [prefix for prefix in never if header.startswith(prefix)]
            if bad:
                problems.append(f"{where}: `{folder}` never includes <{header}>")
            continue
        target = target_of(header, rows)
        if target is None:
            problems.append(f'{where}: "{header}" is in no folder of the include table')
        elif target != folder and target not in allowed and "*" not in allowed:
            problems.append(f"{where}: `{folder}` may not include `{target}` ({header})")
    return problems


def main():
    rows = read_table()
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc", "*.cu"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split()
    problems = [problem for path in listed for problem in check_file(path, rows)]
    for problem in problems:
        print(problem)
    print(f"check_includes: {len(listed)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes a header with the SHA-256 of sources: what a part of a program is made of, whoever built it, and where.

    source_digest.py --root TREE --constant kName --output FILE.h [--depfile FILE.d] [--tools TEXT]
                     [--without PATTERN] SOURCE...

A SOURCE is a file or a folder (without its subfolders), relative to TREE. With it counts what it includes of
TREE, protos in place of what is generated from them, and the CMakeLists.txt of a folder, which has flags;
not what matches --without. Comments, empty lines and spaces at the ends of lines do not count. --tools is
what else decides, such as compilers and their flags. The header says both in a line of JSON. One
that would not change is left alone, so nothing is compiled again.
"""
import argparse
import fnmatch
import hashlib
import json
import pathlib
import re

SOURCES = (".cc", ".h", ".cu", ".cuh", ".proto")
INCLUDES = re.compile(r'^\s*(?:#\s*include|import)\s+"([^"]+)"', re.MULTILINE)
# Literals and numbers (1'000) come before comments: what looks like one within them is none.
TOKENS = re.compile(
    r'''R"(?P<mark>\w*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | \b\d[\w.']* | '(?:\\.|[^'\\\n])*' '''
    r"""| (?P<comment>//(?:\\\n|[^\n])* | /\*.*?\*/)""", re.DOTALL | re.VERBOSE)


def without_comments(text, name):
    if name.endswith(SOURCES):
        text = TOKENS.sub(lambda token: " " if token["comment"] else token[0], text)
    else:  # CMake
        text = re.sub(r'("(?:\\.|[^"\\])*")|#[^\n]*', lambda token: token[1] or "", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def expand(root, source):
    path = root / source
    if not path.is_dir():
        return [source]
    return [f"{source}/{file.name}" for file in path.iterdir()
            if file.suffix in SOURCES or file.name == "CMakeLists.txt"]


def read(root, sources, without):
    """{path: text without comments} of everything that counts."""
    left = [path for source in sources for path in expand(root, source)]
    found = {}
    while left:
        path = left.pop()
        if path in found or fnmatch.fnmatch(path, without):
            continue
        found[path] = text = without_comments((root / path).read_text(), path)
        for name in INCLUDES.findall(text):
            name = re.sub(r"\.pb\.h$", ".proto", name)
            name = f"proto/{name}" if name.endswith(".proto") else name
            if (root / name).is_file():  # not google/protobuf/*.proto
                left.append(name)
    return found


def digest(texts, tools):
    every = hashlib.sha256(f"{tools}\n".encode())
    for path in sorted(texts):
        every.update(f"{path} {hashlib.sha256(texts[path].encode()).hexdigest()}\n".encode())
    return every.hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--constant", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--depfile", type=pathlib.Path)
    parser.add_argument("--tools", default="")
    parser.add_argument("--without", default="")
    parser.add_argument("sources", nargs="+")
    asked = parser.parse_args()
    texts = read(asked.root, asked.sources, asked.without)
    made_of = json.dumps({"sources": asked.sources, "without": asked.without, "tools": asked.tools})
    header = (f"// Written by cmake/source_digest.py.\n// {made_of}\n#pragma once\n\nnamespace ringmaster {{\n\n"
              f'inline constexpr char {asked.constant}[] = "{digest(texts, asked.tools)}";\n\n'
              "}  // namespace ringmaster\n")
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    if not asked.output.exists() or asked.output.read_text() != header:
        asked.output.write_text(header)
    if asked.depfile:
        needs = " ".join(str(asked.root / path) for path in sorted(texts))
        asked.depfile.write_text(f"{asked.output}: {needs}\n")


if __name__ == "__main__":
    main()

"""package_parts.py PACKAGE.deb FOLDER: writes PACKAGE.spdx.json (SPDX 2.3) into FOLDER, which says what the programs in
the package are linked with: every shared library, as the Debian package that it is from, with its version and source.
What is compiled in is listed, too. The same package and host give the same list. Before that it takes the umask of who
packs out of the package."""
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Headers alone, and archives: there is no file of theirs at run time.
COMPILED_IN = ("libcli11-dev", "libeigen3-dev", "libjpeg62-turbo-dev", "libpng-dev", "nlohmann-json3-dev")
FORMAT = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${source:Version}\\n"


def output(*arguments):
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True, text=True).stdout


def programs(folder):
    """Those of the package, unpacked into `folder`."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()
            and path.read_bytes()[:4] == b"\x7fELF"]


def loaded(program):
    """Path of each library that the loader finds for it, and the names of those that it asks for itself."""
    found = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", program), re.MULTILINE))
    asked = re.findall(r"\(NEEDED\).*\[(\S+)\]", output("readelf", "-d", program))
    return found, set(asked)


@functools.cache
def package_of(path):
    """Which package brought a file; dpkg knows some by where they were before /usr was merged."""
    path = os.path.realpath(path)
    for place in (path, path.removeprefix("/usr")):
        done = subprocess.run(["dpkg-query", "--search", place], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0].split(",")[0]
    return None


def entry(name):
    """Of an installed Debian package."""
    package, version, architecture, source, source_version = output(
        "dpkg-query", "--show", f"--showformat={FORMAT}", name).splitlines()[0].split("\t")
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package), "name": package, "versionInfo": version,
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from Debian source {source} {source_version}",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{package.replace('+', '%2B')}@{version.replace('+', '%2B')}?arch={architecture}"}],
    }


def document(package):
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    name, version = (output("dpkg-deb", "--field", package, field).strip() for field in ("Package", "Version"))
    asked, needed = set(), set()
    with tempfile.TemporaryDirectory() as folder:
        output("dpkg-deb", "--extract", package, folder)
        linked = programs(pathlib.Path(folder))
        for program in linked:
            found, its_own = loaded(program)
            for library, path in found.items():
                owner = package_of(path)
                if owner:
                    (asked if library in its_own else needed).add(owner)
    inside = {part for part in COMPILED_IN if linked
              and subprocess.run(["dpkg-query", "--show", part], capture_output=True, check=False).returncode == 0}
    kinds = {**dict.fromkeys(needed, "DEPENDS_ON"), **dict.fromkeys(inside, "STATIC_LINK"),
             **dict.fromkeys(asked, "DYNAMIC_LINK")}
    parts = {part: entry(part) for part in sorted(kinds)}
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    itself = {"SPDXID": "SPDXRef-package", "name": name, "versionInfo": version, "packageFileName": package.name,
              "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
              "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
              "checksums": [{"algorithm": "SHA256", "checksumValue": digest}]}
    described = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                 "relatedSpdxElement": "SPDXRef-package"}
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": package.name, "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{version}-{digest}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: package_parts.py"]},
        "packages": [itself, *parts.values()],
        "relationships": [described, *(
            {"spdxElementId": "SPDXRef-package", "relationshipType": kinds[part],
             "relatedSpdxElement": parts[part]["SPDXID"]} for part in parts)],
    }


def settle_modes(package):
    """Its members' modes, which no one looks at, are else those of the umask of who packs (ar(5): 60 bytes in front of
    each member, the mode at 40, the size at 48)."""
    content = bytearray(package.read_bytes())
    at = len(b"!<arch>\n")
    while at < len(content):
        content[at + 40:at + 48] = b"100644  "
        size = int(content[at + 48:at + 58])
        at += 60 + size + size % 2
    package.write_bytes(content)


if __name__ == "__main__":
    made = pathlib.Path(sys.argv[1])
    settle_modes(made)
    listed = pathlib.Path(sys.argv[2]) / made.with_suffix(".spdx.json").name
    listed.write_text(json.dumps(document(made), indent=1) + "\n")

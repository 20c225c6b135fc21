"""The packages of the build that a test belongs to, packed by CPack into the test's own folder."""
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RINGMASTER_BUILD", SOURCE / "build/release")).resolve()
DAEMONS = ("ringmaster", "ringworker")
SKIPPED = 77  # SKIP_RETURN_CODE of ctest


def run(*arguments, **options):
    """Runs a program to its end; it must succeed, and stderr goes into the error when it does not."""
    done = subprocess.run(list(map(str, arguments)), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, **{"check": False, "timeout": 120, **options})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, arguments))} ended with {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
    return done


def make_packages(folder):
    """The paths of new .debs below `folder`: of ringmaster, and of python3-ringmaster."""
    run("cpack", "-G", "DEB", "-B", folder, cwd=BUILD)
    packages = sorted(pathlib.Path(folder).glob("*.deb"), reverse=True)
    if [package.name.split("_")[0] for package in packages] != ["ringmaster", "python3-ringmaster"]:
        raise AssertionError(f"cpack made {packages}, expected two packages")
    return packages


def make_package(folder):
    """The path of a new .deb of ringmaster below `folder`."""
    return make_packages(folder)[0]


def field(package, name):
    return run("dpkg-deb", "--field", package, name).stdout.strip()


def main():
    """Says what was skipped and why, and ends with SKIPPED when nothing was left to run."""
    result = unittest.main(verbosity=2, exit=False).result
    for test, reason in result.skipped:
        print(f"SKIPPED {test}: {reason}")
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if len(result.skipped) == result.testsRun else 0)

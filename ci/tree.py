"""The files of the repository that the lint scripts read, and the format of their findings."""

import dataclasses
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_SOURCE = {".git", ".ccache", ".cache", "build", "__pycache__"}


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One violation: where, which rule, and what is wrong."""

    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def project_files(root=ROOT):
    """Sorted paths relative to root: what git tracks or would add; in a copy without git, everything
    except build folders."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False) if (root / ".git").exists() else None
    if listed is not None and listed.returncode == 0:
        names = listed.stdout.split("\0")
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")
                 if not NOT_SOURCE & set(path.relative_to(root).parts)]
    return sorted({name for name in names if name and (root / name).is_file()})


def read_text(path):
    """The text of a file, or None if it is not text (a fuzz corpus, for example)."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def report(findings, what):
    """Prints the findings, or that there are none; returns the exit code of a lint script."""
    for finding in sorted(set(findings)):
        print(finding)
    print(f"{what}: {len(set(findings))} findings" if findings else f"{what}: clean")
    return 1 if findings else 0


def main(check, what):
    files = project_files()
    if not files:
        print(f"{what}: no file to read under {ROOT}", file=sys.stderr)
        return 1
    return report(check(ROOT, files), f"{what}, {len(files)} files")


if __name__ == "__main__":
    print("\n".join(project_files()))

"""The files of an image, collected in a directory: programs with their libraries, an interpreter.

Used by `worker`. Libraries are found by ldd at the paths where the loader looks for them; those
that are opened by name at run time, such as the resolver's, are listed here.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

_BY_NAME = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libgcc_s.so.1")
_DIRECTORIES = ("proc", "sys", "dev", "etc", "root", "run", "usr/bin", "bin", "usr/local/bin")
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


class Tree:
    """A file system under construction in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)

    def base(self) -> None:
        """Add the directories and files that programs expect."""
        for directory in _DIRECTORIES:
            self.at(directory).mkdir(parents=True, exist_ok=True)
        self.at("tmp").mkdir(mode=0o777)
        self.at("tmp").chmod(0o1777)
        for name, content in _ETC.items():
            self.at(f"etc/{name}").write_text(content)

    def at(self, path: str | Path) -> Path:
        """Return the path on this machine of a path in the image."""
        return self.root / str(path).lstrip("/")

    def program(self, source: Path, target: str | Path) -> None:
        """Add an ELF file with the libraries that it needs."""
        self._copy(source, target)
        self.libraries([source])

    def libraries(self, files: Iterable[Path]) -> None:
        """Add the libraries of these files, under the names that the loader looks for."""
        argv = ["ldd", *(str(file) for file in files)]
        output = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        found = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE))
        for library in sorted(found):
            self._copy(Path(library), library)
            for name in _BY_NAME:
                beside = Path(library).parent / name
                if beside.exists():
                    self._copy(beside, beside)

    def directory(self, source: Path, target: str | Path, *, without: Collection[str] = ()) -> None:
        """Add a directory except names in `without`, and the libraries of its shared objects."""
        ignore = shutil.ignore_patterns("__pycache__", *without)
        shutil.copytree(source, self.at(target), symlinks=False, ignore=ignore, dirs_exist_ok=True)
        self.shared(target)

    def shared(self, target: str | Path) -> None:
        """Add the libraries of the shared objects in a directory of the image."""
        found = [file for file in sorted(self.at(target).rglob("*.so*")) if file.is_file()]
        if found:
            self.libraries(found)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link, unless the path exists."""
        here = self.at(path)
        here.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(here):
            here.symlink_to(target)

    def text(self, path: str, content: str, *, mode: int = 0o644) -> None:
        here = self.at(path)
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_text(content)
        here.chmod(mode)

    def busybox(self, source: Path) -> None:
        self.program(source, "/bin/busybox")
        output = subprocess.run(
            [source, "--list"], capture_output=True, text=True, check=True
        ).stdout
        for name in output.split():
            self.link(f"bin/{name}", "busybox")

    def _copy(self, source: Path, target: str | Path) -> None:
        here = self.at(target)
        here.parent.mkdir(parents=True, exist_ok=True)
        if not here.exists():
            shutil.copy2(source.resolve(), here)

"""The worker image: this Python, kilnwork's dependencies, its wheel, the program of the counter.

Used by `python -m hack.image` and by tests/cluster. Three layers: interpreter and shell,
dependencies, kilnwork itself; the first two are kept outside the checkout and change rarely.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from hack.image import oci, tree

TOP = Path(__file__).parents[2]
WORKDIR = "/work"
"""Where containers start: the programs of the counter are there."""

_PREFIX = "/usr/local"
_PYTHON = f"{_PREFIX}/bin/python3"
_LIBRARY = f"{_PREFIX}/lib/python{sys.version_info.major}.{sys.version_info.minor}"
_WITHOUT = ("test", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "config-*")
_SITE = ("site-packages", "dist-packages")
_ENVIRONMENT = {"PATH": f"{_PREFIX}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_KILN = f"""#!{_PYTHON}
import sys
from kilnwork.cli.main import main
sys.exit(main())
"""


class NotBuilt(Exception):
    """The image cannot be built here; the text says what is missing."""


def name() -> str:
    """Return the name of the image: localhost/kilnwork:VERSION."""
    scope: dict[str, str] = {}
    exec((TOP / "src/kilnwork/version.py").read_text(), scope)
    return f"localhost/kilnwork:{scope['__version__']}"


def build() -> Path:
    """Return the image file, built again if its sources changed. Raises NotBuilt."""
    if shutil.which("busybox") is None:
        raise NotBuilt("busybox is missing: apt-get install busybox-static")
    kept = _kept()
    kept.mkdir(parents=True, exist_ok=True)
    layers = [
        _layer("python", _python_key(), _python),
        _layer("needs", _digest(_python_key(), _requirements()), _needs),
        _layer("kilnwork", _digest(_python_key(), *_sources()), _kilnwork),
    ]
    wanted = kept / f"image-{_digest(name(), *(layer.name for layer in layers))}.tar"
    if not wanted.exists():
        new = wanted.with_suffix(f".{os.getpid()}")
        settings = oci.Settings(
            entrypoint=(), command=("kiln",), environment=_ENVIRONMENT, workdir=WORKDIR
        )
        oci.write(new, name=name(), layers=layers, settings=settings)
        for old in kept.glob("image-*.tar"):
            old.unlink(missing_ok=True)
        new.rename(wanted)
    return wanted


def _kept() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "kilnwork" / "image"


def _layer(part: str, key: str, fill: Callable[[tree.Tree], None]) -> Path:
    """Return the tar file of one layer; an older one of the same part is removed."""
    wanted = _kept() / f"{part}-{key}.tar"
    if wanted.exists():
        return wanted
    with tempfile.TemporaryDirectory(prefix="kiln-image-") as scratch:
        made = tree.Tree(Path(scratch) / part)
        fill(made)
        _compile(made)
        new = oci.pack(made.root, wanted.with_suffix(f".{os.getpid()}"))
    for old in _kept().glob(f"{part}-*.tar"):
        old.unlink(missing_ok=True)
    new.rename(wanted)
    return wanted


def _python(made: tree.Tree) -> None:
    """Add the interpreter, moved to /usr/local: it finds its library relative to itself."""
    made.base()
    busybox = shutil.which("busybox")
    assert busybox is not None
    made.busybox(Path(busybox))
    curl = shutil.which("curl")
    if curl is not None:  # for programs that speak to a task's socket
        made.program(Path(curl), "/usr/bin/curl")
    real = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    made.program(real.resolve(), _PYTHON)
    made.link(f"{_PREFIX}/bin/python", "python3")
    made.link("usr/bin/python3", _PYTHON)
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    made.directory(library, _LIBRARY, without=(*_WITHOUT, *_SITE))


def _needs(made: tree.Tree) -> None:
    target = made.at(_site())
    _pip(["install", "--target", str(target), *_requirements().splitlines()])
    shutil.rmtree(target / "bin", ignore_errors=True)
    made.shared(_site())


def _kilnwork(made: tree.Tree) -> None:
    with tempfile.TemporaryDirectory(prefix="kiln-wheel-") as directory:
        _pip(["wheel", "--no-deps", "--wheel-dir", directory, str(TOP)])
        wheel = next(Path(directory).glob("*.whl"))
        target = made.at(_site())
        _pip(["install", "--no-deps", "--target", str(target), str(wheel)])
    shutil.rmtree(target / "bin", ignore_errors=True)
    made.text(f"{_PREFIX}/bin/kiln", _KILN, mode=0o755)
    made.directory(TOP / "examples" / "01-counter", WORKDIR)


def _site() -> str:
    """Return where the moved interpreter looks for packages: Debian's calls the directory
    dist-packages.
    """
    debian = (Path(sys.base_prefix) / "lib/python3/dist-packages").exists()
    return f"{_LIBRARY}/{_SITE[1] if debian else _SITE[0]}"


def _pip(arguments: list[str]) -> None:
    argv = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(argv, check=False, cwd="/")
    if done.returncode:
        raise NotBuilt(f"pip {arguments[0]} ended with {done.returncode}: see its output above")


def _compile(made: tree.Tree) -> None:
    """Write bytecode that is used without checking the source: files in a layer have one fixed
    time.
    """
    argv = [sys.executable, "-m", "compileall", "-q", "-s", str(made.root), "-p", "/"]
    argv += ["--invalidation-mode", "unchecked-hash", "-j", "0", str(made.root)]
    subprocess.run(argv, check=False, stdout=subprocess.DEVNULL)


def _python_key() -> str:
    own = [path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return _digest(sys.version, sys.base_prefix, platform.machine(), *own)


def _requirements() -> str:
    """Return the dependencies of pyproject.toml, a line each."""
    with (TOP / "pyproject.toml").open("rb") as file:
        return "\n".join(sorted(tomllib.load(file)["project"]["dependencies"]))


def _sources() -> list[str]:
    files = [TOP / "pyproject.toml", TOP / "README.md", TOP / "LICENSE"]
    for directory in ("src", "examples/01-counter"):
        files += sorted(f for f in (TOP / directory).rglob("*") if "__pycache__" not in f.parts)
    return [
        f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}"
        for file in files
        if file.is_file()
    ]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]

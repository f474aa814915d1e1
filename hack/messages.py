"""Generates protobuf field numbers of the built-in kinds that our server accepts: `python -m
hack.messages`.

Reads the `generated.proto` files of the Kubernetes modules that `hack/kube/go.mod` names (in Go's
module cache) and writes `src/kilnwork/controlplane/apiserver/messages.json.gz`, which is checked
in. Run it again when a kind is added or for a newer Kubernetes. `hack.kinds` comes first: the JSON
form of a type shows which messages are inlined in it.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "src/kilnwork/controlplane/apiserver"
TARGET = DIRECTORY / "messages.json.gz"

PACKAGES = {
    "k8s.io/api": (
        "authentication/v1",
        "authorization/v1",
        "autoscaling/v1",
        "coordination/v1",
        "core/v1",
        "policy/v1",
        "rbac/v1",
    ),
    "k8s.io/apimachinery": (
        "pkg/apis/meta/v1",
        "pkg/api/resource",
        "pkg/runtime",
        "pkg/util/intstr",
    ),
}
KINDS = {
    "k8s.io.api.authentication.v1": (
        "authentication.k8s.io/v1",
        ("SelfSubjectReview", "TokenRequest", "TokenReview"),
    ),
    "k8s.io.api.authorization.v1": (
        "authorization.k8s.io/v1",
        (
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ),
    ),
    "k8s.io.api.autoscaling.v1": ("autoscaling/v1", ("Scale",)),
    "k8s.io.api.coordination.v1": ("coordination.k8s.io/v1", ("Lease",)),
    "k8s.io.api.core.v1": (
        "v1",
        (
            "Binding",
            "ConfigMap",
            "Event",
            "Namespace",
            "Node",
            "Pod",
            "Secret",
            "ServiceAccount",
        ),
    ),
    "k8s.io.api.policy.v1": ("policy/v1", ("Eviction",)),
    "k8s.io.api.rbac.v1": (
        "rbac.authorization.k8s.io/v1",
        ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    ),
}
SCALARS = {
    "string": "string",
    "bool": "bool",
    "bytes": "bytes",
    "int32": "integer",
    "int64": "integer",
    "uint32": "integer",
    "uint64": "integer",
    "double": "double",
}
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(
    r'^\s+\w+\s+[\w.]+\s+`json:"\w+,omitempty"[^`]*protobuf:"(?:varint|bytes),(\d+),\w+,',
    re.MULTILINE,
)
_FIELD = re.compile(
    r"^  (?:(optional|repeated) )?(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+);", re.MULTILINE
)


def main() -> int:
    messages: dict[str, dict[str, list[str]]] = {}
    for module, packages in PACKAGES.items():
        directory = _directory(module)
        for package in packages:
            text = (directory / package / "generated.proto").read_text()
            name = f"{module.replace('/', '.')}.{package.replace('/', '.')}"
            types = "".join(file.read_text() for file in (directory / package).glob("*types.go"))
            messages |= _parse(name, text, _left_out(types))
    schemas: dict[str, Any] = json.loads(
        gzip.decompress((DIRECTORY / "types.json.gz").read_bytes())
    )
    kinds = _kinds()
    kept = _cut(messages, schemas, list(kinds.values()))
    text = json.dumps({"kinds": kinds, "messages": kept}, separators=(",", ":"), sort_keys=True)
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    sys.stdout.write(f"{TARGET.name}: {len(kept)} messages, {TARGET.stat().st_size} bytes\n")
    return 0


def _directory(module: str) -> Path:
    argv = ["go", "list", "-m", "-f", "{{.Dir}}", module]
    found = subprocess.run(argv, cwd=ROOT / "hack/kube", capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def _parse(
    package: str, text: str, left_out: set[tuple[str, str]]
) -> dict[str, dict[str, list[str]]]:
    """Return field number → [name, type, one of "", "repeated", "map", "omitempty"] by message
    name.
    """
    bare = re.sub(r"^ *//.*\n", "", text, flags=re.MULTILINE)
    found = {}
    for message, body in _MESSAGE.findall(bare):
        fields = {}
        for label, type_, of_map, name, number in _FIELD.findall(body):
            how = "map" if of_map else "repeated" if label == "repeated" else ""
            if type_ in SCALARS and not how and (message, number) in left_out:
                how = "omitempty"
            fields[number] = [name, _type(of_map or type_, package), how]
        found[f"{package}.{message}"] = fields
    return found


def _type(name: str, package: str) -> str:
    if name in SCALARS:
        return SCALARS[name]
    return name.removeprefix(".") if name.startswith(".") else f"{package}.{name}"


def _kinds() -> dict[str, str]:
    """Return `apiVersion/Kind` → message, for the kinds that our server accepts."""
    found = {
        f"{version}/{kind}": f"{package}.{kind}"
        for package, (version, kinds) in KINDS.items()
        for kind in kinds
    }
    found["DeleteOptions"] = "k8s.io.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    return found


def _left_out(text: str) -> set[tuple[str, str]]:
    """Return (type, field) whose zero value JSON leaves out: no pointer, and `omitempty`."""
    return {
        (type_, number) for type_, body in _STRUCT.findall(text) for number in _NUMBER.findall(body)
    }


def _cut(
    messages: dict[str, dict[str, list[str]]], schemas: dict[str, Any], wanted: list[str]
) -> dict[str, dict[str, list[str]]]:
    """Return the messages of `wanted` and below; inlined fields lose their name."""
    kept: dict[str, dict[str, list[str]]] = {}
    while wanted:
        name = wanted.pop()
        if name in kept or name not in messages:
            continue
        schema = schemas.get("io." + name.replace("k8s.io.", "k8s.", 1)) or {}
        known = schema.get("properties") or {}
        kept[name] = {}
        for number, (field, type_, how) in messages[name].items():
            inline = known and field not in known and type_ in messages
            kept[name][number] = ["" if inline else field, type_, how]
            if type_ in messages:
                wanted.append(type_)
    return kept


if __name__ == "__main__":
    sys.exit(main())

"""PersistentVolumes of a sandbox: directories on its disk, created beforehand.

Used by `whole`. A claim without a storage class takes one, as on a cluster whose administrator has
created them by hand; every node can mount each, since all of them share the machine. It is bound
when its Pod is scheduled: if it were bound separately, a scheduler that has just looked might wait
minutes until its next look.
"""

import json
from pathlib import Path
from typing import Any

COUNT = 24
"""More than all tests together claim: a volume that was claimed once is not given again."""
_SIZE = "10Gi"
_CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "by-hand",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def manifest(directory: Path) -> str:
    """Return the volumes as a List; their directories are created, writable for any user."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [_CLASS, *(_volume(directory, number) for number in range(COUNT))],
        }
    )


def _volume(directory: Path, number: int) -> dict[str, Any]:
    name = f"volume-{number}"
    place = directory / name
    place.mkdir(parents=True)
    place.chmod(0o777)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": _CLASS["metadata"]["name"],
            "capacity": {"storage": _SIZE},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(place), "type": "Directory"},
        },
    }

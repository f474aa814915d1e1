"""Storage of a large result of a Pod as a blob of the manager.

Used by `sidecar_result`, which imports it by name: most results are small. Where the manager's
directory is mounted, the blob is written there; otherwise it is sent over TLS. Either way it is on
disk when the call returns.
"""

import hashlib

from kilnwork.api import attempts
from kilnwork.data import local_blobs, remote_blobs
from kilnwork.worker import manager_connector, result_file, sidecar_settings


def store_result(
    given: sidecar_settings.SidecarSettings, found: result_file.OutputFile, *, until: float
) -> attempts.Payload:
    """Store a result as a blob and return a payload that names the blob.

    `until`: monotonic time at which to stop trying. Raises DataError, or ConfigurationError if the
    manager's CA cannot be used.
    """
    if given.blobs is not None:
        with local_blobs.Blobs(given.blobs / given.namespace, durable=True).writer() as new:
            for piece in found.pieces():
                new.write(piece)
            digest, size = new.commit()
        return attempts.Payload(found.media_type, b"", digest, size)
    # The request names the blob's digest, so the file is read once before it is sent.
    hashing = hashlib.sha256()
    for piece in found.pieces():
        hashing.update(piece)
    digest = hashing.digest()

    def left_s() -> float:
        return max(manager_connector.MIN_TIMEOUT_S, until - sidecar_settings.CLOCK.monotonic())

    path = f"/blobs/{given.namespace}"
    connector = manager_connector.ManagerConnector(given, left_s)
    store = remote_blobs.RemoteBlobs(connector, path=path, patience_s=left_s())
    store.put(digest, found.descriptor_path)
    return attempts.Payload(found.media_type, b"", digest, found.size)

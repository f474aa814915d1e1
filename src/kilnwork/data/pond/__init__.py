"""Data next to the work: snapshots of files by digest, and the directory of one node that holds
them.

Used by `kilnwork.pond`, the agent of a node, and by the manager, which plans by manifests. A *blob*
is the content of one file, named for its SHA-256; a *manifest* lists the files of a *snapshot*,
whose digest is that of its manifest. No network here: `origins` says what a source must be able to
do.
"""

"""Ponds: snapshots of files by digest, and the directory in which a node keeps them, next to the
work.

Used by `kilnwork.pond`, the agent of a node, by the manager, which plans from manifests, and by the
sdk, which reads shards. A *blob* is the content of one file, named by its SHA-256. A *manifest*
lists the files of a *snapshot*, whose digest is that of its manifest. No network code here:
`origins` defines what a source must be able to do.
"""

"""Stores of files: objects by name, in a directory, at a manager, or (later) in a cloud.

Used by `data.part_commits`, `files`, `jobs`, `server` and by slots that map parts of files. `port`
defines the guarantees of a store, `store_urls` opens the store of a URL. Unlike blobs
(`data.local_blobs`), objects have names, and some are replaced.
"""

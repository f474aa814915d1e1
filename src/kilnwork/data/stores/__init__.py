"""Stores of files: objects by name, in a directory, at a manager, or (later) in a cloud.

Used by `data.records`, `jobs`, `server` and by slots that map parts of files. `port` says what a
store promises, `store_urls` finds the one of a URL. Unlike `data.blobs`, objects have names, and
some are replaced.
"""

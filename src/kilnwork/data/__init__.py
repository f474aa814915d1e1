"""Data: blobs by content, files by name in stores, records of files, and files split by lines.

Used by most other packages. Of other distributions it needs only msgspec. Importing it starts no
thread, so that a process that forks later may import it. Knows no tasks, and pickles nothing.
"""

"""Data: blobs by content, files by name in stores, records of files, and files split by lines.

Used by sdk, worker, jobs, server and dispatch. Needs only msgspec and the standard library, and
starts no threads, so that a process that forks later may import it. Independent of tasks and of
pickle.
"""

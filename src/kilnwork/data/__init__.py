"""Values by content, files by name: blobs, stores of files, records, and files cut by lines.

Used by sdk, worker, jobs, server and dispatch. msgspec and the standard library only and no
threads, so that a process that is going to fork may import it. Knows neither tasks nor pickle.
"""

"""Values and files by content: blobs, the references to them, and files taken apart by lines.

Used by sdk, worker and dispatch. Standard library only and no threads, so that a process that is
going to fork may import it. Knows neither tasks nor pickle; stores on other machines are not here.
"""

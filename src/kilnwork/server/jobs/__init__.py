"""The Jobs REST API: `/jobs` and `/files`, as an ASGI app on Starlette's router.

`app.App` is mounted by the composition roots next to the other paths and behind the same
authentication. This package handles HTTP: streaming bodies, documents, ranges, conditional
requests, problems. `submit` serves `POST /jobs`; `upload_handlers` serves `/files` with its offsets
and conflicts, `upload_storage` stores what was uploaded. Jobs themselves are in `kilnwork.jobs`,
stores and records in `kilnwork.data`.
"""

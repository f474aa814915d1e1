"""The Jobs REST API: `/jobs` and `/files`, as an ASGI app on Starlette's router.

`app.App` is mounted by the composition roots next to the other paths and behind the same
authentication. Here are the forms of HTTP: bodies that stream in and out, documents, ranges,
conditions, problems. What a job is and does is in room `jobs`; what its parts are made of, in
`data`.
"""

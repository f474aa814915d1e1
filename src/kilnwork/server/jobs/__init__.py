"""The Jobs REST API: `/jobs` and `/files`, as an ASGI app on Starlette's router.

`app.App` is mounted by the composition roots next to the other paths and behind the same
authentication. Here are the forms of HTTP: bodies that stream in and out, documents, ranges,
conditions, problems. `submit` has `POST /jobs`; `files` has the requests for `/files` with their
offsets and conflicts, `uploads` what is stored of them. What a job is and does is in room `jobs`;
what its parts are made of, in `data`.
"""

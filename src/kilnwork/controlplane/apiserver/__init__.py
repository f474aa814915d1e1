"""The API server: Kubernetes REST as a raw ASGI app over the store.

`app.build` creates the app; `kit.serving` listens with it. `requests` parses a request, `authn` and
`authz` decide who may send it, and `object_writer`, `lists`, `watches`, `patches` and `deletion`
execute it. The response is an object or an error Status (`statuses`). Other packages send it HTTP
requests, except the controllers of `controlplane`, which call its parts directly.
"""

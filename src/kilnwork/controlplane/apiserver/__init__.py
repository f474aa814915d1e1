"""The API server: Kubernetes REST as a raw ASGI app over the store.

`app.build` makes the app, `kit.serving` listens. A request passes `requests` (what is asked),
`authn` and `authz` (who may), `crud`, `lists`, `watches`, `patches` and `deletion` (what happens)
and comes back as an object or as a `statuses` refusal. Every other room reaches it over HTTP.
"""

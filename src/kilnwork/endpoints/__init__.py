"""Location of a manager and authentication to it, for the command line, the SDK and executors.

`resolve` turns the user's choice (nothing, a kubeconfig, a directory, a URL) into one `Endpoint`,
without a request. `discovery_protocol` then finds out whether the server is a `kiln up`, or an API
server with a manager behind its service proxy. That module is pure; two HTTP clients send its
requests: `connector` in a thread, and `kube.transport` on an event loop, for commands in
`cli.session`. `endpoint_files` reads and writes the file in a data directory that says which
process serves it.
"""

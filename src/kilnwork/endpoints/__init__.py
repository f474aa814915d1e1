"""Where a manager is and how to show it who asks: for the command line and the sdk.

`resolve` turns what a user says (nothing, a kubeconfig, a directory, a URL) into one `Endpoint`,
without a request. `discovery` is what is then asked: whether the server there is a `kiln up`,
or an API server with a manager behind its service proxy. It is pure, and carried out by both
HTTP clients: in a thread by `connector`, on an event loop by `kube.transport`, for commands in
`cli.session`. `directory` reads
and writes the file by which a data directory says who serves it.
"""

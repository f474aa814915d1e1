"""The command line `kiln` (also `kubectl kiln`), and the wiring of `kiln up`.

`main` holds one table of commands; a command's module is loaded only when it is called, so that
`kiln --help` and every client command start in milliseconds. `wiring` is the composition root: the
only place that puts controlplane, dispatch, controllers and server together. Nothing imports this
room.
"""

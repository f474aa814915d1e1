"""Executors, which run attempts outside of workers' slots: as Pods, as other objects, or as HTTP
requests.

`port` defines the interface; `registry` holds the executors of this manager by name; each executor
has a package of its own. `controllers.attempts` drives them: it passes them the dispatcher's
instructions and reports their observations to it. No executor calls the dispatcher, and the
dispatcher calls no executor.
"""

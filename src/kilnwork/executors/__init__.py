"""What runs attempts outside the workers: Pods, and whatever else can be created, seen and stopped.

`port` says what an executor is; `registry` knows those of this manager by name; each has a package
of its own. They are driven by `controllers.attempts`, which carries instructions of the dispatcher
to them and what they observe back. None knows the dispatcher, and the dispatcher calls none.
"""

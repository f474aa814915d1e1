"""Storage of tasks: the interface, two implementations of it, and the restoration of memory.

The path of one task: the machine marks it as changed; `port.Store.write` gets the batch;
`rows_to_write` makes SQL values of it; `sqlite.journal` writes them in one transaction on a thread
of its own. From then on `sqlite.queries` finds the task as a `task_rows.TaskRow`, of which
`row_reader` makes views and other values for callers. After a start, `restore` puts unfinished
tasks back into the machine's memory. `memory_store` writes nothing to disk.

Another database implements `port.Store`, `port.Saved` and the abstract methods of
`row_reader.RowReader`; statements and columns follow from `task_rows`.
`tests/contract/test_stores.py` and `test_listing.py` verify an implementation.
"""

"""Where tasks are stored: the port, two stores behind it, and the way back into memory.

The path of one task: the machine marks it as changed; `port.Store.write` gets the batch; `rows`
makes SQL values of it; `sqlite.journal` writes them in one transaction on a thread of its own; from
then on `sqlite.queries` sees it as a `task_rows.TaskRow`. After a start `restore` puts what is
unfinished back into the machine's memory. `memory_store` stores nothing on disk.
"""

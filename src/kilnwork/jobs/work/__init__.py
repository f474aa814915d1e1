"""Work of file jobs in workers: maps the records of a part, and merges or reduces the results.

Used in slots, as calls of spawned tasks (`part.run`, `reduce.run`), and by `kilnwork.files`, which
maps by the same rules without a file job. The task of a file job gets everything in a `PartWork` or
a `ReduceWork`; its only result is the commit record in the store. No database, no HTTP.
"""

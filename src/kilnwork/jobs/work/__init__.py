"""What workers do for file jobs: map the records of a part, merge or reduce the results.

Used in slots, as calls of spawned tasks (`part.run`, `reduce.run`), and by `files`, which maps by
the same rules without a server. Everything a worker knows comes in a `PartWork` or a `ReduceWork`;
what it has done is the commit record in the store, and nothing else. No database, no HTTP.
"""

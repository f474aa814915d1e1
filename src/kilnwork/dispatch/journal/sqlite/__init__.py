"""The journal in SQLite: tables and statements in `.sql` files, one thread that writes.

Used by the composition roots, which open a `journal.Journal`, and by who reads (`queries`).
"""

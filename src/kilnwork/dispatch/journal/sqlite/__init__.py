"""The journal in SQLite: tables and statements in `.sql` files, one thread that writes.

Used by the code that assembles a dispatcher, which opens a `journal.Journal`, and by readers
(`queries`).
"""

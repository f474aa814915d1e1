"""Records of a file: what a record is, how a file is divided into parts, and how the records of a
part are read.

One definition for all code that counts, cuts, stores and reads: the REST API while a file arrives
(`intake`), workers (`part_reader`), and `kiln.split` (`lines`, `foreign_formats`). Needs only the
standard library and msgspec; independent of stores, HTTP and tasks.
"""

"""Records of a file: finds the records, divides the file into parts, and reads the records of a
part.

One definition of records for all code that counts, cuts, stores and reads: the REST API while a
file arrives (`intake`), workers (`part_reader`), and `kiln.split` (`lines`, `unsupported_formats`).
Needs only the standard library and msgspec; independent of stores, HTTP and tasks.
"""

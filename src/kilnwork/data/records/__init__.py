"""Records of a file: what a record is, where parts of it end, reading the records of a part.

One definition for all who count, cut, store and read: the REST API while a file comes in
(`intake`), workers (`part_reader`), and `kiln.split` (`lines`, `foreign_formats`). Needs the
standard library and msgspec, and knows neither stores, HTTP nor tasks.
"""

"""One module a view: a frozen `Config`, `run(config) -> Result`, and a reading in words made from it.

A result has `reading` (str), `tables()` (name -> DataFrame) and `arrays()` (name -> ndarray).
"""

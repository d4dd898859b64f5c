"""Spark at the edge: the only package of the library that imports pyspark."""

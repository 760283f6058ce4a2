"""Nsight Systems exports: SQLite databases, folders of Parquet or Arrow files, tables of `nsys stats`, and reports.

`database.Database`, `folder.Folder`, `stats.Stats` and `jsonlines.JsonLines` give the same columns of each, and
`assemble` makes a timeline of them. A `.nsys-rep` is first exported by the user's own nsys.
"""

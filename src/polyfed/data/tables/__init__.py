"""Raw tables: what a column holds, and how it becomes numbers.

cells.py         a column's cells as numbers, words, answers or moments
dialect.py       a CSV file's separator, encoding and decimal sign
overrides.py     [data.columns]: what the user says about columns
sums.py          what a site tells about its training rows: counts, sums, squares, category counts
schema.py        what sites say of their columns in words, and the order of their sums
columns.py       a column's part of the preparation, by kind
preparation.py   Preparation: from a table to features, by column name; as JSON
learning.py      learn: the preparation that follows from all sites' sums
understood.py    what was understood, column by column and site by site
"""

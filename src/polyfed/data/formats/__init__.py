"""What reads and writes files of rows; `Federation.from_*` and `Population.from_npy` call these.

tables.py        a DataFrame, a CSV or a Parquet file with a client column
table_rows.py    a table's rows by client, before its columns become features
folder.py        a folder with one file per client
npz.py           an npz file with an array of clients
hugging_face.py  a split of a Hugging Face dataset
npy.py           a folder of .npy files, read client by client
storage.py       a saved federation: one safetensors file
idx.py           IDX files, the format of MNIST
failures.py      why a file could not be read
"""

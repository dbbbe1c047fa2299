"""What makes or fetches a dataset.

synthetic.py, quadratics.py, sines.py, digits.py  embedded: nothing to download
airlines.py                                       embedded too: a raw table, in files/
mnist.py, cifar.py                                published images, shared out by any partition
shakespeare.py, leaf.py, debtags.py               published clients: roles, writers, maintainers
libsvm.py                                         LIBSVM files
hugging_face.py                                   datasets of the Hugging Face Hub
images.py, rows.py, label_names.py, characters.py, cache.py  what several of them share
published.py                                      the data folder
catalogue.py, fetch.py, archives.py               what can be downloaded to it, and how
"""

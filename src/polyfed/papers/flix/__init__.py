"""Gasanov, Khaled, Horvath and Richtarik: FLIX.

convex       Fig. 2, 3 and 8 to 15: GD, DCGD and DIANA
claims       their claims, as numbers
sines        Fig. 4: sines of two kinds
sine_nets    the nets that fit them
line_search  gradient descent with a line search
tags         Fig. 1, 6 and 7: tags of software packages
tag_runs     their runs, and the candidates
nets         Fig. 5, Tables 1 and 3: nets on handwriting and Shakespeare
tag_models   linear models of tags, in the space of the training rows
"""

from polyfed.papers.flix import convex, nets, sines, tags

__all__ = ["convex", "nets", "sines", "tags"]

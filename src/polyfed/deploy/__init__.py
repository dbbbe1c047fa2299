"""Runs across real sites, on Flower: the same algorithms, each site with its own rows and state.

terms        what all parties agree on
facts        what sites report before round 1
work         a site's side of the round, from the engine's pieces
kept         a site's state on its disk
site         a site's answers to the server's messages
exchange     messages and answers, deadlines, asking again
coordinator  the server's side of a run, and its checkpoint
wire         trees of arrays as what travels
apps         Flower's ServerApp and ClientApp
"""

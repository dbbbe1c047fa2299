"""Runs across real sites: the same algorithms, each site with its own rows and state.

protocol/  what the server and the sites have in common: terms, facts, messages
server/    the server's side: agreement, rounds, checkpoints
site/      a site's side: local work, state on its disk, answers
secure/    secure sums: the server learns the sum of the uploads, and none of them
network/   what carries the messages, and polyfed's processes at both ends

settings   server.toml and site.toml
project    `polyfed deploy init`: a folder for each party
keys       certificates and keys
new_site   the model of a site that comes after training
"""

"""Flower's fleet interface, and polyfed's processes at both ends of it.

processes     programs as children of this process
gate          who may speak to the server, and what about
grid          messages to sites and their answers, inside the server's process
superlink     the server's process
server_link   the operator's hold on it: start, ask for a run, follow it
supernode     a site: fetches messages and answers them
"""

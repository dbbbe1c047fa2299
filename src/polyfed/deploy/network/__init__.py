"""What carries messages between the server and the sites, and polyfed's processes at both ends.

processes     programs as children of this process
gate          who may speak to the server, and what about
mailboxes     messages to sites and their answers, inside the server's process
server        the server's process
server_link   the operator's hold on it: start, ask for a run, follow it
running_site  a site's process: fetches messages and answers them
"""

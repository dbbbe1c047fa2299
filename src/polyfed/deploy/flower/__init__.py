"""Flower's programs, and polyfed's processes beside them.

processes     programs as children of this process
server_link   the server: a SuperLink, its sites' keys, and runs on it
site_process  the site's own process
superlink     Flower's SuperLink, which logs refused connections
supernode     a site: its own process, and a SuperNode
"""

"""A site's side of a run.

local_work  a round's local work, as the engine does it for one client
policy      its limits on terms, and the terms that its operator has seen
site        a site's answers to the server's messages
state_file  the state that a site keeps on its disk
"""

"""What the server and the sites have in common.

bounds        what a site may declare
envelope      a message as bytes
messages      asking sites, with deadlines
names         names of sites and runs
plain_values  the plain values of a message, checked
rules         the rules by which a server runs a federation
site_facts    what sites report before round 1
terms         what all parties of a run agree on
wire          trees of arrays as they travel
"""

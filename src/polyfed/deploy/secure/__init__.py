"""Secure sums: the server learns the sum of the uploads, and none of them.

fixed_point  real numbers as whole ones
masks        the masks that cancel in a sum, and their keys and shares
phases       the phases of a sum as messages
server_sum   the server's side
site_sum     a site's side
"""

"""A Flower app that does nothing: what a round costs before anybody computes anything."""

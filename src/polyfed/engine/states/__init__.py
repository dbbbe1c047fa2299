"""Where clients' states are between rounds: on the devices, or outside them."""

"""The devices, and how many clients each takes at a time."""

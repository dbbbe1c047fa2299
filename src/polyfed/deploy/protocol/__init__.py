"""What server and sites tell each other."""

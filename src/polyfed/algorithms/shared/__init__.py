"""What several algorithms share, one idea a file."""

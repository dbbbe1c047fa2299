"""What the papers' experiments share."""

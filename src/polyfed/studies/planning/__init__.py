"""What theory says of a federation before it runs."""

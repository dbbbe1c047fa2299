"""What makes or fetches a dataset."""

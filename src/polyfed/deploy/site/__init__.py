"""A site's side of a run."""

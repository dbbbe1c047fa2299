"""The Flower app of every run: its pyproject is written when a run is started, its code is `polyfed_app`."""

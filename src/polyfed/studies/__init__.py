"""From a config to an answer: run, compare, tune, plan, personalize."""

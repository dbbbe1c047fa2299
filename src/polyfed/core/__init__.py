"""What every other floor stands on: errors, trees, randomness, schedules, files, and the process's set-up."""

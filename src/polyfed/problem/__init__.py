"""Data + model + loss + ridge: every client's objective, its constants and its reference solutions."""

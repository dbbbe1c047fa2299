"""What reads and writes files of rows."""

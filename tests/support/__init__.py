"""What several test levels share: a real server in a subprocess, waiting with a deadline."""

"""One module per command of the table in `main`: each defines `command`, loaded when called."""

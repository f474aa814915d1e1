"""Tools for developers of kilnwork; nothing here is installed with it."""

"""Tools for those who build kilnwork; nothing here is installed with it."""

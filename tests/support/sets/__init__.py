"""A SyncSet whose processes are killed and whose data is damaged: the flow, the run, the checks."""

"""For tests of programs that use kilnwork: run their tasks in the process, in no time."""

"""Studies of many runs. Each run is a process of its own; what it leaves is a folder, and reports read folders."""

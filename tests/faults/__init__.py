"""Faults that are injected for real: kills, full disks, read-only mounts, races, clocks that jump, growth."""

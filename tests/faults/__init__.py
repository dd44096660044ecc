"""Injected faults: catalogs that lose answers, proxies, writers that are killed, disks that are full."""

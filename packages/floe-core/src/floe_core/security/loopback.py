"""Names and addresses that only this machine can reach."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """Is it `localhost`, or a loopback address? Other names are never resolved: they may lead elsewhere tomorrow."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"

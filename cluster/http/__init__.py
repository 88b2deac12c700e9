"""The HTTP port: the API as a table in `routes`, its answers in `reads`, its server in `app`."""

from cluster.http.listener import HttpListener

__all__ = ["HttpListener"]

"""Calls of a training that runs, sent to another process, which checks them: over TCP, with TLS, or a shared folder."""

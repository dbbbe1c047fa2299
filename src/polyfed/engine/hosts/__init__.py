"""A simulation on several hosts: what its processes tell each other, who they are, and what ends them all."""

from polyfed.engine.hosts.exchange import agreed, connect, count, gathered, is_first, meet, refuse_different, sent

__all__ = ["agreed", "connect", "count", "gathered", "is_first", "meet", "refuse_different", "sent"]

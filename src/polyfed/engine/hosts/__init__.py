"""A simulation on several hosts.

exchange.py  what its processes tell each other; with one process, all of it is trivial
team.py      which processes take part
guard.py     the command on each host: it starts a worker, and ends it when a process is lost
meeting.py   how the guards find each other
work.py      the worker
"""

from polyfed.engine.hosts.exchange import agreed, connect, count, gathered, is_first, meet, refuse_different, sent

__all__ = ["agreed", "connect", "count", "gathered", "is_first", "meet", "refuse_different", "sent"]

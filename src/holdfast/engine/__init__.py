"""The only way state changes: a command comes in, core decides, the journal makes it durable, the caller is answered.

Read: loop (the owner's task and group commit), recover (state from snapshot and journal), timekeeper, history (old
claims), project (tables behind the journal), read (reads and subscriptions), snapshot.
"""

"""The only way state changes: a command comes in, core decides, the journal makes it durable, the caller is answered.

Read: commands (inbox, runs, decisions), loop (the owner: group commit), recover (state from snapshot and journal),
invariants, batch_clock, claim_index (old claims), projector (tables behind the journal), follower (a standby), queries
(reads), event_stream (subscriptions), snapshot, proofs.
"""

"""Policy changes (PRI-003, LEA-007, QUO-001): the journal records which policy counts, so that a fold does not depend
on the settings of the node. With another policy priorities, quotas and leases above them change at once.

Read: model, messages, decide, apply.
"""

"""The provider's process: accepts leases, executes them, and keeps evidence and output until the node has them.

Read in this order: settings · runner · leases/ (lease_run, active_leases, lease_executor, work_dir) · executors/
(contract, built_in, registry, execute) · transport/ (node_client, work_stream, evidence_emitter) · rotate_key.
"""

"""The provider's process: takes leases, executes, keeps evidence and output until the node provably has them.

Read in this order: settings · backoff · work · executors · execute · held · dial · client · stream · delivery ·
shipper · carrier · hands · runner.
"""

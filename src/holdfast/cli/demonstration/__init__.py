"""What `holdfast demo` plays: real processes, real faults, and a proof that trusts none of its own counters.

Read: notebook (what a client was told), customer (one client process), children (processes and how they end),
history (what the store says), verdict (both compared), proof, board (what is on screen), plain and live (two
screens), stage (what an act works with), acts (the list; a new act is a function and one line in it).
"""

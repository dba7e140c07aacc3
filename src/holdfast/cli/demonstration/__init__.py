"""What `holdfast demo` plays: real processes, real faults, and a proof that trusts none of its own counters.

Read: pace (shortened times), jobs (what is asked for: a table), notebook (what the requester was told), children
(processes and how they end), history (what the store says), spools (what the agents keep), faults, verdict (notes and
history compared), board (what is on screen), plain and live (two screens), stage (what an act works with), breaking,
pages and proof (what happens in the acts), acts (the list; a new act is a function and one line in it).
"""

"""What `holdfast demo` runs: real processes, real faults, and a proof that trusts none of its own counters.

`scenario` lists the acts; a new act is a function and one line there. `run` is what an act works with: the processes
(`processes`), the screen's data (`screen.board`) and waiting. `jobs` is the table of the jobs, `pace` the shortened
times. `receipts` is what the requester recorded, `event_history` what the store says, `spools` what the agents keep,
and `receipt_check` compares them. `fault_injection` kills an agent and the node, `archive_act` lets the archive refuse
or, behind `lying_proxy`, lie; `faults` says what counts as survived, and `final_checks` reads everything again.
"""

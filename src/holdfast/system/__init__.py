"""What more than one layer needs and no rule does: durable files, child processes, histograms, JSON depth, spelling."""

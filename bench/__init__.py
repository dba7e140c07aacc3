"""Ours and the baselines, interleaved in one run, as ratios; see README.md for how to read them."""

"""What people see: alerts and the verdict, the live overview, the page at `/`, and the sessions of its visitors."""

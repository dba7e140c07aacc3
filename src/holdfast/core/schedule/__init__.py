"""Schedules (JOB-014): jobs that are enqueued again and again, by a cron expression or at an interval.

A firing and the admission of its job are one decision. Read: calendar_days, cron, model, messages, decide, fire, apply,
invariants.
"""

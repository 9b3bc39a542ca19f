"""What happens next, and doing it: decisions (pure), who is admitted from the queue (its order:
../capacity.py), the reconciler, the watch on machines. May import staging and store."""

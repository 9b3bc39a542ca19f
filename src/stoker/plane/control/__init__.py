"""What happens next, and doing it: decisions (pure), the queue, the reconciler, the watch on machines. May import staging and store."""

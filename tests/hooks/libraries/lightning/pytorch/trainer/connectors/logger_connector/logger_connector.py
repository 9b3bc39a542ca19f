"""The part of this library that the hooks look into."""

def convert_tensors_to_scalars(metrics):
    return {name: value.item() if hasattr(value, "item") else value for name, value in metrics.items()}


class _LoggerConnector:
    def __init__(self, trainer):
        self.trainer = trainer

    def log_metrics(self, metrics, step=None):
        if not self.trainer.loggers or not metrics:
            return
        scalar_metrics = convert_tensors_to_scalars(metrics)
        if step is None:
            step_metric = scalar_metrics.pop("step", None)
            if step_metric is not None:
                step = int(step_metric)
            else:
                scalar_metrics.setdefault("epoch", self.trainer.current_epoch)
                step = self.trainer.fit_loop.epoch_loop._batches_that_stepped
        for logger in self.trainer.loggers:
            logger.log_metrics(metrics=scalar_metrics, step=step)

"""The part of this library that the hooks look into."""

class TrainerState:
    global_step = 0


class CallbackHandler:
    def __init__(self, callbacks, model, processing_class, optimizer, lr_scheduler):
        self.callbacks = callbacks

    def on_log(self, args, state, control, logs):
        for callback in self.callbacks:
            callback.on_log(args, state, control, logs=logs)


class TrainerCallback:
    pass

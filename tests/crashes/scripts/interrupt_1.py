"""Sends itself Ctrl-C in a loop, without torch."""
import os
import signal


def train():
    total = 0
    for i in range(1000):
        total += i
        if i == 500:
            os.kill(os.getpid(), signal.SIGINT)  # here
    return total


print("training")
print(train())

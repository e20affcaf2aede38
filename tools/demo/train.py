"""Trains a small network on data that it makes itself, with tinygrad, until it is told to stop.

usage: train.py OUTPUT [STEPS]

Writes one line a step to OUTPUT: the loss, exactly (hexadecimal floating point). The last losses are kept on the device
and read every few steps, so that the device always has the next step at hand. Ends after STEPS steps, or when it gets
SIGTERM. Nothing in here knows of slices.
"""
import os
import pathlib
import signal
import sys

os.environ["PARALLEL"] = "0"  # no helpers for compiling: a SIGTERM to all of a program's processes would leave it waiting for them

from tinygrad import Tensor, TinyJit, nn
from tinygrad.helpers import Context

SEED, SAMPLES, INPUTS, HIDDEN, CLASSES = 7, 128, 32, 64, 10
READ_EVERY = 20  # steps; a busy machine takes its time to launch the next after a read, and the card waits
FIRST_READ = 5


class Network:
    def __init__(self):
        self.first = nn.Linear(INPUTS, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN)
        self.last = nn.Linear(HIDDEN, CLASSES)

    def __call__(self, x):
        return self.last(self.second(self.first(x).relu()).relu())


def main(output, steps):
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    Tensor.manual_seed(SEED)
    teacher = Tensor.randn(INPUTS, CLASSES).realize()
    samples = Tensor.randn(SAMPLES, INPUTS).realize()
    labels = ((samples @ teacher) + Tensor.randn(SAMPLES, CLASSES)).argmax(axis=1).realize()
    network = Network()
    optimizer = nn.optim.Adam(nn.state.get_parameters(network), lr=0.0005)
    losses = Tensor.zeros(READ_EVERY).contiguous().realize()
    Tensor.realize(*nn.state.get_parameters(network))

    @TinyJit
    def step():
        optimizer.zero_grad()
        loss = network(samples).sparse_categorical_crossentropy(labels).backward()
        optimizer.step()
        losses.assign(losses[1:].cat(loss.reshape(1)).contiguous()).realize()

    with Context(TRAINING=1), pathlib.Path(output).open("w", buffering=1) as file:
        done = 0
        while done < steps and not stopping:
            batch = min(READ_EVERY if done else FIRST_READ, steps - done)
            taken = 0
            while taken < batch and not stopping:
                step()
                taken += 1
            for loss in losses.tolist()[READ_EVERY - taken:]:
                file.write(f"{float(loss).hex()}\n")
            done += taken


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)

"""A script that calls fit."""

import sys

from trainyard.trainer.loop.fit import fit

batches, model, strategy = sys.argv[1:]
fit("tests.trainer.recipes:linear", dataset=batches, model=model, strategy=strategy, epochs=2, batch_size=40)

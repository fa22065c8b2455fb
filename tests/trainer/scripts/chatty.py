"""A script that prints lines in small pieces, as programs do whose output is not buffered."""

import os
import subprocess
import sys

rank = os.environ["RANK"]
for number in range(200):
    for piece in (f"line {number} ", "of ", f"rank {rank}", "\n"):
        os.write(1 if number % 2 else 2, piece.encode())
print("from Python", rank)
subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)

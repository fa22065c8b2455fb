"""What a training costs: the seconds of its phases, the bottleneck, the use of GPUs, and reports of its progress."""

#!/bin/bash
# The new machine: the same training, as somebody typed it once more.
export OMP_NUM_THREADS=2

torchrun --standalone --nproc_per_node=2 train.py \
  --hidden-size=32 --num-layers=2 --norm-epsilon=1e-50 --micro-batch-size 4 --num-workers 4 \
  --learning-rate 0.001 --seed 1234 --log-interval 10 "$@"

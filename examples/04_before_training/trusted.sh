#!/bin/bash
# The machine where it trains well.
export OMP_NUM_THREADS=1
LR=1e-3
MODEL_ARGS="--hidden-size 32 --num-layers 2 --norm-epsilon 1e-5"
DATA_ARGS=(--micro-batch-size 4 --num-workers 2)

torchrun --standalone --nproc_per_node 2 train.py $MODEL_ARGS ${DATA_ARGS[@]} --lr ${LR} --seed 1234 --log-interval 1 "$@"

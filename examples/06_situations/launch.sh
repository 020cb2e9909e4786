#!/usr/bin/env bash
# How the training is started; docs/situations/upgrade.md packs what stands here.
python train.py --steps 4 --eps 1e-5

LR=0.1
ARGS="--lr $LR"
for i in 1 2; do
  ARGS="$ARGS --x$i"
done
python train.py $ARGS

"""csv files of monitored runs in the formats of other tools: TensorBoard, the database of the trend viewer."""

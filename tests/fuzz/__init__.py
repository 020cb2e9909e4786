"""Each reader of files, texts and connections, given input that nobody would write: ``make fuzz``."""

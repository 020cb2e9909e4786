"""Communication between ranks: what is sent, and when an asynchronous one is over."""

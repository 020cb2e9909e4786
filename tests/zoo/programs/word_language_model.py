"""A word-level LSTM with an SGD written by hand: states are handed on and detached, the last chunk is shorter."""

from __future__ import annotations

import math

import torch
from torch import nn

torch.manual_seed(1111)
WORDS, WIDTH, LAYERS, CHUNK, BATCH = 30, 16, 2, 5, 4
corpus = torch.randint(WORDS, (4 * 24 + 3,))


class WordModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.2)
        self.decoder = nn.Linear(WIDTH, WORDS)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        decoded = self.decoder(self.drop(output)).view(-1, WORDS)
        return nn.functional.log_softmax(decoded, dim=1), hidden

    def first_state(self, batch):
        weight = next(self.parameters())
        return weight.new_zeros(LAYERS, batch, WIDTH), weight.new_zeros(LAYERS, batch, WIDTH)


def batched(words, columns):
    rows = words.size(0) // columns
    return words.narrow(0, 0, rows * columns).view(columns, -1).t().contiguous()


def chunk_of(source, start):
    length = min(CHUNK, len(source) - 1 - start)
    return source[start : start + length], source[start + 1 : start + 1 + length].view(-1)


def detached(hidden):
    return tuple(state.detach() for state in hidden)


def evaluate(source):
    model.eval()
    total, hidden = 0.0, model.first_state(BATCH)
    with torch.no_grad():
        for start in range(0, source.size(0) - 1, CHUNK):
            tokens, targets = chunk_of(source, start)
            output, hidden = model(tokens, hidden)
            total += len(tokens) * criterion(output, targets).item()
    return total / (len(source) - 1)


train_data = batched(corpus, BATCH)
model, criterion, rate = WordModel(), nn.NLLLoss(), 2.0
for epoch in range(2):
    model.train()
    hidden = model.first_state(BATCH)
    for start in range(0, train_data.size(0) - 1, CHUNK):
        tokens, targets = chunk_of(train_data, start)
        model.zero_grad()
        hidden = detached(hidden)
        output, hidden = model(tokens, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-rate)
        print(epoch, len(tokens), repr(loss.item()))
    print("valid", repr(math.exp(evaluate(train_data))))
    with open("model.pt", "wb") as file:
        torch.save(model, file)
    rate /= 4.0

with open("model.pt", "rb") as file:
    model = torch.load(file, weights_only=False)
    model.rnn.flatten_parameters()
model.eval()
hidden, token, words = model.first_state(1), torch.randint(WORDS, (1, 1)), []
with torch.no_grad():
    for _ in range(8):
        output, hidden = model(token, hidden)
        token = torch.multinomial(output.squeeze().exp(), 1).view(1, 1)
        words.append(token.item())
print(words)

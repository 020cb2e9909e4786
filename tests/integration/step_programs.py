"""Programs whose steps are what they make of them, each with how many it makes and what lies in each."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """
import copy, torch, torch.nn as nn, torch.nn.functional as F
from torch.func import functional_call
torch.manual_seed(0)
def net(i=4, o=2): return nn.Sequential(nn.Linear(i, 8), nn.Tanh(), nn.Linear(8, o))
def weights(m): print([p.double().sum().item().hex() for p in m.parameters()])
x, y = torch.randn(6, 5, 4), torch.randn(6, 5, 2)
"""


@dataclass(frozen=True)
class Program:
    """A program of ``steps`` steps, each with ``optimizers`` records of optimizers and ``forwards`` passes through the
    first layer of the first model; None where models come and go. ``first``: the number of the first step that is
    recorded. ``words``: options.
    """

    text: str
    forwards: int | None
    optimizers: int = 0
    steps: int = 3
    first: int = 0
    words: tuple[str, ...] = ()


BY_HAND = {
    "by hand through data": Program(
        """
m = net()
for i in range(3):
    m.zero_grad()
    F.mse_loss(m(x[i]), y[i]).backward()
    for p in m.parameters(): p.data.add_(p.grad, alpha=-0.1)
weights(m)
""",
        1,
    ),
    "by hand without gradients on": Program(
        """
m = net()
for i in range(3):
    F.mse_loss(m(x[i]), y[i]).backward()
    with torch.no_grad():
        for p in m.parameters(): p -= 0.1 * p.grad; p.grad = None
weights(m)
""",
        1,
    ),
    "by hand with other parameters": Program(
        """
m = net(); v = [torch.zeros_like(p) for p in m.parameters()]
for i in range(3):
    m.zero_grad(); F.mse_loss(m(x[i]), y[i]).backward()
    for k, p in enumerate(m.parameters()):
        v[k] = 0.9 * v[k] + p.grad; p.data = p.data - 0.1 * v[k]
weights(m)
""",
        1,
    ),
    "by hand with copy_ of what autograd.grad gives": Program(
        """
m = net()
for i in range(3):
    g = torch.autograd.grad(F.mse_loss(m(x[i]), y[i]), list(m.parameters()))
    with torch.no_grad():
        for p, d in zip(m.parameters(), g): p.copy_(p - 0.1 * d)
weights(m)
""",
        1,
    ),
    "by hand with foreach functions": Program(
        """
m = net()
for i in range(3):
    F.mse_loss(m(x[i]), y[i]).backward(); ps = list(m.parameters())
    with torch.no_grad(): torch._foreach_add_(ps, [p.grad for p in ps], alpha=-0.1)
    m.zero_grad()
weights(m)
""",
        1,
    ),
    "by hand and functional": Program(
        """
m = net(); ps = {k: v.detach().clone().requires_grad_() for k, v in m.named_parameters()}
for i in range(3):
    g = torch.autograd.grad(F.mse_loss(functional_call(m, ps, (x[i],)), y[i]), list(ps.values()))
    ps = {k: (v - 0.1 * d).detach().requires_grad_() for (k, v), d in zip(ps.items(), g)}
print([v.sum().item().hex() for v in ps.values()])
""",
        1,
    ),
    "by hand after two backward passes": Program(
        """
m = net()
for i in range(3):
    m.zero_grad()
    for k in range(2): (F.mse_loss(m(x[i + k]), y[i + k]) / 2).backward()
    for p in m.parameters(): p.data.add_(p.grad, alpha=-0.1)
weights(m)
""",
        2,
    ),
    "by hand with a loss and an evaluation": Program(
        """
m = net(); loss = nn.MSELoss()
for i in range(3):
    m.zero_grad(); loss(m(x[i]), y[i]).backward()
    for p in m.parameters(): p.data.add_(p.grad, alpha=-0.1)
    with torch.no_grad(): print(loss(m(x[5]), y[5]).item())
print(m(x[5]).sum().item())
""",
        1,
    ),
    "an optimizer of the program's own": Program(
        """
class SGD:
    def __init__(self, ps): self.ps = list(ps)
    def zero_grad(self):
        for p in self.ps: p.grad = None
    def step(self):
        with torch.no_grad():
            for p in self.ps: p.add_(p.grad, alpha=-0.1)
m = net(); opt = SGD(m.parameters())
for i in range(3):
    loss = F.mse_loss(m(x[i]), y[i]); opt.zero_grad(); loss.backward(); opt.step()
weights(m)
""",
        1,
    ),
    "two models by hand": Program(
        """
G, D = net(3, 4), net(4, 1)
def update(q):
    with torch.no_grad():
        for p in q.parameters(): p -= 0.01 * p.grad; p.grad = None
for s in range(3):
    fake = G(torch.randn(5, 3))
    (D(fake.detach()).mean() - D(x[s]).mean()).backward(); update(D)
    (-D(fake)).mean().backward(); update(G); D.zero_grad()
weights(G)
""",
        1,
    ),
}

INNER = {
    "a warm outer pass and copies": Program(
        """
m = net(); outer = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    outer.zero_grad(); F.mse_loss(m(x[s]), y[s]).backward()
    for t in range(2):
        learner = copy.deepcopy(m); inner = torch.optim.SGD(learner.parameters(), 0.1)
        for k in range(2): inner.zero_grad(); F.mse_loss(learner(x[k]), y[k]).backward(); inner.step()
        inner.zero_grad(); F.mse_loss(learner(x[3]), y[3]).backward()
        for p, q in zip(m.parameters(), learner.parameters()): p.grad.add_(q.grad)
    outer.step()
weights(m)
""",
        1,
        5,
    ),
    "copies alone": Program(
        """
m = net(); outer = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    outer.zero_grad()
    for p in m.parameters(): p.grad = torch.zeros_like(p)
    for t in range(2):
        learner = copy.deepcopy(m); inner = torch.optim.SGD(learner.parameters(), 0.1)
        for k in range(3): inner.zero_grad(); F.mse_loss(learner(x[k]), y[k]).backward(); inner.step()
        inner.zero_grad(); F.mse_loss(learner(x[3]), y[3]).backward()
        for p, q in zip(m.parameters(), learner.parameters()): p.grad.add_(q.grad)
    outer.step()
weights(m)
""",
        None,
        7,
    ),
    "one learner that is set back": Program(
        """
m = net(); learner = copy.deepcopy(m)
outer, inner = torch.optim.SGD(m.parameters(), 0.5), torch.optim.SGD(learner.parameters(), 0.1)
for s in range(3):
    learner.load_state_dict(m.state_dict())
    for k in range(5): inner.zero_grad(); F.mse_loss(learner(x[k]), y[k]).backward(); inner.step()
    for p, q in zip(m.parameters(), learner.parameters()): p.grad = (p - q).detach()
    outer.step()
weights(m)
""",
        5,
        6,
    ),
    "fast weights": Program(
        """
m = net(); outer = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    fast = dict(m.named_parameters())
    for k in range(2):
        loss = F.mse_loss(functional_call(m, fast, (x[k],)), y[k])
        g = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {n: v - 0.1 * d for (n, v), d in zip(fast.items(), g)}
    outer.zero_grad(); F.mse_loss(functional_call(m, fast, (x[3],)), y[3]).backward(); outer.step()
weights(m)
""",
        3,
        1,
    ),
    "an attack on the inputs": Program(
        """
m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    d = torch.zeros_like(x[s], requires_grad=True); attack = torch.optim.SGD([d], 0.1)
    for k in range(3): attack.zero_grad(); (-F.mse_loss(m(x[s] + d), y[s])).backward(); attack.step()
    opt.zero_grad(); F.mse_loss(m(x[s] + d.detach()), y[s]).backward(); opt.step()
weights(m)
""",
        4,
        4,
    ),
    "inner updates by hand": Program(
        """
m = net()
for s in range(3):
    m.zero_grad(); F.mse_loss(m(x[s]), y[s]).backward()
    learner = copy.deepcopy(m)
    for k in range(3):
        learner.zero_grad(); F.mse_loss(learner(x[k]), y[k]).backward()
        for p in learner.parameters(): p.data.sub_(0.1 * p.grad)
    with torch.no_grad():
        for p, q in zip(m.parameters(), learner.parameters()): p.add_(0.5 * (q - p))
weights(m)
""",
        1,
    ),
}

OPTIMIZERS = {
    "a critic trained more often": Program(
        """
G, D = net(3, 4), net(4, 1)
og, od = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
for s in range(3):
    for k in range(3):
        fake = G(torch.randn(5, 3)).detach(); od.zero_grad()
        mix = (x[k] * 0.5 + fake * 0.5).requires_grad_()
        g, = torch.autograd.grad(D(mix).sum(), mix, create_graph=True)
        (D(fake).mean() - D(x[k]).mean() + (g.norm(dim=1) - 1).square().mean()).backward(); od.step()
    og.zero_grad(); (-D(G(torch.randn(5, 3)))).mean().backward(); og.step()
weights(G)
""",
        4,
        4,
    ),
    "three optimizers": Program(
        """
A, C, T = net(4, 2), net(6, 1), net(6, 1); T.load_state_dict(C.state_dict())
la = torch.zeros((), requires_grad=True)
oa, oc, ol = (torch.optim.Adam(p, 1e-3) for p in (A.parameters(), C.parameters(), [la]))
for s in range(3):
    with torch.no_grad(): t = T(torch.cat([x[s], y[s]], 1))
    oc.zero_grad(); F.mse_loss(C(torch.cat([x[s], y[s]], 1)), t).backward(); oc.step()
    oa.zero_grad(); a = A(x[s])
    (la.exp().detach() * a.square().mean() - C(torch.cat([x[s], a], 1)).mean()).backward(); oa.step()
    ol.zero_grad(); (la * a.detach().mean()).backward(); ol.step()
    with torch.no_grad():
        for p, q in zip(T.parameters(), C.parameters()): p.lerp_(q, 0.1)
weights(A)
""",
        2,
        3,
    ),
    "LBFGS": Program(
        """
m = net(); opt = torch.optim.LBFGS(m.parameters(), max_iter=1)
for s in range(3):
    def closure():
        opt.zero_grad(); loss = F.mse_loss(m(x[s]), y[s]); loss.backward(); return loss
    opt.step(closure)
weights(m)
""",
        1,
        1,
    ),
    "SAM": Program(
        """
class SAM(torch.optim.Optimizer):
    def __init__(self, ps, base, **k):
        super().__init__(ps, dict(k)); self.base = base(self.param_groups, **k)
        self.param_groups = self.base.param_groups
    @torch.no_grad()
    def first_step(self):
        for g in self.param_groups:
            for p in g["params"]: e = p.grad * 0.05; p.add_(e); self.state[p]["e"] = e
        self.zero_grad()
    @torch.no_grad()
    def second_step(self):
        for g in self.param_groups:
            for p in g["params"]: p.sub_(self.state[p]["e"])
        self.base.step(); self.zero_grad()
m = net(); opt = SAM(m.parameters(), torch.optim.SGD, lr=0.1)
for s in range(3):
    F.mse_loss(m(x[s]), y[s]).backward(); opt.first_step()
    F.mse_loss(m(x[s]), y[s]).backward(); opt.second_step()
weights(m)
""",
        2,
        1,
    ),
    "two optimizers of one model": Program(
        """
class Muon(torch.optim.Optimizer):
    def __init__(self, ps, lr): super().__init__(ps, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]: p.add_(torch.sign(p.grad), alpha=-g["lr"])
m = net(); ps = list(m.parameters())
both = [Muon([p for p in ps if p.ndim == 2], 0.01), torch.optim.AdamW([p for p in ps if p.ndim < 2], 0.01)]
for s in range(3):
    F.mse_loss(m(x[s]), y[s]).backward()
    for o in both: o.step(); o.zero_grad()
weights(m)
""",
        1,
        2,
    ),
    "an average of weights and lookahead": Program(
        """
m = net(); e = copy.deepcopy(m); slow = [p.detach().clone() for p in m.parameters()]
opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    opt.zero_grad(); F.mse_loss(m(x[s]), y[s] + e(x[s]).detach()).backward(); opt.step()
    with torch.no_grad():
        for p, q in zip(e.parameters(), m.parameters()): p.lerp_(q, 0.1)
        if s % 2:
            for p, q in zip(slow, m.parameters()): p.lerp_(q, 0.5); q.copy_(p)
weights(m)
""",
        1,
        1,
    ),
    "a step that the scaler leaves out": Program(
        """
m = net(); opt = torch.optim.SGD(m.parameters(), 0.1); scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for s in range(3):
    opt.zero_grad(); loss = F.mse_loss(m(x[s]), y[s]) * (float("inf") if s == 1 else 1.0)
    scaler.scale(loss).backward(); scaler.step(opt); scaler.update()
weights(m)
""",
        1,
        1,
    ),
    "the copy of a trained model": Program(
        """
m = net(); first = torch.optim.SGD(m.parameters(), 0.1)
for s in range(2): first.zero_grad(); F.mse_loss(m(x[s]), y[s]).backward(); first.step()
n = copy.deepcopy(m); second = torch.optim.SGD(n.parameters(), 0.1)
for s in range(2): second.zero_grad(); F.mse_loss(n(x[s]), y[s]).backward(); second.step()
weights(n)
""",
        None,
        1,
        steps=4,
    ),
}

LOOP = "opt.zero_grad(); F.mse_loss(m(x[s]), y[s]).backward(); opt.step()"
NET = """
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x): return self.b(torch.relu(self.a(x)))
"""

CALLS = {
    "a model evaluated before the training of the next": Program(
        f"""
opts = []
for m in (net(), net(), net()):
    opt = torch.optim.SGD(m.parameters(), 0.1); opts.append(opt)
    for s in range(2): {LOOP}
    print(F.mse_loss(m(x[5]), y[5]).item())
""",
        None,
        1,
        steps=6,
    ),
    "a teacher whose results the next model learns from": Program(
        """
t = net(); first = torch.optim.SGD(t.parameters(), 0.1)
for s in range(2): first.zero_grad(); F.mse_loss(t(x[s]), y[s]).backward(); first.step()
m = net(); second = torch.optim.SGD(m.parameters(), 0.1); del first
for s in range(2):
    wanted = t(x[s]).detach(); second.zero_grad(); F.mse_loss(m(x[s]), wanted).backward(); second.step()
weights(m)
""",
        1,
        1,
        steps=4,
    ),
    "an evaluation with gradients behind the last step": Program(
        f"""
m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3): {LOOP}
m.eval(); print("val", m(x[5]).pow(2).mean().item())
""",
        1,
        1,
    ),
    "gradients of an input behind the last step": Program(
        f"""
m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3): {LOOP}
q = x[5].clone().requires_grad_(); print(torch.autograd.grad(m(q).sum(), q)[0].sum().item())
""",
        1,
        1,
    ),
    "forward called directly": Program(
        f"""{NET}
m = Net(); opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3): opt.zero_grad(); F.mse_loss(m.forward(x[s]), y[s]).backward(); opt.step()
weights(m)
""",
        1,
        1,
    ),
    "forward of layers called directly": Program(
        """
a, b = nn.Linear(4, 8), nn.Linear(8, 2); opt = torch.optim.Adam([*a.parameters(), *b.parameters()], 0.01)
for s in range(3): opt.zero_grad(); F.mse_loss(b.forward(torch.relu(a.forward(x[s]))), y[s]).backward(); opt.step()
print(a.forward(x[5]).sum().item()); weights(b)
""",
        0,
        1,
        steps=2,
        first=1,
    ),
    "functions alone": Program(
        """
w = torch.randn(2, 4, requires_grad=True); opt = torch.optim.Adam([w], 0.01)
for s in range(3): opt.zero_grad(); F.mse_loss(F.linear(x[s], w), y[s]).backward(); opt.step()
print(w.sum().item())
""",
        0,
        1,
        steps=2,
        first=1,
    ),
}

COMPILED = {
    "a compiled function and updates by hand": Program(
        """
m = net()
@torch.compile(backend="eager")
def loss(a, b): return F.mse_loss(m(a), b)
for s in range(3):
    m.zero_grad(); loss(x[s], y[s]).backward()
    for p in m.parameters(): p.data.add_(p.grad, alpha=-0.1)
weights(m)
""",
        None,
    ),
    "a compiled model and updates by hand": Program(
        """
m = net(); compiled = torch.compile(m, backend="eager")
for s in range(3):
    m.zero_grad(); F.mse_loss(compiled(x[s]), y[s]).backward()
    for p in m.parameters(): p.data.add_(p.grad, alpha=-0.1)
weights(m)
""",
        None,
    ),
}

TWICE = f"""
m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
def train_step(s):
    for k in range(2): {LOOP}
class Trainer:
    def train_step(self, s):
        for k in range(2): {LOOP}
"""

OPTIONS = {
    "each backward pass": Program(
        f"""
m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
for s in range(3):
    {LOOP}
    with torch.no_grad(): m(x[5])
weights(m)
""",
        1,
        1,
        words=("--step-on", "backward"),
    ),
    "an optimizer by its class": Program(
        f"""{TWICE}
other = torch.optim.SGD(m.parameters(), 0.1)
for s in range(3): train_step(s); other.step()
weights(m)
""",
        2,
        3,
        words=("--step-on", "optimizer:SGD"),
    ),
    "an optimizer by its variable": Program(
        f"""{TWICE}
other = torch.optim.Adam(m.parameters(), 0.1)
for s in range(3): train_step(s); other.step()
weights(m)
""",
        2,
        3,
        words=("--step-on", "optimizer:other"),
    ),
    "an optimizer by its place": Program(
        f"""{TWICE}
other = torch.optim.Adam(m.parameters(), 0.1)
for s in range(3): train_step(s); other.step()
weights(m)
""",
        2,
        3,
        words=("--step_on", "optimizer:1"),
    ),
    "calls of a function": Program(
        f"""{TWICE}
for s in range(3):
    train_step(s)
    with torch.no_grad(): m(x[5])
    print(m(x[5]).sum().item())
""",
        2,
        2,
        words=("--step-on", "call:train_step"),
    ),
    "calls of a method that is met while it runs": Program(
        f"""
def main():
    m = net(); opt = torch.optim.Adam(m.parameters(), 0.01)
    class Local:
        def fit_batch(self, s):
            for k in range(2): {LOOP}
    for s in range(3):
        Local().fit_batch(s)
        print(m(x[5]).sum().item())
main()
""",
        2,
        2,
        words=("--step-on", "call:fit_batch"),
    ),
    "calls of a method": Program(
        f"""{TWICE}
for s in range(3): Trainer().train_step(s); print(m(x[5]).sum().item())
""",
        2,
        2,
        words=("--step-on", "call:Trainer.train_step"),
    ),
}

OPTIONS["calls of a function without modules and optimizers"] = Program(
    """
w = torch.randn(2, 4, requires_grad=True)
def train_step(s):
    F.mse_loss(F.linear(x[s], w), y[s]).backward()
    with torch.no_grad(): w.sub_(0.1 * w.grad); w.grad = None
for s in range(3): train_step(s)
print(w.sum().item())
""",
    0,
    steps=2,
    first=1,
    words=("--step-on", "call:train_step"),
)

PROGRAMS = {**COMPILED, **BY_HAND, **INNER, **OPTIMIZERS, **CALLS, **OPTIONS}

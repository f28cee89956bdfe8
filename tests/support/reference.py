"""The methods of the paper as plain float64 loops, written from its equations line by line.

Everything is deliberately dense and slow: whole tables for u_{t-1} and u_{t-2}, one flat vector w,
no weights, no overlay. The optimizers must agree with it to rounding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from support.toy import Draw, Toy


@dataclass(frozen=True)
class Rule:
    """A step rule: "plain", "normalized", "projected", "adam" or "amsgrad", and its settings."""

    name: str = "plain"
    radius: float | None = None
    beta2: float = 0.9
    eps: float = 1e-3
    bias_correction: bool = True
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Settings:
    """A method by its equations.

    Args:
        u: "SOXE", "MSVR", "MSVR-SP", "MSVR_SVRG", "variant", "variant-svrg", "ALEXR", "SVRG", or
            None: no table.
        z: "momentum", "eqn:z", "eqn:z+", "MARS" or "SVRG".
        slope: "table" (u_{t-1} at w_t, u_{t-2} at w_{t-1}), "updated" (u_t at w_t, and at w_{t-1}
            the row that the same sample would give there), "common" (u_{t-1} at both),
            "value" (BSGD) or "pair".
        beta: a number, "auto", or ("scent", a), ("restart", beta) or ("log", beta).
        theta: the coefficient of "ALEXR".
        scale: the coefficient of "MARS".
        lr: for all entries of w, or one for each.
        untrained: how many of the last entries of w are not trained yet.
    """

    u: str | None
    z: str
    slope: str = "table"
    alpha: float = 0.5
    beta: Any = 0.5
    gamma: float | str = 0.0
    theta: float = 1.0
    scale: float = 0.025
    lr: float | Tensor = 0.1
    untrained: int = 0
    snapshot_every: int = 7
    initial: Tensor | None = None
    rule: Rule = field(default_factory=Rule)


@dataclass(frozen=True)
class Act:
    """What happens, in this order: other settings, a restart, a snapshot, a step.

    Args:
        draw: of the step; None: there is none.
        changes: of the settings, from here on.
        restart: w_0 = w_1 and u_{-1} = u_0.
        snapshot: take one.
        move: make the step; False: only estimate, after which another optimizer may move w.
        elsewhere: the step size of that optimizer, which goes along z.
    """

    draw: Draw | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    restart: bool = False
    snapshot: bool = False
    move: bool = True
    elsewhere: float = 0.0


@dataclass
class Trace:
    """w_{t+1}, u_t and z_t after each step t."""

    w: list[Tensor] = field(default_factory=list)
    u: list[Tensor] = field(default_factory=list)
    z: list[Tensor] = field(default_factory=list)


EQUATIONS: dict[str, dict[str, Any]] = {
    "sox": {"u": "SOXE", "z": "momentum"},
    "soap": {"u": "SOXE", "z": "momentum", "alpha": 1.0},
    "bsgd": {"u": None, "z": "momentum", "slope": "value"},
    "msvrm-v1": {"u": "MSVR", "z": "momentum"},
    "msvrm-v2": {"u": "MSVR", "z": "eqn:z"},
    "msvrm-v3": {"u": "MSVR_SVRG", "z": "eqn:z+"},
    "msvrm-v1-sp": {"u": "MSVR-SP", "z": "momentum"},
    "msvrm-v2-sp": {"u": "MSVR-SP", "z": "eqn:z"},
    "variant-v1": {"u": "variant", "z": "momentum"},
    "variant-v2": {"u": "variant", "z": "eqn:z"},
    "variant-v3": {"u": "variant-svrg", "z": "eqn:z+"},
    "fresh-pair-v1": {"u": None, "z": "momentum", "slope": "pair"},
    "fresh-pair-v2": {"u": None, "z": "eqn:z", "slope": "pair"},
    "fresh-pair-v3": {"u": None, "z": "eqn:z+", "slope": "pair"},
    "alexr": {"u": "ALEXR", "z": "momentum", "slope": "updated"},
    "mars": {"u": "SOXE", "z": "MARS"},
    "svrg": {"u": "SVRG", "z": "SVRG", "slope": "updated", "beta": 1.0},
}
"""The equations of every registered method: the branches of ``reference``."""


def reference(problem: Toy, model: nn.Sequential, draws: Sequence[Draw], s: Settings) -> Trace:
    """Run one method over the given draws, starting from the parameters of linear layers."""
    anchored = s.z in ("eqn:z+", "SVRG")
    acts = [
        Act(draw, snapshot=anchored and number % s.snapshot_every == 0)
        for number, draw in enumerate(draws)
    ]
    return replay(problem, model, acts, s)


def replay(problem: Toy, model: nn.Sequential, acts: Sequence[Act], s: Settings) -> Trace:
    """Run one method through any history; the trace has one entry for each step."""
    shapes = [q.shape for q in model.parameters()]
    sizes = [q.numel() for q in model.parameters()]
    m, p = problem.num_blocks, problem.inner_dim
    beta: Any = s.beta
    learned = [0.0, 0.0, 0.0]  # by beta = "auto": rows, and means of P + R and of R

    def net(w: Tensor) -> Callable[[Tensor], Tensor]:
        parts = [part.view(shape) for part, shape in zip(w.split(sizes), shapes, strict=True)]

        def forward(x: Tensor) -> Tensor:
            weights = iter(parts)
            for layer in model:
                x = (
                    x @ next(weights).T + next(weights)
                    if isinstance(layer, nn.Linear)
                    else layer(x)
                )
            return x

        return forward

    def g(w: Tensor, blocks: Tensor, samples: Tensor) -> Tensor:
        return problem.values(net(w), blocks, samples).detach()

    def jacobian_t(w: Tensor, blocks: Tensor, samples: Tensor, v: Tensor) -> Tensor:
        """sum_i grad g_i(w; xi_i)^T v_i."""
        w = w.detach().requires_grad_()
        (result,) = torch.autograd.grad((problem.values(net(w), blocks, samples) * v).sum(), w)
        return result

    def directional(w: Tensor, blocks: Tensor, samples: Tensor, d: Tensor) -> Tensor:
        """grad g_i(w; xi_i)^T d for each block, by torch.func on the flat vector."""
        tangent: Tensor = torch.func.jvp(
            lambda v: problem.values(net(v), blocks, samples), (w,), (d,)
        )[1]
        return tangent

    w = torch.cat([q.detach().flatten() for q in model.parameters()])
    w_prev = w.clone()  # w_0 := w_1
    u = torch.zeros(m, p, dtype=w.dtype) if s.initial is None else s.initial.clone()
    u_prev = u.clone()  # u_{-1} := u_0
    visited = torch.full((m,), s.initial is not None)
    last_visit = torch.zeros(m)
    z = torch.zeros_like(w)
    memory: dict[str, Tensor] = {}
    every = problem.everything()
    w_s = w
    g_s = u_s = u
    full = z
    first = True
    t = 0
    trace = Trace()

    for act in acts:
        s = replace(s, **act.changes)
        alpha = s.alpha
        trained = torch.arange(len(w)) < len(w) - s.untrained
        if act.restart:
            w_prev, u_prev = w.clone(), u.clone()

        # Algorithm 2, lines 3-6.
        if act.snapshot:
            w_s = w.clone()
            g_s = g(w, every.blocks, every.samples)
            if first and s.initial is None:
                u = problem.feasible(g_s, every.blocks)
                u_prev, visited = u.clone(), torch.ones(m, dtype=torch.bool)
            u_s = u.clone()
            at = g_s if s.slope == "pair" else u_s
            if s.z == "SVRG":  # slopes at the exact values
                at = u_s = problem.feasible(g_s, every.blocks)
            slopes = problem.slope(at, every.blocks)
            full = jacobian_t(w, every.blocks, every.samples, slopes) / m
            first = False
        if act.draw is None:
            continue
        t, draw = t + 1, act.draw
        b, xi = draw.blocks, draw.samples
        count = len(b)

        # A row never visited takes its fresh value, in both generations.
        if s.u is not None:
            new, now = b[~visited[b]], g(w, b, xi)
            fresh = problem.feasible(now, b)
            u, u_prev = u.clone(), u_prev.clone()
            u[new] = u_prev[new] = fresh[~visited[b]]

        # The estimator u_t.
        u_new = u.clone()
        if s.u is not None:
            beta = _beta(s, learned, u[b], now)
            age = t - last_visit[b]
            gamma = _gamma(s, beta, m, count, age) if isinstance(s.gamma, str) else s.gamma
            if s.u == "SOXE":
                rows = (1 - beta) * u[b] + beta * now
            elif s.u == "MSVR":
                rows = (1 - beta) * u[b] + beta * now + gamma * (now - g(w_prev, b, xi))
            elif s.u == "ALEXR":
                ahead = now + s.theta * (now - g(w_prev, b, xi))
                rows = (1 - beta) * u[b] + beta * ahead
            elif s.u == "MSVR-SP":
                tangent = directional(w, b, xi, w - w_prev)
                rows = (1 - beta) * u[b] + beta * now + gamma * tangent
            elif s.u == "SVRG":
                rows = now - g(w_s, b, xi) + g_s[b]
            elif s.u == "MSVR_SVRG":
                hat = now - g(w_s, b, xi) + g_s[b]
                rows = (1 - beta) * u[b] + beta * hat + gamma * (now - g(w_prev, b, xi))
            elif s.u in ("variant", "variant-svrg"):
                hat = now - g(w_s, b, xi) + g_s[b] if s.u == "variant-svrg" else now
                u_new = (1 - beta) * u
                rows = (1 - beta) * u[b] + m / count * (
                    beta * hat + (1 - beta) * (now - g(w_prev, b, xi))
                )
            else:
                raise ValueError(f"the reference has no branch for u: {s.u!r}")
            rows = torch.where(visited[b].unsqueeze(1), rows, fresh)
            u_new[b] = problem.feasible(rows, b)
        if s.beta == "auto" and visited[b].any() and (learned[0] < 8 * t or t % 4 == 0):
            # What was to be expected without the sample, at beta = 0, in units of f at 0.4 of the
            # way to the sample.
            ahead = u[b]
            # At beta = 1, which "auto" takes if a sample shows no noise, gamma = 0, and a point of
            # weight 0 is not evaluated: then drift counts as surprise.
            if s.u in ("MSVR", "MSVR-SP") and t > 1 and torch.as_tensor(gamma).any():
                free = _gamma(s, 0.0, m, count, age) if isinstance(s.gamma, str) else s.gamma
                change = (
                    directional(w, b, xi, w - w_prev)
                    if s.u == "MSVR-SP"
                    else now - g(w_prev, b, xi)
                )
                ahead = ahead + free * change
            ahead = problem.feasible(ahead, b)
            unit = problem.slope(problem.feasible(0.6 * ahead + 0.4 * now, b), b)
            error = problem.outputs(net(w), b, xi).detach().std(1) / xi.shape[1] ** 0.5
            sums = [(unit * x)[visited[b]].square().sum(1).mean() for x in (now - ahead, error)]
            if learned[0] > 300 and sums[0] > 10 * learned[1] > 0:  # a bad batch
                sums = [10 * learned[1] * x / sums[0] for x in sums]
            learned[0] += int(visited[b].sum())
            share = min(int(visited[b].sum()) / min(learned[0], 300), 1.0)
            for k, mean in enumerate(sums, 1):
                learned[k] = (1 - share) * learned[k] + share * float(mean)

        # G(w_t), G(w_{t-1}), G(w_s), each with the slopes of its own generation of u.
        def gradient(
            point: Tensor,
            table: Tensor,
            b: Tensor = b,
            xi: Tensor = xi,
            draw: Draw = draw,
            slope: str = s.slope,
        ) -> Tensor:
            if slope == "pair":
                at = g(point, b, draw.pair)
            elif slope == "value":
                at = problem.feasible(g(point, b, xi), b)
            else:
                at = table[b]
            return jacobian_t(point, b, xi, problem.slope(at, b)) / len(b)

        at_now, at_prev = u, u_prev
        if s.slope == "common":
            at_prev = u
        if s.slope == "updated":
            # At w_{t-1}: u_{t-1} as the same sample would have updated it there.
            at_now, at_prev, there = u_new, u.clone(), g(w_prev, b, xi)
            moved = torch.where(visited[b].unsqueeze(1), (1 - beta) * u[b] + beta * there, there)
            at_prev[b] = problem.feasible(moved, b)
        g_now = gradient(w, at_now)
        if s.z == "momentum":
            z_new = (1 - alpha) * z + alpha * g_now
        elif s.z == "MARS":
            change = g_now - gradient(w_prev, at_prev)
            z_new = (1 - alpha) * z + alpha * g_now + s.scale * (1 - alpha) * change
        elif s.z == "eqn:z":
            z_new = (1 - alpha) * z + g_now - (1 - alpha) * gradient(w_prev, at_prev)
        elif s.z == "eqn:z+":
            h = full + g_now - gradient(w_s, u_s)
            z_new = (1 - alpha) * z + alpha * h + (1 - alpha) * (g_now - gradient(w_prev, at_prev))
        elif s.z == "SVRG":
            z_new = (1 - alpha) * z + alpha * (full + g_now - gradient(w_s, u_s))
        else:
            raise ValueError(f"the reference has no branch for z: {s.z!r}")
        if t == 1:
            z_new = full if s.z in ("eqn:z+", "SVRG") else g_now
        z_new = z_new * trained

        if s.u is not None:
            visited[b] = True
            last_visit[b] = t
        w_next = _move(w, z_new, trained, s, memory) if act.move else w - act.elsewhere * z_new
        w_prev, w = w, w_next
        u_prev, u, z = u, u_new, z_new
        trace.w.append(w)
        trace.u.append(u)
        trace.z.append(z)
    return trace


def _beta(s: Settings, learned: Sequence[float], u: Tensor, now: Tensor) -> Any:
    """A number, or one for each row."""
    if s.beta == "auto":
        _, total, noise = learned
        return min(max(1 - noise / total, 0.02), 1.0) if total else 0.5
    if isinstance(s.beta, float | int):
        return s.beta
    rule, number = s.beta
    old, new = (x.abs().amax(1, keepdim=True) for x in (u, now))
    if rule == "scent":
        return old / (old + math.exp(-number))
    if rule == "restart":
        return torch.where(new > torch.e * old, torch.ones_like(new), number * torch.ones_like(new))
    # Geometric: u moves by the share (r^beta - 1) / (r - 1) of the way, where r = new / old.
    ratio = (new / old).log()
    return torch.where(ratio == 0, number, torch.expm1(number * ratio) / torch.expm1(ratio))


def _gamma(s: Settings, beta: float, m: int, count: int, age: Tensor) -> Any:
    if s.gamma == "storm":
        return 1 - beta
    if s.gamma == "theory":
        return (m - count) / (count * (1 - beta)) + (1 - beta)
    # The drift of the momentum over the age: (1 - beta) sum_{j<k} (1 - alpha)^j.
    drift = [(1 - beta) * sum((1 - s.alpha) ** j for j in range(int(k))) for k in age]
    return torch.tensor(drift, dtype=torch.float64).unsqueeze(1)


def _move(w: Tensor, z: Tensor, trained: Tensor, s: Settings, memory: dict[str, Tensor]) -> Tensor:
    rule, norm = s.rule, z.norm()
    direction = z
    steps = memory.get("steps", torch.zeros_like(z)) + trained.to(z)  # of each entry
    memory["steps"] = steps
    if rule.radius is not None and norm > rule.radius:
        direction = z * (rule.radius / norm)
    if rule.name == "normalized":
        direction = z / norm
    elif rule.name in ("adam", "amsgrad"):
        h = rule.beta2 * memory.get("h", torch.zeros_like(z)) + (1 - rule.beta2) * z**2
        memory["h"] = h
        if rule.name == "amsgrad":
            h = torch.maximum(memory.get("h_max", torch.zeros_like(z)), h)
            memory["h_max"] = h
        if rule.bias_correction:
            h = h / torch.where(trained, 1 - rule.beta2**steps, 1.0)
        direction = direction / (h.sqrt() + rule.eps)
    return torch.where(trained, w - s.lr * rule.weight_decay * w - s.lr * direction, w)

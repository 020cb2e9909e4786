"""What to do about a finding: by its cause where that is known, else by its kind."""

from __future__ import annotations

from msprobe.diagnose.findings import Finding, Kind
from msprobe.diagnose.wording import Wording
from msprobe.report.phrases import no_effect_in_words

#: What to do about a finding of each kind.
ADVICE: dict[Kind, str] = {
    "data": "Give both runs the same batch: check the order of the data, the seed of its sampler, and masks or "
    "tables that are made before the model runs.",
    "initial_weights": "Load the same checkpoint on both sides, or set the same seed before the model is made.",
    "structure": "Look at the source line: one side does something that the other does not.",
    "argument": "Make the argument the same on both sides and compare again: what differs later may be gone.",
    "dtype": "Find where the type changes: autocast, a setting of the layer, the types of the checkpoint.",
    "layout": "A later call depends on how this tensor lies in memory: make it contiguous on both sides, or look at "
    "that call.",
    "computation": "Suspect this call itself. With both sides recorded with task tensor, `msprobe reproduce` writes a "
    "script that makes it alone, and `msprobe confirm` tells whether it explains all; both are given verdict.json.",
    "mutation": "Look for what writes to this tensor after it was made: calls whose names end in _, out=, views of it.",
    "recompute": "Recomputation has to repeat the forward pass: the same random state, the same mode (train or eval), "
    "nothing changed in between.",
    "gradient": "Look at the backward of this call: an autograd Function of your own, its kernel, hooks on tensors.",
    "missing_gradient": "Look for detach, no_grad, requires_grad=False or a copy to numpy between this call and the "
    "loss.",
    "parameter_gradient": "Look at what happens to the gradient after backward: hooks, accumulation over "
    "micro-batches, reduction between ranks.",
    "collective": "Check group, order and dtype of this exchange on all ranks, and the communication library.",
    "replica": "What is replicated must be made alike on all ranks: seeds, broadcasts at the start, reductions.",
    "optimizer": "Make the settings of the optimizer the same: groups, learning rate, betas, eps, weight decay.",
    "weights": "Something between the steps was not recorded. Call stop() after optimizer.step() and record again.",
    "loss_scale": "Check what the loss is multiplied with and divided by: scaler, micro-batches, tokens, ranks.",
    "overflow": "Look at what goes into this call: a division by zero, log or sqrt of what is not positive, a number "
    "beyond what half precision holds.",
    "choice": "Nothing is wrong by that. To compare further, give both runs the same tokens, those of the reference, "
    "in one pass.",
    "step_count": "Record the same steps and ranks on both sides.",
    "error": "Look at the shapes and types that this call was given; the calls before it were recorded too.",
}
#: What to do about a cause that the diagnosis recognised (``evidence.cause``).
BY_CAUSE: dict[str, str] = {
    "clipping": "Clip the gradients on both sides, in the same way and by the same norm, or on neither.",
    "loss_factor": "Take the factor of the loss away, or divide the gradients by it before they are clipped and before "
    "the optimizer steps (GradScaler.unscale_); check micro-batches, tokens and ranks that the loss is divided by.",
    "gradient_factor": "Give the gradients the same factor on both sides between the backward pass and the optimizer: "
    "loss scale, number of micro-batches, of tokens, of ranks.",
    "not_cleared": "Call optimizer.zero_grad() once in every step before the first backward pass (and clear gradients "
    "in no other way on one side only).",
    "no_step": "Call optimizer.step() on both sides. If one side calls it after stop(), call stop() after "
    "optimizer.step() there too, and record again.",
    "members": "Give the optimizers the same parameters: make each after its model is complete, and pass all of "
    "model.parameters().",
    "tie": "Tie the two on both sides or on neither: give one module the parameter of the other after the weights are "
    "loaded and before the optimizer is made.",
    "class": "Use the same optimizer on both sides.",
    "between": "Record level mix (or L1) on both sides and compare again: then the call between the modules is named.",
    "wrong_alone": "Reproduce it alone on both devices: `msprobe op_generate` makes a script of the call from the "
    "recording of the second look.",
    "on_its_way": "Look at what happens to gradients between the backward pass and the step: zero_grad, accumulation, "
    "unscaling, clipping, reduction between ranks. The backward pass itself agrees.",
    "not_averaged": "Call the wrapper of the model and not the module in it (ddp(x), not ddp.module(x)); leave "
    "no_sync() before the last backward pass of each step; make the wrapper after parameters are replaced; or "
    "reduce the gradients by hand.",
    "scaled_clipping": "Call GradScaler.unscale_(optimizer) before gradients are clipped, once in each step; where the "
    "program divides them by itself, do that before they are clipped.",
    "random": "Set the same seeds on both sides (seed_all) and draw random numbers in the same order before this call.",
    "state": "Load the state of the optimizer on both sides when a training is resumed (optimizer.load_state_dict), or "
    "on neither.",
    "frozen": "Set requires_grad alike on both sides, before the optimizer is made.",
    "step_left_out": "Call debugger.step() at the end of every iteration on both sides, and record again.",
    "rounded_numbers": "Count in whole numbers or in float32, and cast what is calculated from them: positions, "
    "sines and cosines of them, indices.",
    "beyond": "No call stands out. Compare at a higher precision, or with whole tensors (task tensor), to see where "
    "the difference comes in.",
}

#: What to do where the inputs of the call to blame agree as far as statistics tell.
BY_STATISTICS = (
    'Record both sides with "summary_mode": "xxh3" and compare again: statistics do not see another order of elements '
    "(swapped channels, a permutation), digests do. If its inputs still agree, suspect this call itself: record it "
    "with task tensor, and `msprobe reproduce` writes a script that makes it alone."
)


def advice_on(finding: Finding) -> str:
    """What to do about a finding; empty for kinds that this version does not know."""
    if finding.harmless and finding.kind != "choice":
        effect = no_effect_in_words(finding) or "no effect measured"
        return Wording(
            "It differs; {}. Other data or more steps may show one: make it the same if it is not meant so.", effect
        )
    cause = finding.evidence.get("cause")
    if cause is None and "inputs_agree_by" in finding.evidence:
        return BY_STATISTICS
    known = BY_CAUSE.get(cause) if isinstance(cause, str) else None
    return known or ADVICE.get(finding.kind, "")

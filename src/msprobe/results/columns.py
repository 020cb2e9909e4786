"""What the columns of the tables hold: their meaning, their unit, and when they are None. ``docs/python.md`` says the
same.
"""

from __future__ import annotations

from msprobe.statistics_table import USUAL, meanings

#: All calls of one step of one rank of two runs, one row for each pair and for each call of one side alone.
CALLS = {
    "name": "the candidate's record; None for a call of the reference alone",
    "reference_name": "the record of the reference that answers to it; None for a call of the candidate alone",
    "module": "path of the module that it is a pass of, or runs in; None outside of all",
    "inside": "name of the module pass around it; None outside of all",
    "phase": "forward, backward or optimizer",
    "order": "place in the order of execution, from 0; a module has that of the first call in it",
    "status": "same, rounding, explained (by its inputs), unexplained, candidate only, reference only, or not measured",
    "input_delta": "largest relative difference of the inputs (no unit; inf: without size, as NaN on one side); None "
    "without partner",
    "output_delta": "the same of what comes out",
    "allowed": "how much of output_delta rounding and the inputs explain (inf: any); None without partner, and where "
    "nothing differs",
    "largest": "largest absolute value of its floating-point results (in the candidate, if that has it); None if not "
    "recorded or not finite",
    "norm": "L2 norm of these results together; None if not recorded or not finite",
    "not_finite": "True if one of these results holds NaN or infinity",
    "finding": "number of the first finding that names it, in .findings; None for the others",
}

#: All tensors of one step of one rank of two runs, one row for each pair and for each tensor of one side alone.
TENSOR_PAIRS = {
    "name": CALLS["name"],
    "reference_name": CALLS["reference_name"],
    "module": CALLS["module"],
    "slot": "which of its tensors: input.0, input.weight, parameters.bias, output.0",
    "group": "input, parameter or output; of a backward call the gradients that arrive, and that leave",
    "status": "as of calls; of an input, explained: it was made elsewhere, and differs",
    "difference": "relative difference of the two (no unit: of the values if both were recorded, else the largest of "
    "the statistics; inf: without size); 0 if they are equal; None without partner or numbers",
    "units": "the difference in units of the rounding of its dtype; None without a difference that has a size",
    "dtype": "type in the candidate, without the framework's prefix; None if the candidate has none",
    "reference_dtype": "the same of the reference",
    "shape": "shape in the candidate, as text; None if the candidate has none, or it was not recorded",
    "reference_shape": "the same of the reference",
    "max": "largest element in the candidate; None if not recorded",
    "reference_max": "the same of the reference",
    "min": "least element in the candidate; None if not recorded",
    "reference_min": "the same of the reference",
    "mean": "mean in the candidate; None if not recorded",
    "reference_mean": "the same of the reference",
    "norm": "L2 norm in the candidate; None if not recorded",
    "reference_norm": "the same of the reference",
}

#: All tensors of one step of one rank of one run.
TENSORS = {
    "record": "name of the record",
    "module": CALLS["module"],
    "slot": TENSOR_PAIRS["slot"],
    "dtype": "type without the framework's prefix",
    "shape": "shape as text; None if not recorded",
    **meanings(USUAL),
    "digest": "digest of the values, its kind before a colon; None if not recorded",
}

#: The findings of a comparison or a check, in their order.
FINDINGS = {
    "kind": "what sort of finding (docs/verdict.md, docs/check.md)",
    "where": "what is at fault, in words",
    "module": "path of the module that the record ran in; None outside of all",
    "entry": "record that shows it: of the candidate, or of the reference where the candidate has none; None if it is "
    "about no record",
    "step": "step of the candidate; None if it is about no step, or the folder has no number",
    "rank": "number of the rank, or name of its folder; None if it is about no single rank",
    "direction": "forward, backward, recompute, gradient, optimizer, or none",
    "order": "place in the order of execution, from 0; None if not known",
    "harmless": "True if nothing that counts (loss, gradients, weights) is changed by it",
    "message": "the finding in a sentence",
}

_LOSS = "last number before the backward pass that gradients go back from; None if not recorded"
_GRADIENTS = "L2 norm of the gradients as the optimizer takes them, before clipping; None if not recorded"
_WEIGHTS = "L2 norm of the parameters of all modules; None if not recorded"

#: The steps of a run, one row for each rank of each.
STEPS = {
    "step": "number of the step; None if the folder has none",
    "rank": "number of the rank, or name of its folder",
    "loss": _LOSS,
    "gradient_norm": _GRADIENTS,
    "weight_norm": _WEIGHTS,
}

#: The same of two runs.
STEP_PAIRS = {
    "step": STEPS["step"],
    "rank": STEPS["rank"],
    "loss": f"{_LOSS}, or the candidate has no such step",
    "reference_loss": "the same of the reference",
    "gradient_norm": f"{_GRADIENTS}, or the candidate has no such step",
    "reference_gradient_norm": "the same of the reference",
    "weight_norm": f"{_WEIGHTS}, or the candidate has no such step",
    "reference_weight_norm": "the same of the reference",
}

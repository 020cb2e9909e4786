"""The free benchmark: calls are made a second time with slightly other inputs, more precisely, or on the CPU, and
whose result reacts too strongly is reported. A listener; what is not of a framework is here, the rest in ``torch`` and
``mindspore``.
"""

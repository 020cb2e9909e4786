"""The page: what it shows of one run or of two, and the small server that hands it to a browser.

=================  ===================================================================================================
``opening``        what the paths of a user lead to: a dump, two dumps, our results, graph files of others
``dumps``          one dump or two as a source of the page: places, verdict, curves
``steps_source``   what is the same for dumps and graph files: questions, and a bounded memory of judged steps
``kept``           what the comparison knew of the steps that it looked at last
``judged``         one step of one rank, read and judged, with all its records at hand
``rows``           the tree of modules and calls of both sides, merged into rows
``columns``        what the page shows of all rows at once
``details``        what it shows of one row: tensors, sources, who made what
``partners``       which calls of other ranks a call exchanged data with
``pictures``       how the values of two tensors differ, as a picture
``grid``           the worst of each layer of each rank
``curve``          loss, gradients and weights over all steps
``words``          verdicts and checks in the words of the console
``vis``            graph files (``.vis``, ``.vis.db``) as a source
``matches``        pairs made by hand, in their side-car file
``unchanged``      that files are still those that were opened
``by_hand``        which pairs a person makes, and how they enter the pairing
``serving``        a free port, a token, a browser, and the end by Ctrl-C
``server``         HTTP on this machine: token, headers, answers
``single_file``    the page with its data in one file
=================  ===================================================================================================

The answers are described in ``web/protocol.md``.
"""

"""Answers as pages: one self-contained HTML file each, that can be attached to a ticket.

    frame      what every page shares: look (dark, light, print), data, keyboard, what it rests on
    timeline   `timeline --html`: a group over time, to be scrubbed through
    lanes      what its lanes are made of, folded from facts until it fits
    terminal   `timeline --lanes`: the same lanes where there is no browser
    sayings    epochs, waits and findings in the words that stand beside them
    stats      `stats --html`: rebalances over time, time to stable, unowned partitions, as bars

The styles, scripts and templates themselves are in ``files/``, as package data.
"""

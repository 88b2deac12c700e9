"""Answers as pages: self-contained HTML files that can be attached to a ticket.

    frame     what every page shares: style (dark, light, print), data, keyboard, the basis of the answer
    timeline  `timeline --html`: a group over time, to be scrubbed through
    opening   the moment at which the timeline opens: the gravest finding's worst
    lanes     the lanes of the timeline, derived from facts and folded until they fit
    terminal  `timeline --lanes`: the same lanes without a browser
    captions  epochs, waits and findings in words
    stats     `stats --html`: rebalances over time, time to stable, unowned partitions, as bar charts
    whatif    `whatif --html`: what really happened and what would have, on one page

The styles, scripts and templates themselves are in ``files/``, as package data.
"""

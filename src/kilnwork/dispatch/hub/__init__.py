"""The dispatcher as others see it: links, commits, delivery, and the methods of `hub.Hub`.

The path of one call: `links` cuts and decodes frames and hands each message to `submitters` (of
drivers and slots) or `agents` (of workers), which turn it into an input. `commits` gives inputs to
the machine, hands the batch that follows to the store while `delivery` makes its frames, and has
them written when it is stored. Then `feed` and `subscriptions` publish what changed.

Before that, `peers` lets a link join once `authentication` has checked its Hello. A Task object
comes in through `Hub.submit`, which gives its input to `commits` and returns when that is stored.
Jobs add theirs to a batch that is being made (`participation`).
"""

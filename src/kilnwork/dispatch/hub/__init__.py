"""The hub: the dispatcher's I/O. Links, commits, delivery, and the methods of `hub.Hub`.

The path of one call: `links` decodes frames and hands each message to `submitters` (from drivers
and slots) or `agents` (from workers), which make an input of it. `commits` gives inputs to the
machine, hands the resulting batch to the store while `delivery` encodes its frames, and has them
written when the batch is stored. Then `feed` and `subscriptions` publish the changes.

Before that, `peers` lets a link join once `authentication` has checked its Hello. A Task object
comes in through `Hub.submit`, which gives its input to `commits` and returns when that is stored.
Jobs add theirs to a batch that is being made (`participation`).
"""

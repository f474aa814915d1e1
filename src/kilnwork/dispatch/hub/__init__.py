"""The hub: the I/O of the dispatcher: links, commits, delivery, and the methods of `hub.Hub`.

The path of one call: `links` decodes frames and hands each message to `submitters` (from drivers
and slots) or `agents` (from workers), which makes an input of it. `commits` gives inputs to the
machine, hands the resulting batch to the store while `delivery` encodes its frames, and has the
frames written when the batch is stored. Then `feed` and `subscriptions` publish the changes.

Before that, `peers` lets a link join once `authentication` has checked its Hello. A Task object
comes in through `Hub.submit`, which gives its input to `commits` and returns when that is stored.
Jobs add their inputs to a batch that is being made (`commit_participation`).
"""

"""The dispatcher as others see it: links, commits, delivery, and the methods of `hub.Hub`.

The path of one call: `links` cuts frames, `authentication` lets a new peer in, `submitters`
(drivers and slots) or `agents` (workers) turn its messages into inputs; `commits` tells the
machine, hands the batch to the store and, once that is stored, to `delivery`, which writes the
frames.
"""

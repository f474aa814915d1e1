"""The dispatcher as others see it: links, commits, delivery, and the methods of `hub.Hub`.

The path of one call: `links` cuts and decodes frames; `peers`, once `authentication` has let the
peer in, hands messages to `submitters` (drivers and slots) or `agents` (workers), which turn them
into inputs. `commits` gives these to the machine, hands the batch that follows to the store while
`delivery` makes its frames, and calls `hub` when it is stored: `delivery` writes the frames, `feed`
and `subscriptions` tell those who follow tasks.

A Task object comes in through `Hub.submit`, which gives its input to `commits` and returns when
that is stored.
"""

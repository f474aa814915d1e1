"""Servers, fakes, recorded peers and waiting helpers that several test levels share.

Words used throughout: a `World` is the environment of one test (servers, fakes, and helpers that
act on them); a `fake_…` module replaces a component of ours and records calls; a `scripted_…`
module plays the other end of a link from a script; a `raw_…` module sends frames exactly as the
test builds them; a *subject* is one implementation under a contract suite; a *story* is a random
sequence of operations.
"""

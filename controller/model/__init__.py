"""The nouns: frozen msgspec structs, their parsing and their encoding.

Belongs here: what two stages pass to each other, and what makes a value of it valid. Does not belong here: a decision
that needs more than the value itself (that is `translate` or `balancing`), and anything that reads a clock, a file or
a socket. To tell: could this run in a unit test with literals only, and would both planes use it?

Read `service` (what users write), `parsing` and what it is made of (`schema`, `rules`, `records`, `fields`,
`durations`), `endpoints`, `snapshot` (what proxies hear), `conditions` (what users are told).
"""

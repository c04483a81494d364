"""`make demo`: the chapter's hiking group on two embedded Valkeys and the three services, every number checked.

`app` runs it: it starts the suite (`staging`), plays the group once for each policy (`chapter`, `play`), reads what
Ana, Ben and Cara see through the public API (`reading`, `sights`), compares (`checks`) and draws (`line`, `words`,
`pictures`, `verdict`). Everything that is shown comes from the services; the chapter's numbers are only what it is
compared with.
"""

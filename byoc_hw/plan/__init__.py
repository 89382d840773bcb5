"""The planner: from the graph of a region to its copies, jobs, waits and addresses.

`steps` and `choices` are data. `stages` lists how choices become a plan, in terms of the rooms `array`,
`work`, `place` and `order`; `search` and `tune` make choices; `region` is what other rooms call.
"""

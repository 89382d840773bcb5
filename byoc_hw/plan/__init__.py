"""Graph in, plan out: what a region copies, computes and waits for, and where every byte lies.

`steps` and `choices` are data. `stages` lists how choices become a plan, in terms of the rooms `array`,
`work`, `place` and `order`; `search` and `tune` make choices; `region` is what other rooms call.
"""

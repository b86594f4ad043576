"""How fast this package is beside its floors and its peers: ``python -m benchmarks``, or ``make bench``.

All contenders of a row take turns in many short rounds, on the same input, with the garbage collector off. What is
compared is the ratio within a round, so what else the machine does hits all of them alike. Times are for
orientation; nothing here asserts one. Targets are printed beside the ratios.
"""

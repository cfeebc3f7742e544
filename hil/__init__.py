"""Real-time runs on drives over CAN: codecs, buses, drives, sensing, safety, emulated drives, recorder.

Times inside this package are integer nanoseconds on the run's clock, so that a run in lock-step is the same to the bit
wherever it runs; whatever a person reads or writes is in seconds.

These parameters mean the same everywhere, and are explained here alone:

    setup           the config, ready for drives; `values` is its section `hil`, `loaded` the config as it was read
    period          period of the loop [s]
    clock, now      clock of the run, and the present time on it [ns]; `world` is virtual time
    drives          in the order of the plant's actuators
    sensors, nodes  encoder nodes; drives, then encoder nodes
    model           plant and task; what only measures or holds the machine leaves the task aside
    loop            the closed loop of the law; `controller` evaluates the law in it
    engine          `auto` (C if there is a compiler), `c`, `vm` or `numpy`
    rank_tolerance  a passive direction counts when its pivot exceeds this times |Ahat L^-T|_F
"""

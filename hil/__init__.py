"""Real-time runs on drives over CAN: codecs, buses, drives, sensing, safety, emulated drives, recorder.

Times inside this package are integer nanoseconds on the run's clock, so that a run in lock-step is the same to the bit
wherever it runs; whatever a person reads or writes is in seconds.
"""

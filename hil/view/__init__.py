"""The live page of a run on drives: a separate process shows the data that the recorder gets.

Design: the tick does no work for the page. The page's process maps the recorder's memory read-only and follows its
rings without consuming records. In the other direction there are only two requests: a stop, with a signal so that the
loop gets it at any time, and values for gains, which the loop reads once per tick and checks itself. Anyone with the
address, which contains a token, can send both; the server listens on the loopback interface only.
"""

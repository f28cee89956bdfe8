"""Set-up of every test process."""

import signal

# A shell starts what it runs in the background with Ctrl-C ignored, and Python then has no
# KeyboardInterrupt. Tests that interrupt themselves or a process of theirs need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

"""Set-up of every test process."""

import signal
from collections import Counter

import pytest

# A shell starts what it runs in the background with Ctrl-C ignored, and Python then has no
# KeyboardInterrupt. Tests that interrupt themselves or a process of theirs need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the slow ones are deselected
def pytest_collection_modifyitems(items):
    """Of the fast cases of a test that is marked ``sweep(n)``, leave every n-th fast."""
    count = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            if count[test] % sweep.args[0]:
                item.add_marker("slow")
            count[test] += 1

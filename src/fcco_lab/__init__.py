"""The laboratory: the ``fcco`` command, training runs, studies, and pages on their results."""

"""The paper's experiments: the runs of each figure and table, and their drawing."""
